//! Several sets at once: how many a writer needs so that all targets work for it, and a policy that
//! puts them on different targets.

use super::policy::{Policy, View};
use crate::{SetId, TargetId};

/// As another policy, but targets that the writer's other open sets are on come later: a target of
/// two of them has twice the work, and both sets wait for it.
pub struct Spread<'a> {
    /// Orders targets with the same number of chunks.
    pub policy: &'a dyn Policy,
    /// The targets of the writer's other open sets, one for each chunk.
    pub used: &'a [TargetId],
}

impl Policy for Spread<'_> {
    fn rank(&self, view: &View<'_>, set: SetId, width: usize) -> Vec<usize> {
        let mut ranked = self.policy.rank(view, set, width);
        if !self.used.is_empty() {
            let chunks = |id: TargetId| self.used.iter().filter(|&&used| used == id).count();
            // One with half the space has half the chunks.
            let most = view.targets.iter().map(|target| target.free).max().unwrap_or(1).max(1);
            let crowd = |index: &usize| {
                let target = &view.targets[*index];
                chunks(target.id) as f64 * (most as f64 / target.free.max(1) as f64)
            };
            ranked.sort_by(|a, b| crowd(a).total_cmp(&crowd(b)));
        }
        ranked
    }
}

/// How many sets of `blocks` chunks a writer fills at the same time, `most` at most, so that the
/// busiest of the `targets` has little more to do than the others: with sets one after the other,
/// only the targets of one work.
pub fn open_sets(targets: usize, blocks: usize, most: usize) -> usize {
    // The part of all targets' speed that the writer gets: the busiest has a chunk of this many
    // sets.
    let part = |sets: usize| {
        let chunks = sets * blocks;
        chunks as f64 / (targets * chunks.div_ceil(targets)) as f64
    };
    if targets <= blocks || blocks == 0 {
        return 1;
    }
    let best = (1..=most.max(1)).map(part).fold(0.0, f64::max);
    (1..=most).find(|&sets| part(sets) >= GOOD_PART * best).unwrap_or(1)
}

/// More open sets are not worth it for a smaller gain.
const GOOD_PART: f64 = 0.85;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::TargetState;
    use crate::placement::{Random, Rules, TargetCandidate, place};

    #[test]
    fn as_many_sets_as_keep_all_targets_busy() {
        let sets = |targets| open_sets(targets, 6, 8);
        assert_eq!([0, 5, 6, 7, 8, 9, 10, 12, 18, 24, 48].map(sets), [1, 1, 1, 1, 4, 3, 3, 2, 3, 4, 7]);
        assert_eq!(sets(240), 7);
        assert_eq!((open_sets(3, 3, 8), open_sets(10, 1, 4), open_sets(10, 0, 4)), (1, 4, 1));
    }

    fn candidates(free: impl Fn(u16) -> u64, count: u16) -> Vec<TargetCandidate> {
        let candidate =
            |id| TargetCandidate { id: TargetId(id), free: free(id), domain: None, state: TargetState::Up, load: None };
        (0..count).map(candidate).collect()
    }

    /// Places sets one after the other; returns the chunks that each target has in the end.
    fn chunks(candidates: &[TargetCandidate], sets: u64) -> Vec<usize> {
        let rules = Rules { width: 6, spare: 2, domain_level: None, need: 1 };
        let mut used: Vec<TargetId> = Vec::new();
        for set in 0..sets {
            let places = place(&Spread { policy: &Random { seed: 3 }, used: &used }, candidates, &rules, SetId(set));
            used.extend(places.into_iter().flatten());
        }
        candidates.iter().map(|target| used.iter().filter(|&&id| id == target.id).count()).collect()
    }

    #[test]
    fn the_sets_of_a_writer_are_on_different_targets() {
        assert_eq!(chunks(&candidates(|_| 1 << 40, 12), 2), [1; 12]);
        assert_eq!(chunks(&candidates(|_| 1 << 40, 8), 4), [3; 8]);
        // Four of ten have twice the space.
        let counts = chunks(&candidates(|id| if id < 4 { 2 << 40 } else { 1 << 40 }, 10), 35);
        let (large, small) = counts.split_at(4);
        assert!(large.iter().all(|&count| count >= 28) && small.iter().all(|&count| count <= 17), "{counts:?}");
    }
}
