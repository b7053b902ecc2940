//! Algorithm 1 of paper 003 (ECFS), section IV.C, to compare with: the sub-network (L1) with the
//! highest score, in it the server with the highest score that the stripe does not use yet. When
//! the stripe uses all servers of a sub-network, the next sub-network follows.
//!
//! Two places of the paper are read as they must be meant. Line 7 takes the best server of the
//! sub-network in each turn of the loop: the next best one. And line 13, the best server of all if
//! all are used, puts two blocks of a stripe on one server: here the rule of distinct targets
//! leaves that position without one. The paper also says that the algorithm spreads a stripe over
//! failure domains. It does not: it stays in the best sub-network as long as that has servers. Here
//! the rule about domains sees to that.

use super::candidate::TargetCandidate;
use super::policy::{Policy, View};
use super::score::{Coefficients, Parts, Typical};
use crate::{SetId, TargetId};
use std::collections::BTreeMap;

/// Algorithm 1: the next server for a stripe that has `used`, which gets that one, too. Each of the
/// `sub_networks` is sorted, the best server first. The flag says that all servers are used
/// already, and that this is the best of them once more (line 13).
pub fn algorithm_1(sub_networks: &[Vec<(f64, TargetId)>], used: &mut Vec<TargetId>) -> Option<(TargetId, bool)> {
    // The score of a sub-network is the sum of the scores of its servers (section IV.C).
    let score = |servers: &[(f64, TargetId)]| servers.iter().map(|(score, _)| score).sum::<f64>();
    let mut queue: Vec<(f64, &Vec<(f64, TargetId)>)> = sub_networks.iter().map(|l1| (score(l1), l1)).collect();
    queue.sort_by(|a, b| b.0.total_cmp(&a.0));
    for (_, id) in queue.iter().flat_map(|(_, servers)| servers.iter()) {
        if !used.contains(id) {
            used.push(*id);
            return Some((*id, false));
        }
    }
    let best = sub_networks.iter().filter_map(|servers| servers.first()).max_by(|a, b| a.0.total_cmp(&b.0));
    best.map(|(_, id)| (*id, true))
}

/// The score of a sub-network, and its servers with theirs.
type Scored = (f64, Vec<(f64, usize)>);

/// Algorithm 1 as a policy: no guard, and what was reported as it was reported.
#[derive(Clone, Copy, Debug, Default)]
pub struct Prime {
    /// Of the scores.
    pub coefficients: Coefficients,
}

impl Prime {
    fn score(&self, typical: &Typical, target: &TargetCandidate) -> Parts {
        let inputs = typical.reported(target);
        Parts { inputs, score: self.coefficients.score(&inputs), evenness: 1.0, share: 1.0, delay: 0.0, ahead: 0.0 }
    }
}

impl Policy for Prime {
    fn rank(&self, view: &View<'_>, _set: SetId, _width: usize) -> Vec<usize> {
        let typical = Typical::of(view.targets.iter().filter_map(|target| target.load));
        let mut sub_networks: BTreeMap<Option<&str>, Scored> = BTreeMap::new();
        for (index, target) in view.targets.iter().enumerate() {
            let score = self.score(&typical, target).score;
            let name = target.domain.as_ref().map(|domain| domain.at(Some(1)));
            let (sum, servers) = sub_networks.entry(name).or_default();
            *sum += score;
            servers.push((score, index));
        }
        let mut queue: Vec<Scored> = sub_networks.into_values().collect();
        queue.sort_by(|a, b| b.0.total_cmp(&a.0));
        let id = |index: usize| view.targets[index].id;
        for (_, servers) in &mut queue {
            servers.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then_with(|| id(a.1).cmp(&id(b.1))));
        }
        queue.into_iter().flat_map(|(_, servers)| servers).map(|(_, index)| index).collect()
    }

    fn scores(&self, view: &View<'_>) -> Option<Vec<Parts>> {
        let typical = Typical::of(view.targets.iter().filter_map(|target| target.load));
        Some(view.targets.iter().map(|target| self.score(&typical, target)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::TargetState;
    use crate::placement::{Load, Rules, place};

    fn ids(range: std::ops::Range<u16>) -> Vec<TargetId> {
        range.map(TargetId).collect()
    }

    #[test]
    fn the_best_sub_network_first_and_the_best_of_all_at_last() {
        let network = |scores: &[(f64, u16)]| scores.iter().map(|&(score, id)| (score, TargetId(id))).collect();
        // The second has the higher sum, though the best server is in the first.
        let networks: [Vec<(f64, TargetId)>; 2] = [network(&[(0.9, 0), (0.1, 1)]), network(&[(0.6, 2), (0.5, 3)])];
        let mut used = Vec::new();
        let order: Vec<(TargetId, bool)> = (0..5).map(|_| algorithm_1(&networks, &mut used).unwrap()).collect();
        let expected = [(2, false), (3, false), (0, false), (1, false), (0, true)];
        assert_eq!(order, expected.map(|(id, again)| (TargetId(id), again)));
        assert_eq!(used.len(), 4);
        assert_eq!(algorithm_1(&[], &mut used), None);
    }

    /// The policy is the algorithm, block by block.
    #[test]
    fn the_policy_is_algorithm_1() {
        let mut random = fastrand::Rng::with_seed(21);
        for round in 0..300 {
            let targets: Vec<TargetCandidate> = (0..random.u16(1..30))
                .map(|id| TargetCandidate {
                    id: TargetId(id),
                    free: random.u64(0..100),
                    total: 100,
                    domain: Some(format!("net{}/rack{}", random.u8(0..4), random.u8(0..3)).parse().unwrap()),
                    state: TargetState::Up,
                    load: Some(Load {
                        idle: random.f64(),
                        network: random.f64(),
                        temperature: random.f64() * 50.0,
                        ..Load::default()
                    }),
                })
                .collect();
            let prime = Prime::default();
            let view = View { targets: &targets, domains: vec![0; targets.len()], room: vec![99] };
            let scores = prime.scores(&view).unwrap();
            let mut networks: BTreeMap<&str, Vec<(f64, TargetId)>> = BTreeMap::new();
            for (target, parts) in targets.iter().zip(&scores) {
                networks.entry(target.domain.as_ref().unwrap().at(Some(1))).or_default().push((parts.score, target.id));
            }
            let mut networks: Vec<Vec<(f64, TargetId)>> = networks.into_values().collect();
            networks.iter_mut().for_each(|servers| servers.sort_by(|a, b| b.0.total_cmp(&a.0)));
            let mut used = Vec::new();
            while algorithm_1(&networks, &mut used).is_some_and(|(_, again)| !again) {}
            let ranked: Vec<TargetId> =
                prime.rank(&view, SetId(round), 4).into_iter().map(|index| targets[index].id).collect();
            assert_eq!(ranked, used);
        }
    }

    #[test]
    fn all_sets_go_to_the_best_until_the_next_report() {
        let target = |id: u16| TargetCandidate {
            id: TargetId(id),
            free: 50,
            total: 100,
            domain: None,
            state: TargetState::Up,
            load: Some(Load { idle: 1.0 - f64::from(id) / 10.0, ..Load::default() }),
        };
        let targets: Vec<TargetCandidate> = (0..8).map(target).collect();
        let rules = Rules { width: 4, spare: 1, domain_level: None, need: 1 };
        for set in (0..20).map(SetId) {
            let mut placed: Vec<TargetId> =
                place(&Prime::default(), &targets, &rules, set).into_iter().flatten().collect();
            placed.sort();
            assert_eq!(placed, ids(0..4));
        }
    }
}
