//! What is rebuilt first, and where it goes.

use crate::placement::{Placer, Policy, Rules, TargetCandidate, place_more};
use crate::{Domain, Position, SetId, TargetId};
use std::time::Duration;

/// A chunk set that lacks blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Degraded {
    /// The chunk set.
    pub set: SetId,
    /// Where its chunks are, by position.
    pub places: Vec<Option<TargetId>>,
    /// The positions that must be rebuilt.
    pub lost: Vec<Position>,
}

/// The order of repair: the set that survives the fewest further losses first, then the older set.
pub fn order(sets: &mut [Degraded]) {
    sets.sort_by_key(|degraded| (std::cmp::Reverse(degraded.lost.len()), degraded.set));
}

/// Where each lost position goes, in the order of `lost`: back to its own target if that is a
/// candidate, else to one that has no chunk of the set, by the policy and the rules; None if no
/// target is left. `domain_of` knows all targets, also those that take no data.
pub fn destinations(
    degraded: &Degraded,
    policy: &dyn Policy,
    candidates: &[TargetCandidate],
    rules: &Rules,
    domain_of: impl Fn(TargetId) -> Option<Domain>,
) -> Vec<Option<TargetId>> {
    let is_candidate = |id: &TargetId| candidates.iter().any(|c| c.id == *id);
    let own = |position: Position| degraded.places[position.index()].filter(is_candidate);
    // Those that go back count like those that never left.
    let stays = |(position, _): &(Position, TargetId)| !degraded.lost.contains(position) || own(*position).is_some();
    let there = Position::placed(&degraded.places).filter(stays);
    let there: Vec<(TargetId, Option<Domain>)> = there.map(|(_, id)| (id, domain_of(id))).collect();
    let others: Vec<TargetCandidate> =
        candidates.iter().filter(|c| !degraded.places.contains(&Some(c.id))).cloned().collect();
    let homeless = degraded.lost.iter().filter(|&&position| own(position).is_none()).count();
    let mut spare = place_more(policy, &others, rules, degraded.set, homeless, &there).into_iter();
    degraded.lost.iter().map(|&position| own(position).or_else(|| spare.next())).collect()
}

/// As [`destinations`] by adaptive placement, of a placer that knows all targets and counts what
/// they get. It costs some draws and no look at every target.
pub fn destinations_by(degraded: &Degraded, placer: &mut Placer) -> Vec<Option<TargetId>> {
    let own = |placer: &Placer, position: Position| degraded.places[position.index()].filter(|id| placer.can_take(*id));
    let back: Vec<Option<TargetId>> = degraded.lost.iter().map(|&position| own(placer, position)).collect();
    let stays = |(position, id): &(Position, TargetId)| !degraded.lost.contains(position) || back.contains(&Some(*id));
    let there: Vec<TargetId> = Position::placed(&degraded.places).filter(stays).map(|(_, id)| id).collect();
    let homeless = back.iter().filter(|own| own.is_none()).count();
    let returned: Vec<TargetId> = back.iter().flatten().copied().collect();
    placer.handle_placed(&returned);
    let mut spare = placer.place_more(degraded.set, homeless, &there).into_iter();
    back.into_iter().map(|own| own.or_else(|| spare.next())).collect()
}

/// How many sets of `blocks` blocks are repaired at a time on `targets` targets: two for each set
/// that the targets can hold side by side, so that some are read while others are written. A limit
/// protects the memory of the repairing process.
pub fn at_a_time(targets: usize, blocks: usize) -> usize {
    const MAX_REPAIRS: usize = 16;
    (2 * targets / blocks.max(1)).clamp(1, MAX_REPAIRS)
}

/// How long the rest takes at the present rate; None while nothing is done, or there is nothing to
/// do.
pub fn time_left(done: u64, total: u64, elapsed: Duration) -> Option<Duration> {
    if done == 0 || total == 0 {
        return None;
    }
    let left = elapsed.as_secs_f64() * total.saturating_sub(done) as f64 / done as f64;
    Duration::try_from_secs_f64(left).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::TargetState;
    use crate::placement::Random;

    fn id(n: u16) -> Option<TargetId> {
        Some(TargetId(n))
    }

    fn candidate(n: u16, domain: Option<Domain>) -> TargetCandidate {
        TargetCandidate { id: TargetId(n), free: 10, total: 0, domain, state: TargetState::Up, load: None }
    }

    const RULES: Rules = Rules { width: 4, spare: 1, domain_level: None, need: 1 };

    #[test]
    fn the_end_is_estimated_from_what_is_done() {
        let elapsed = Duration::from_secs(30);
        assert_eq!(time_left(0, 100, elapsed), None);
        assert_eq!(time_left(0, 0, elapsed), None);
        assert_eq!(time_left(25, 100, elapsed), Some(Duration::from_secs(90)));
        assert_eq!(time_left(120, 100, elapsed), Some(Duration::ZERO));
        assert_eq!(time_left(1, u64::MAX, Duration::MAX), None);
    }

    #[test]
    fn more_targets_repair_more_sets_at_a_time() {
        let all = [(0, 6), (6, 6), (7, 6), (12, 6), (1000, 6), (3, 1), (5, 0)];
        assert_eq!(all.map(|(targets, blocks)| at_a_time(targets, blocks)), [1, 2, 2, 4, 16, 6, 10]);
    }

    #[test]
    fn repair_goes_back_or_to_a_stranger() {
        let lost = [1, 2, 3].map(Position).to_vec();
        let degraded = Degraded { set: SetId(3), places: vec![id(0), id(1), id(2), None], lost };
        let candidates = [0, 2, 5].map(|n| candidate(n, None));
        let found = destinations(&degraded, &Random::default(), &candidates, &RULES, |_| None);
        assert_eq!(found, [id(5), id(2), None]);
    }

    /// Also the chunks count that are on targets which take no data any more.
    #[test]
    fn repair_goes_where_the_domain_has_no_other_chunk() {
        let rack = |id: TargetId| format!("rack{}", id.0 % 5).parse::<Domain>().ok();
        let degraded = Degraded { set: SetId(3), places: (0..4).map(id).collect(), lost: vec![Position(1)] };
        let candidates: Vec<TargetCandidate> =
            [5, 7, 8, 10, 11, 13].map(|n| candidate(n, rack(TargetId(n)))).into_iter().collect();
        for set in 0..50 {
            let degraded = Degraded { set: SetId(set), ..degraded.clone() };
            let found = destinations(&degraded, &Random::default(), &candidates, &RULES, rack);
            assert_eq!(found, [id(11)], "only that is in the rack of the lost one");
        }
    }

    #[test]
    fn the_least_redundant_comes_first() {
        let degraded = |set, lost: &[Position]| Degraded { set, places: vec![None; 4], lost: lost.to_vec() };
        let all = [0, 1, 2].map(Position);
        let mut sets = [degraded(SetId(1), &all[..1]), degraded(SetId(3), &all[..2]), degraded(SetId(2), &all[1..])];
        order(&mut sets);
        assert_eq!(sets.map(|d| d.set), [2, 3, 1].map(SetId));
    }
}
