//! Several blocks of a set on one target: where a volume may have fewer targets than its code has
//! blocks. It is the last line of ECFS's Algorithm 1 (Yan et al., IEEE CLUSTER 2013, section IV).
//!
//! [`place`](super::place) and [`place_more`](super::place_more) come first, and put no two blocks
//! on one target. What they leave without a target is shared out here, as evenly as can be.

use super::TargetCandidate;
use super::choose::{Place, Rules, is_usable, place_of};
use super::policies::mix;
use crate::repair::Degraded;
use crate::{Domain, Position, SetId, TargetId};
use std::collections::BTreeMap;

/// The most blocks of a set of `width` that a target has where they are shared evenly by `targets`
/// targets: 1 where there are enough.
pub fn most_on_one(width: usize, targets: usize) -> usize {
    width.div_ceil(targets.max(1)).max(1)
}

/// How many targets can be lost, whichever they are, when `spare` blocks can: the targets of the
/// blocks that are left, one for each block.
pub fn targets_survived(places: impl IntoIterator<Item = TargetId>, spare: usize) -> usize {
    let mut left = spare;
    let fits = |count: &usize| {
        let fits = *count <= left;
        left -= if fits { *count } else { 0 };
        fits
    };
    fullest(places).into_iter().take_while(fits).count()
}

/// How many blocks of a stripe domains with these numbers of targets can take, at most `most` each.
pub fn taken_by_domains(targets: impl IntoIterator<Item = usize>, most: usize) -> usize {
    targets.into_iter().map(|targets| targets.min(most)).sum()
}

/// How many of `targets` targets that share `width` blocks evenly can be lost, whichever they are,
/// when `spare` blocks can.
pub fn survived_when_shared(width: usize, targets: usize, spare: usize) -> usize {
    targets_survived((0..width).map(|block| TargetId((block % targets.max(1)) as u16)), spare)
}

/// The blocks of a stripe that must be written before it counts, so that `spare` targets can be
/// lost; k of them are data, and any `tolerates` can be computed from the others. Where targets
/// have several blocks, those that are lost may be the ones with the most. If the places allow no
/// such loss, as many targets as can be.
pub fn blocks_needed(places: &[Option<TargetId>], k: usize, tolerates: usize, spare: usize) -> usize {
    let need = k + spare;
    if !is_shared(places) {
        return need;
    }
    let there = || places.iter().flatten().copied();
    let survived = targets_survived(there(), tolerates).min(spare);
    let on_them: usize = fullest(there()).into_iter().take(survived).sum();
    need.max(places.len() - tolerates + on_them)
}

/// Whether some target has several blocks.
pub fn is_shared(places: &[Option<TargetId>]) -> bool {
    places.iter().enumerate().any(|(at, place)| place.is_some() && places[..at].contains(place))
}

/// The blocks of each target, the most first.
fn fullest(places: impl IntoIterator<Item = TargetId>) -> Vec<usize> {
    let mut counts = BTreeMap::<TargetId, usize>::new();
    places.into_iter().for_each(|id| *counts.entry(id).or_default() += 1);
    let mut counts: Vec<usize> = counts.into_values().collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    counts
}

/// Gives positions of a new set that have no target to targets that have others, up to `most` of
/// them on one.
pub fn share(places: &mut [Option<TargetId>], candidates: &[TargetCandidate], rules: &Rules, set: SetId, most: usize) {
    let open: Vec<Position> = Position::all(places.len()).filter(|at| places[at.index()].is_none()).collect();
    let domain = |id| candidates.iter().find(|it| it.id == id).and_then(|it| it.domain.clone());
    let mut new = places.iter().flatten().copied().collect();
    fill(places, &open, &mut new, candidates, rules, set, most, domain);
}

/// The same in a repair: for the lost positions to which
/// [`destinations`](crate::repair::destinations) gave no target. `chosen` is in the order of
/// `lost`.
pub fn share_lost(
    degraded: &Degraded,
    chosen: &mut [Option<TargetId>],
    candidates: &[TargetCandidate],
    rules: &Rules,
    most: usize,
    domain_of: impl Fn(TargetId) -> Option<Domain>,
) {
    let mut places = degraded.places.clone();
    degraded.lost.iter().zip(chosen.iter()).for_each(|(at, place)| places[at.index()] = *place);
    let open: Vec<Position> = degraded.lost.iter().copied().filter(|at| places[at.index()].is_none()).collect();
    let mut new = chosen.iter().flatten().copied().collect();
    fill(&mut places, &open, &mut new, candidates, rules, degraded.set, most, domain_of);
    degraded.lost.iter().zip(chosen).for_each(|(at, place)| *place = places[at.index()]);
}

/// Fills the open positions one after the other: each goes to the target with the fewest blocks of
/// the set, of those to a domain with the fewest, and then by chance. `new` are the targets of
/// chunks that are not written yet, for which there must be space.
#[allow(clippy::too_many_arguments, reason = "what is known of a set and of targets, in one place")]
fn fill(
    places: &mut [Option<TargetId>],
    open: &[Position],
    new: &mut Vec<TargetId>,
    candidates: &[TargetCandidate],
    rules: &Rules,
    set: SetId,
    most: usize,
    domain_of: impl Fn(TargetId) -> Option<Domain>,
) {
    for position in open {
        let there: Vec<(TargetId, Option<Domain>)> = places.iter().flatten().map(|id| (*id, domain_of(*id))).collect();
        let on = |id: TargetId| there.iter().filter(|(other, _)| *other == id).count();
        let beside = |place: Place<'_>| {
            let is_same = |(id, domain): &&(TargetId, Option<Domain>)| {
                place_of(*id, domain.as_ref(), rules.domain_level) == place
            };
            there.iter().filter(is_same).count()
        };
        let has_space = |target: &&TargetCandidate| {
            let chunks = new.iter().filter(|id| **id == target.id).count() as u64 + 1;
            is_usable(target, rules.need.saturating_mul(chunks)) && on(target.id) < most
        };
        let rank = |target: &&TargetCandidate| {
            let place = place_of(target.id, target.domain.as_ref(), rules.domain_level);
            (on(target.id), beside(place), mix(set.0, u64::from(target.id.0)))
        };
        let next = candidates.iter().filter(has_space).min_by_key(rank).map(|target| target.id);
        places[position.index()] = next;
        new.extend(next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::TargetState;
    use crate::placement::{Random, place};

    fn targets(count: u16, free: u64) -> Vec<TargetCandidate> {
        let target = |id| TargetCandidate {
            id: TargetId(id),
            free,
            total: 100,
            domain: None,
            state: TargetState::Up,
            load: None,
        };
        (0..count).map(target).collect()
    }

    const RULES: Rules = Rules { width: 6, spare: 2, domain_level: None, need: 10 };

    fn shared(candidates: &[TargetCandidate], set: u64, most: usize) -> Vec<Option<TargetId>> {
        let mut places = place(&Random { seed: 5 }, candidates, &RULES, SetId(set));
        share(&mut places, candidates, &RULES, SetId(set), most);
        places
    }

    fn counts(places: &[Option<TargetId>]) -> Vec<usize> {
        fullest(places.iter().flatten().copied())
    }

    #[test]
    fn blocks_are_shared_evenly_and_only_where_targets_are_missing() {
        for (there, expected) in [(1, vec![6]), (2, vec![3, 3]), (3, vec![2; 3]), (4, vec![2, 2, 1, 1])] {
            for set in 0..20 {
                let most = most_on_one(6, there.into());
                assert_eq!(counts(&shared(&targets(there, 100), set, most)), expected);
            }
        }
        assert_eq!(
            (counts(&shared(&targets(5, 100), 1, 2)), counts(&shared(&targets(9, 100), 1, 2))),
            (vec![2, 1, 1, 1, 1], vec![1; 6])
        );
        assert_eq!([0, 1, 5, 6, 7].map(|targets| most_on_one(6, targets)), [6, 6, 2, 1, 1]);
    }

    /// The second block is not always that of the same target.
    #[test]
    fn all_targets_get_their_part() {
        let mut all = [0; 4];
        for set in 0..1000 {
            let places = shared(&targets(4, 100), set, 2);
            places.iter().flatten().for_each(|id| all[usize::from(id.0)] += 1);
        }
        assert!(all.iter().all(|count| (1350..=1650).contains(count)), "{all:?}");
    }

    /// One of three is away: the others get no more than their part, and the rest waits for it.
    #[test]
    fn what_is_away_keeps_its_part() {
        let mut three = targets(3, 100);
        three[1].state = TargetState::Down;
        let places = shared(&three, 1, 2);
        assert_eq!((counts(&places), places.iter().flatten().count()), (vec![2, 2], 4));
        assert_eq!(counts(&shared(&targets(3, 19), 1, 2)), [1; 3], "there is no space for two");
    }

    #[test]
    fn losses_are_counted_by_targets() {
        let ids = |places: &[u16]| places.iter().map(|id| TargetId(*id)).collect::<Vec<_>>();
        let survived = |places: &[u16], spare| targets_survived(ids(places), spare);
        assert_eq!(survived(&[0, 1, 2, 3, 4, 5], 2), 2);
        assert_eq!((survived(&[0, 0, 1, 1, 2, 2], 2), survived(&[0, 0, 1, 1, 2, 2], 1)), (1, 0));
        assert_eq!((survived(&[0, 0, 1, 2, 3, 4], 2), survived(&[0, 0, 1, 2, 3, 4], 3)), (1, 2));
        assert_eq!((survived(&[0, 0, 0], 2), survived(&[], 3), survived(&[1], 0)), (0, 0, 0));
        assert_eq!([1, 2, 3, 4, 5, 6].map(|targets| survived_when_shared(6, targets, 2)), [0, 0, 1, 1, 1, 2]);
        assert!(is_shared(&[None, Some(TargetId(1)), None, Some(TargetId(1))]));
        assert!(!is_shared(&[None, Some(TargetId(1)), None, Some(TargetId(0))]));
    }

    #[test]
    fn what_counts_as_written_survives_by_targets() {
        let places = |ids: &[u16]| ids.iter().map(|id| Some(TargetId(*id))).collect::<Vec<_>>();
        let needed = |ids: &[u16], spare| blocks_needed(&places(ids), 4, 2, spare);
        assert_eq!([0, 1, 2].map(|spare| needed(&[0, 1, 2, 3, 4, 5], spare)), [4, 5, 6]);
        // The target that is lost may have two.
        assert_eq!([0, 1, 2].map(|spare| needed(&[0, 0, 1, 1, 2, 2], spare)), [4, 6, 6]);
        assert_eq!([0, 1, 2].map(|spare| needed(&[0, 0, 1, 2, 3, 4], spare)), [4, 6, 6]);
        // Nothing is survived; and a target that is away leaves too few for what was asked.
        assert_eq!(needed(&[0, 0, 0, 1, 1, 1], 1), 5);
        let away = [Some(TargetId(0)), Some(TargetId(0)), Some(TargetId(1)), Some(TargetId(1)), None, None];
        assert_eq!(blocks_needed(&away, 4, 2, 1), 6);
    }

    /// A target is gone for good: its blocks go to those that are left, as many as they may have.
    #[test]
    fn a_repair_shares_what_has_no_target() {
        let places = [0, 0, 1, 1, 2, 2].map(|id| Some(TargetId(id))).to_vec();
        let degraded = Degraded { set: SetId(1), places, lost: vec![Position(2), Position(3)] };
        let left: Vec<TargetCandidate> = targets(3, 100).into_iter().filter(|target| target.id.0 != 1).collect();
        let mut chosen = vec![None; 2];
        share_lost(&degraded, &mut chosen, &left, &RULES, 2, |_| None);
        assert_eq!(chosen, [None; 2]);
        share_lost(&degraded, &mut chosen, &left, &RULES, 3, |_| None);
        chosen.sort();
        assert_eq!(chosen, [Some(TargetId(0)), Some(TargetId(2))]);
    }

    #[test]
    fn domains_are_even_where_targets_are() {
        let mut four = targets(4, 100);
        for target in &mut four {
            target.domain = format!("rack{}", target.id.0 / 2).parse().ok();
        }
        for set in 0..50 {
            let places = shared(&four, set, 2);
            let in_first = places.iter().flatten().filter(|id| id.0 < 2).count();
            assert_eq!((counts(&places), in_first), (vec![2, 2, 1, 1], 3));
        }
    }
}
