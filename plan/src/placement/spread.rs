//! Several sets at once: how many a writer needs so that all targets work for it and for those who
//! read what it wrote, and where each goes beside the others.

use super::candidate::TargetCandidate;
use super::policy::{Policy, View};
use super::score::Parts;
use super::{Rules, place};
use crate::{SetId, TargetId};

/// As another policy, but targets that the writer's other open sets are on come later: a target of
/// two of them has twice the work, and both sets wait for it.
struct Spread<'a> {
    /// Orders targets with the same number of chunks.
    policy: &'a dyn Policy,
    /// The targets of the writer's other open sets, one for each chunk.
    used: Vec<TargetId>,
    /// Those of chunks with data.
    data: Vec<TargetId>,
    /// Chunks of a set with parity.
    parity: usize,
}

/// Crowds that differ by less than such a part of a chunk are the same: free space is never quite
/// equal.
const CROWD_PARTS: f64 = 4.0;

impl Policy for Spread<'_> {
    fn rank(&self, view: &View<'_>, set: SetId, width: usize) -> Vec<usize> {
        let mut ranked = self.policy.rank(view, set, width);
        if !self.used.is_empty() {
            let chunks = |id: TargetId| self.used.iter().filter(|&&used| used == id).count();
            // One with half the space has half the chunks.
            let most = view.targets.iter().map(|target| target.free).max().unwrap_or(1).max(1);
            let scores = self.policy.scores(view);
            // A busy one comes later: with a quarter of a share, its first chunk where others have
            // their fourth, and its second where they have their eighth. Sets on it stay open for
            // longer, so they would soon be most of those of the writer.
            let times = |index: usize| scores.as_ref().map_or(1.0, |all| (1.0 / all[index].share).floor().max(1.0));
            let crowd = |index: &usize| {
                let target = &view.targets[*index];
                ((chunks(target.id) + 1) as f64 * times(*index) - 1.0) * (most as f64 / target.free.max(1) as f64)
            };
            let crowd = |index: &usize| (crowd(index) * CROWD_PARTS).round() as u64;
            ranked.sort_by_cached_key(crowd);
            let mut taken = 0;
            for alike in ranked.chunk_by_mut(|a, b| crowd(a) == crowd(b)) {
                if taken < width && taken + alike.len() > width {
                    self.choose_for_data(view, alike, width - taken);
                }
                taken += alike.len();
            }
        }
        ranked
    }

    fn scores(&self, view: &View<'_>) -> Option<Vec<Parts>> {
        self.policy.scores(view)
    }
}

impl Spread<'_> {
    /// Puts those first that are chosen, `wanted` of targets with the same number of chunks: for
    /// the data those that have the least data, and for parity those that have the most. So after
    /// some sets all have the same.
    fn choose_for_data(&self, view: &View<'_>, alike: &mut [usize], wanted: usize) {
        let data = |index: &usize| self.data.iter().filter(|&&id| id == view.targets[*index].id).count();
        alike.sort_by_cached_key(data);
        let parity = self.parity.min(wanted);
        let rest = &mut alike[wanted - parity..];
        rest.sort_by_cached_key(|index| std::cmp::Reverse(data(index)));
    }
}

/// The targets of a new set, by position, as [`place`] chooses them, but rather not those of the
/// writer's other open sets, `beside`. The `data` first positions have the data: they go to the
/// targets that have the least data of those sets, since reads need data and no parity.
pub fn place_beside(
    policy: &dyn Policy,
    candidates: &[TargetCandidate],
    rules: &Rules,
    set: SetId,
    data: usize,
    beside: &[Vec<Option<TargetId>>],
) -> Vec<Option<TargetId>> {
    let used = beside.iter().flatten().flatten().copied().collect();
    let with_data: Vec<TargetId> = beside.iter().flat_map(|set| set.iter().take(data)).flatten().copied().collect();
    let data_chunks = |id| with_data.iter().filter(|&&has| has == id).count();
    let parity = rules.width.saturating_sub(data);
    let mut places = place(&Spread { policy, used, data: with_data.clone(), parity }, candidates, rules, set);
    if !beside.is_empty() {
        places.sort_by_cached_key(|place| place.map_or(usize::MAX, data_chunks));
    }
    places
}

/// How many sets of `blocks` chunks, of which `data` have data, a writer fills at the same time,
/// `most` at most. The busiest of the `targets` has little more to do than the others: with sets
/// one after the other, only the targets of one work for the writer, and only those with data for a
/// reader.
pub fn open_sets(targets: usize, blocks: usize, data: usize, most: usize) -> usize {
    if targets < blocks || blocks == 0 {
        return 1;
    }
    // The part of all targets' speed that somebody gets who uses so many chunks of each set: the
    // busiest target has a chunk of this many sets.
    let part = |sets: usize, chunks: usize| {
        let all = sets * chunks;
        all as f64 / (targets * all.div_ceil(targets)).max(1) as f64
    };
    let parts = |sets: usize| part(sets, blocks) * part(sets, data);
    let best = (1..=most.max(1)).map(parts).fold(0.0, f64::max);
    (1..=most).find(|&sets| parts(sets) >= GOOD_PART * best).unwrap_or(1)
}

/// More open sets are not worth it for a smaller gain.
const GOOD_PART: f64 = 0.85;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::TargetState;
    use crate::placement::{Adaptive, Load, Random};

    #[test]
    fn as_many_sets_as_keep_all_targets_busy() {
        let sets = |targets| open_sets(targets, 6, 4, 12);
        assert_eq!([0, 5, 6, 7, 8, 9, 10, 12, 18, 24, 48].map(sets), [1, 1, 3, 7, 4, 6, 5, 6, 9, 12, 8]);
        assert_eq!(sets(240), 12);
        assert_eq!((open_sets(3, 3, 2, 8), open_sets(10, 1, 1, 4), open_sets(10, 0, 0, 4)), (3, 4, 1));
    }

    fn candidates(free: impl Fn(u16) -> u64, count: u16) -> Vec<TargetCandidate> {
        let candidate = |id| TargetCandidate {
            id: TargetId(id),
            free: free(id),
            total: 0,
            domain: None,
            state: TargetState::Up,
            load: None,
        };
        (0..count).map(candidate).collect()
    }

    /// Places sets one after the other; returns the chunks that each target has in the end, and
    /// those with data.
    fn chunks(candidates: &[TargetCandidate], sets: u64) -> [Vec<usize>; 2] {
        let rules = Rules { width: 6, spare: 2, domain_level: None, need: 1 };
        let mut beside = Vec::new();
        for set in 0..sets {
            beside.push(place_beside(&Random { seed: 3 }, candidates, &rules, SetId(set), 4, &beside));
        }
        [6, 4].map(|first| {
            let of = |id| beside.iter().filter(|set| set[..first].contains(&Some(id))).count();
            candidates.iter().map(|target| of(target.id)).collect()
        })
    }

    #[test]
    fn the_sets_of_a_writer_are_on_different_targets() {
        assert_eq!(chunks(&candidates(|_| 1 << 40, 12), 2)[0], [1; 12]);
        assert_eq!(chunks(&candidates(|_| 1 << 40, 8), 4), [[3; 8], [2; 8]]);
        assert_eq!(chunks(&candidates(|_| 1 << 40, 6), 3), [[3; 6], [2; 6]]);
        // Free space is never quite equal.
        for free in [|_| 1 << 40, |id| (1 << 40) + ((u64::from(id) * 7919 % 24) << 20)] {
            for (targets, sets) in [(12, 6), (24, 12)] {
                let [all, data] = chunks(&candidates(free, targets), sets);
                assert!(
                    all.iter().all(|&count| count == 3) && data.iter().all(|&count| count == 2),
                    "{all:?} {data:?}"
                );
            }
        }
        // Four of ten have twice the space.
        let [counts, _] = chunks(&candidates(|id| if id < 4 { 2 << 40 } else { 1 << 40 }, 10), 35);
        let (large, small) = counts.split_at(4);
        assert!(large.iter().all(|&count| count >= 28) && small.iter().all(|&count| count <= 17), "{counts:?}");
    }

    /// A writer replaces sets that are full: those without slow targets, since these fill first.
    /// The slow ones must not come to be in all of its sets.
    #[test]
    fn the_sets_of_a_writer_do_not_all_wait_for_slow_targets() {
        let slow = Load { temperature: 10.0, idle: 0.05, ..Load::default() };
        let fast = Load { idle: 0.9, ..slow };
        let load = |id: u16| Some(if id < 4 { slow } else { fast });
        let targets: Vec<TargetCandidate> = candidates(|_| 1 << 40, 16)
            .into_iter()
            .map(|target| TargetCandidate { load: load(target.id.0), total: 4 << 40, ..target })
            .collect();
        let rules = Rules { width: 8, spare: 2, domain_level: None, need: 1 };
        let waits = |set: &[Option<TargetId>]| set.iter().flatten().any(|id| id.0 < 4);
        let mut open: Vec<Vec<Option<TargetId>>> = Vec::new();
        for set in 0..200 {
            if open.len() == 8 {
                let full = open.iter().position(|set| !waits(set)).expect("a set is fast");
                open.remove(full);
            }
            let places = place_beside(&Adaptive::default(), &targets, &rules, SetId(set), 6, &open);
            open.push(places);
        }
        let slow = open.iter().filter(|set| waits(set)).count();
        assert!((1..=4).contains(&slow), "{slow} of 8");
    }

    /// Writers that know nothing of each other do not all turn to the emptiest target for their
    /// second set.
    #[test]
    fn the_second_sets_of_many_writers_are_on_all_targets() {
        let rules = Rules { width: 6, spare: 2, domain_level: None, need: 1 };
        let targets = candidates(|id| (1 << 40) + (u64::from(id) << 30), 100);
        for policy in [&Random { seed: 3 } as &dyn Policy, &Adaptive::default()] {
            let mut counts = [0; 100];
            for writer in 0..400 {
                let mut beside = Vec::new();
                for set in [2 * writer, 2 * writer + 1] {
                    beside.push(place_beside(policy, &targets, &rules, SetId(set), 4, &beside));
                }
                beside.iter().flatten().flatten().for_each(|id| counts[usize::from(id.0)] += 1);
            }
            assert!(counts.iter().all(|count| (20..=80).contains(count)), "{counts:?}");
        }
    }
}
