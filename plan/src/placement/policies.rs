//! The policies that look at no load.

use super::policy::{Policy, View};
use super::score::Parts;
use crate::SetId;

/// By chance: a target's chance is proportional to its space, and one that comes or goes moves only
/// the sets that it should (weighted rendezvous hashing).
#[derive(Clone, Copy, Debug, Default)]
pub struct Random {
    /// Another one gives other orders.
    pub seed: u64,
}

/// One after the other, from another one for each set. The order goes round the domains, so that
/// neighbours in it are in different ones.
#[derive(Clone, Copy, Debug, Default)]
pub struct RoundRobin;

/// A well-mixed number from two (the finaliser of SplitMix64).
pub(crate) fn mix(a: u64, b: u64) -> u64 {
    let mut z = a.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ b.wrapping_mul(0xD1B5_4A32_D192_ED03);
    for factor in [0xBF58_476D_1CE4_E5B9, 0x94D0_49BB_1331_11EB] {
        z = (z ^ (z >> 30)).wrapping_mul(factor);
    }
    z ^ (z >> 31)
}

/// The lot of somebody with this well-mixed number: of several, the chance to have the highest is
/// proportional to the weight (weighted rendezvous hashing).
pub(super) fn lot(mixed: u64, weight: u64) -> f64 {
    let uniform = (mixed as f64 + 0.5) / u64::MAX as f64;
    // Below 1, or the logarithm were 0.
    -(weight as f64) / uniform.min(1.0 - f64::EPSILON).ln()
}

impl Policy for Random {
    fn rank(&self, view: &View<'_>, set: SetId, _width: usize) -> Vec<usize> {
        let score = |index: usize| {
            let target = &view.targets[index];
            lot(mix(set.0 ^ self.seed, u64::from(target.id.0)), target.free.max(1))
        };
        let mut scored: Vec<(f64, usize)> = (0..view.targets.len()).map(|index| (score(index), index)).collect();
        let id = |index: usize| view.targets[index].id;
        scored.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then_with(|| id(a.1).cmp(&id(b.1))));
        scored.into_iter().map(|(_, index)| index).collect()
    }

    fn scores(&self, _view: &View<'_>) -> Option<Vec<Parts>> {
        None
    }
}

impl Policy for RoundRobin {
    fn rank(&self, view: &View<'_>, set: SetId, width: usize) -> Vec<usize> {
        let mut ring: Vec<usize> = (0..view.targets.len()).collect();
        ring.sort_unstable_by_key(|&index| view.targets[index].id);
        // The place of each target in its domain, and the domains in the order of their first
        // targets.
        let mut seen: Vec<Option<(usize, usize)>> = vec![None; view.targets.len()];
        let (mut round, mut first) = (vec![0; view.targets.len()], vec![0; view.targets.len()]);
        for (place, &index) in ring.iter().enumerate() {
            let (order, count) = seen[view.domains[index]].get_or_insert((place, 0));
            (first[index], round[index]) = (*order, *count);
            *count += 1;
        }
        ring.sort_unstable_by_key(|&index| (round[index], first[index]));
        let begin = (u128::from(set.0) * width as u128).checked_rem(ring.len() as u128).unwrap_or(0);
        ring.rotate_left(begin as usize);
        ring
    }

    fn scores(&self, _view: &View<'_>) -> Option<Vec<Parts>> {
        None
    }
}
