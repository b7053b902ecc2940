//! More chunks of a set that has some already: in a repair, or block by block.

use super::Placer;
use crate::placement::adaptive::{chance_of, take_turns};
use crate::placement::choose::least_limit;
use crate::placement::lottery::Lottery;
use crate::placement::policies::mix;
use crate::{SetId, TargetId};

impl Placer {
    /// Whether a target takes chunks and has the space for one.
    pub fn can_take(&self, id: TargetId) -> bool {
        self.by_id.get(id).is_some_and(|&index| self.members[index].usable)
    }

    /// Chooses targets for `count` chunks of a set that has others on `there`: none of those, and
    /// with their domains counted, as [`place_more`](crate::placement::place_more) does. Fewer if
    /// there are not enough. Counts what they get.
    pub fn place_more(&mut self, set: SetId, count: usize, there: &[TargetId]) -> Vec<TargetId> {
        let mut members: Vec<usize> = there.iter().filter_map(|id| self.by_id.get(*id).copied()).collect();
        members.sort_unstable();
        members.dedup();
        let mut taken: Vec<(usize, usize)> = Vec::with_capacity(members.len());
        for group in members.iter().map(|&member| self.lottery.group(member)) {
            match taken.iter_mut().find(|(known, _)| *known == group) {
                Some((_, chunks)) => *chunks += 1,
                None => taken.push((group, 1)),
            }
        }
        let limit = self.limit_beside(&members, &taken, count);
        let taken_of = |group: usize| taken.iter().find(|(known, _)| *known == group).map_or(0, |(_, chunks)| *chunks);
        let room = |group: usize| limit.saturating_sub(taken_of(group));
        // Moved out, so that the turns can be looked at meanwhile.
        let mut lottery = std::mem::replace(&mut self.lottery, Lottery::new(&[]));
        let weights: Vec<(usize, u64)> = members.iter().map(|&member| (member, lottery.weight(member))).collect();
        members.iter().for_each(|&member| lottery.set_weight(member, 0));
        let full = || taken.iter().map(|(group, _)| *group).filter(|&group| room(group) == 0);
        full().for_each(|group| lottery.close(group, true));
        // Other draws for each block of a set that is placed one by one.
        let draws = (mix(chance_of(self.policy.seed, set), there.len() as u64), self.policy.tuning.draws);
        let turn = |index: usize| self.turn(index);
        let chosen = take_turns(&mut lottery, draws, count, room, turn);
        full().for_each(|group| lottery.close(group, false));
        weights.into_iter().for_each(|(member, weight)| lottery.set_weight(member, weight));
        self.lottery = lottery;
        self.count(&chosen);
        chosen.into_iter().map(|index| self.members[index].id).collect()
    }

    /// The chunks of the set that a domain may have in the end.
    fn limit_beside(&self, members: &[usize], taken: &[(usize, usize)], count: usize) -> usize {
        let least = self.rules.spare.max(1);
        let is_taken = |group: usize| taken.iter().any(|(known, _)| *known == group);
        let untouched = self.usable_in.iter().enumerate().filter(|(group, usable)| **usable > 0 && !is_taken(*group));
        // One in each of them: no sum is needed, as nearly always.
        if untouched.take(count).count() == count {
            return least;
        }
        let mut targets_in = self.usable_in.clone();
        let usable = members.iter().filter(|&&member| self.members[member].usable);
        usable.for_each(|&member| targets_in[self.lottery.group(member)] -= 1);
        let mut taken_in = vec![0; targets_in.len()];
        taken.iter().for_each(|&(group, chunks)| taken_in[group] = chunks);
        least_limit(&targets_in, &taken_in, count, least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::TargetState;
    use crate::placement::{Rules, TargetCandidate, Tuning, place_more};
    use crate::repair::{Degraded, destinations_by};
    use crate::{Domain, Position};
    use std::collections::BTreeMap;

    fn candidate(id: u16, racks: u16) -> TargetCandidate {
        TargetCandidate {
            id: TargetId(id),
            free: 1 << 40,
            total: 1 << 40,
            domain: format!("rack{}/host{id}", id % racks).parse().ok(),
            state: TargetState::Up,
            load: None,
        }
    }

    fn placer(targets: &[TargetCandidate], width: usize, spare: usize) -> Placer {
        let rules = Rules { width, spare, domain_level: Some(1), need: 1 };
        let mut placer = Placer::new(rules, Tuning::default(), 5);
        placer.handle_members(targets);
        placer
    }

    /// Any chunks there, any number more, few racks and many: as many as the policy finds, and the
    /// fullest rack no fuller.
    #[test]
    fn more_chunks_obey_the_rule_as_the_policy_does() {
        let mut random = fastrand::Rng::with_seed(8);
        for round in 0..2000 {
            let (racks, width, spare) = (random.u16(1..8), random.usize(2..9), random.usize(0..4));
            let mut targets: Vec<TargetCandidate> = (0..random.u16(2..24)).map(|id| candidate(id, racks)).collect();
            for target in &mut targets {
                target.state = [TargetState::Up, TargetState::Up, TargetState::Down][random.usize(0..3)];
            }
            let mut placer = placer(&targets, width, spare);
            let mut all: Vec<TargetId> = targets.iter().map(|target| target.id).collect();
            random.shuffle(&mut all);
            let there = &all[..random.usize(0..width.min(all.len()))];
            let count = width - there.len();
            let with_domains: Vec<(TargetId, Option<Domain>)> =
                there.iter().map(|&id| (id, targets[usize::from(id.0)].domain.clone())).collect();
            let rules = Rules { width, spare, domain_level: Some(1), need: 1 };
            let set = SetId(round);
            let expected = place_more(&placer.policy, &placer.candidates(), &rules, set, count, &with_domains);
            let found = placer.place_more(set, count, there);
            assert_eq!(found.len(), expected.len(), "{racks} {width} {spare} {there:?}");
            assert!(found.iter().all(|id| !there.contains(id) && placer.can_take(*id)));
            let fullest = |of: &[TargetId]| {
                let mut counts = BTreeMap::new();
                there.iter().chain(of).for_each(|id| *counts.entry(id.0 % racks).or_insert(0) += 1);
                counts.into_values().max().unwrap_or(0)
            };
            assert!(fullest(&found) <= fullest(&expected).max(spare.max(1)), "{found:?} {expected:?} {there:?}");
            let mut distinct = found.clone();
            distinct.sort();
            distinct.dedup();
            assert_eq!(distinct.len(), found.len());
        }
    }

    /// Nothing is left closed or without weight: all targets get their part afterwards.
    #[test]
    fn the_next_sets_know_nothing_of_it() {
        let targets: Vec<TargetCandidate> = (0..12).map(|id| candidate(id, 6)).collect();
        let mut placer = placer(&targets, 4, 1);
        let mut counts = [0; 12];
        for set in (0..900).map(SetId) {
            let mut blocks: Vec<TargetId> = Vec::new();
            while blocks.len() < 4 {
                let next = placer.place_more(set, 1, &blocks);
                assert_eq!(next.len(), 1);
                blocks.extend(next);
            }
            blocks.iter().for_each(|id| counts[usize::from(id.0)] += 1);
        }
        assert!(counts.iter().all(|count| (297..=303).contains(count)), "{counts:?}");
    }

    #[test]
    fn repair_goes_back_or_to_a_stranger() {
        let mut targets: Vec<TargetCandidate> = (0..8).map(|id| candidate(id, 8)).collect();
        targets[1].state = TargetState::Out;
        let mut placer = placer(&targets, 4, 1);
        let places = (0..4).map(|id| Some(TargetId(id))).collect();
        let degraded = Degraded { set: SetId(3), places, lost: [1, 2].map(Position).to_vec() };
        let found = destinations_by(&degraded, &mut placer);
        assert!(found[0].is_some_and(|id| id.0 >= 4) && found[1] == Some(TargetId(2)), "{found:?}");
        for id in 4..8 {
            placer.handle_state(TargetId(id), TargetState::Down);
        }
        assert_eq!(destinations_by(&degraded, &mut placer), [None, Some(TargetId(2))]);
    }
}
