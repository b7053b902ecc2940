//! On which targets a chunk set goes.

use crate::TargetId;

/// What placement knows of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The target.
    pub id: TargetId,
    /// Bytes that it can still take.
    pub free: u64,
}

/// Chooses targets for the `width` positions of chunk set `set`: distinct ones, more often those with more room, and with each set others, so that sets
/// spread over all targets and so do their parity positions. Targets with less than `need` bytes are not used. Fewer than `width`
/// candidates leave positions without a target (None).
///
/// Weighted rendezvous hashing: a target's chance is proportional to its room, and one that comes or goes moves only
/// the sets that it should.
pub fn place(candidates: &[Candidate], width: usize, set: u64, need: u64) -> Vec<Option<TargetId>> {
    let mut scored: Vec<(f64, TargetId)> = candidates
        .iter()
        .filter(|candidate| candidate.free >= need)
        .map(|candidate| {
            let uniform = (mix(set, u64::from(candidate.id.0)) as f64 + 0.5) / u64::MAX as f64;
            (-(candidate.free.max(1) as f64) / uniform.ln(), candidate.id)
        })
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let mut chosen: Vec<Option<TargetId>> = scored.into_iter().take(width).map(|(_, id)| Some(id)).collect();
    chosen.resize(width, None);
    // The order by score would give small targets the last positions, the parity, for ever.
    chosen.rotate_left((set % width.max(1) as u64) as usize);
    chosen
}

/// A well-mixed number from two (the finaliser of SplitMix64).
pub(crate) fn mix(a: u64, b: u64) -> u64 {
    let mut z = a.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ b.wrapping_mul(0xD1B5_4A32_D192_ED03);
    for factor in [0xBF58_476D_1CE4_E5B9, 0x94D0_49BB_1331_11EB] {
        z = (z ^ (z >> 30)).wrapping_mul(factor);
    }
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn candidates(free: &[u64]) -> Vec<Candidate> {
        free.iter().enumerate().map(|(i, &free)| Candidate { id: TargetId(i as u16), free }).collect()
    }

    #[test]
    fn sets_go_to_distinct_targets_with_room() {
        for set in 0..500 {
            let placed = place(&candidates(&[100, 100, 5, 100, 100]), 4, set, 10);
            let mut ids: Vec<_> = placed.iter().flatten().collect();
            ids.sort();
            ids.dedup();
            assert_eq!(ids.len(), 4);
            assert!(!ids.contains(&&TargetId(2)), "it has no room");
        }
    }

    #[test]
    fn load_follows_room_and_parity_goes_round() {
        let (mut load, mut parity) = (BTreeMap::new(), BTreeMap::new());
        for set in 0..6000 {
            let placed = place(&candidates(&[100, 100, 100, 300]), 2, set, 1);
            placed.iter().flatten().for_each(|id| *load.entry(id.0).or_insert(0) += 1);
            *parity.entry(placed[1].unwrap().0).or_insert(0) += 1;
        }
        // Three times the room, but no target is taken twice for a set: about twice the load.
        assert!(5 * load[&3] > 9 * load[&0], "{load:?}");
        assert!(parity.values().all(|&count| count > 500), "{parity:?}");
    }

    #[test]
    fn too_few_targets_leave_positions_open() {
        let placed = place(&candidates(&[9, 9]), 4, 7, 1);
        assert_eq!((placed.len(), placed.iter().flatten().count()), (4, 2));
    }
}
