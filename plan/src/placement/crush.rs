//! Placement as in Ceph, to compare with: the straw2 buckets of CRUSH (Weil et al., SC 2006; straw2
//! since Ceph 0.94). Every target draws a straw for every set, of the length ln(u) / weight with u
//! by chance from the set and the target. The longest are taken. Weights are the capacities, which
//! do not change: neither free space nor load counts. A domain that is full is passed over, which
//! is what a retry does in CRUSH.

use super::policies::mix;
use super::policy::{Policy, View};
use super::score::Parts;
use crate::SetId;

/// By chance, a target's chance being proportional to its capacity.
#[derive(Clone, Copy, Debug, Default)]
pub struct Crush {
    /// Another one gives other orders.
    pub seed: u64,
}

impl Policy for Crush {
    fn rank(&self, view: &View<'_>, set: SetId, _width: usize) -> Vec<usize> {
        let straw = |index: usize| {
            let target = &view.targets[index];
            // As in Ceph, 16 bits of the hash; 0 would have no logarithm.
            let hash = mix(set.0 ^ self.seed, !u64::from(target.id.0)) >> 48;
            let weight = if target.total == 0 { target.free } else { target.total };
            ((hash as f64 + 1.0) / 65_536.0).ln() / weight.max(1) as f64
        };
        let mut straws: Vec<(f64, usize)> = (0..view.targets.len()).map(|index| (straw(index), index)).collect();
        let id = |index: usize| view.targets[index].id;
        straws.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then_with(|| id(a.1).cmp(&id(b.1))));
        straws.into_iter().map(|(_, index)| index).collect()
    }

    fn scores(&self, _view: &View<'_>) -> Option<Vec<Parts>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TargetId;
    use crate::membership::TargetState;
    use crate::placement::{Rules, TargetCandidate, place};

    fn targets(count: u16, total: impl Fn(u16) -> u64) -> Vec<TargetCandidate> {
        let target = |id| TargetCandidate {
            id: TargetId(id),
            free: 200,
            total: total(id),
            domain: None,
            state: TargetState::Up,
            load: None,
        };
        (0..count).map(target).collect()
    }

    const ONE: Rules = Rules { width: 1, spare: 1, domain_level: None, need: 0 };

    #[test]
    fn chance_is_the_capacity_and_not_the_free_space() {
        let all = targets(4, |id| if id == 3 { 3000 } else { 1000 });
        let mut counts = [0; 4];
        for set in (0..12_000).map(SetId) {
            counts[usize::from(place(&Crush { seed: 5 }, &all, &ONE, set)[0].unwrap().0)] += 1;
        }
        assert!(
            (5800..6200).contains(&counts[3]) && counts[..3].iter().all(|n| (1850..2150).contains(n)),
            "{counts:?}"
        );
    }

    #[test]
    fn a_new_target_only_takes_from_the_others() {
        let (before, after) = (targets(9, |_| 1000), targets(10, |_| 1000));
        let mut moved = 0;
        for set in (0..5000).map(SetId) {
            let [was, is] = [&before, &after].map(|all| place(&Crush { seed: 5 }, all, &ONE, set)[0].unwrap());
            assert!(was == is || is == TargetId(9));
            moved += usize::from(was != is);
        }
        assert!((420..580).contains(&moved), "{moved} of 5000");
    }
}
