//! Why a set goes where it goes: what each target's score is, and which rule or which better target
//! it was passed over for.

use super::candidate::TargetCandidate;
use super::choose::{Outcome, Rules, choose, is_usable, turn_positions};
use super::policy::{Policy, View};
use super::score::Parts;
use crate::membership::TargetState;
use crate::words::bytes;
use crate::{SetId, TargetId};
use serde::Serialize;
use std::collections::HashMap;
use std::fmt;

/// Why a target has a chunk of a set, or none.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// It was the policy's choice.
    Taken {
        /// The position of the set that it has.
        position: usize,
    },
    /// It takes no data.
    NotUp {
        /// How it is.
        state: TargetState,
    },
    /// It has too little space.
    NoSpace {
        /// Bytes that it can still take.
        free: u64,
        /// Bytes that it must have.
        need: u64,
    },
    /// Its domain has as many chunks of the set as it may have.
    DomainFull {
        /// So many.
        most: usize,
    },
    /// The policy wanted others first.
    OthersFirst,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken { position } => write!(f, "taken for position {position}"),
            Self::NotUp { state } => write!(f, "takes no data: it is {}", format!("{state:?}").to_lowercase()),
            Self::NoSpace { free, need } => write!(f, "{} are free, {} are needed", bytes(*free), bytes(*need)),
            Self::DomainFull { most } => write!(f, "its domain has {most} of the set, as many as it may have"),
            Self::OthersFirst => write!(f, "others came first"),
        }
    }
}

/// A target, as the choice for a set saw it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// The target.
    pub id: TargetId,
    /// Its place in the order of the policy, from 0; None for one that no set can go to.
    pub rank: Option<usize>,
    /// Its score; None for one that no set can go to, and if the policy has none.
    pub score: Option<Parts>,
    /// What became of it.
    pub reason: Reason,
}

/// Why a set goes where it goes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// The set.
    pub set: SetId,
    /// The target of each position.
    pub places: Vec<Option<TargetId>>,
    /// The chunks that a domain may have.
    pub most_in_a_domain: usize,
    /// Of every target: those that can be chosen in the policy's order, then the others.
    pub targets: Vec<Verdict>,
}

/// Chooses as [`super::place`] does, and says why.
pub fn explain(policy: &dyn Policy, candidates: &[TargetCandidate], rules: &Rules, set: SetId) -> Explanation {
    let choice = choose(policy, candidates, rules, set, rules.width, &[]);
    let mut places: Vec<Option<TargetId>> = choice.taken().map(Some).collect();
    turn_positions(&mut places, rules.width, set);
    let position: HashMap<TargetId, usize> =
        places.iter().enumerate().filter_map(|(position, id)| Some(((*id)?, position))).collect();
    let count = choice.targets.len();
    // Scores do not depend on domains.
    let scores = policy.scores(&View { targets: &choice.targets, domains: vec![0; count], room: vec![count] });
    let verdict = |(rank, &(index, outcome)): (usize, &(usize, Outcome))| {
        let id = choice.targets[index].id;
        let reason = match outcome {
            Outcome::Taken => Reason::Taken { position: position[&id] },
            Outcome::DomainFull => Reason::DomainFull { most: choice.most },
            Outcome::Enough => Reason::OthersFirst,
        };
        Verdict { id, rank: Some(rank), score: scores.as_ref().map(|scores| scores[index]), reason }
    };
    let mut targets: Vec<Verdict> = choice.order.iter().enumerate().map(verdict).collect();
    targets.extend(candidates.iter().filter(|candidate| !is_usable(candidate, rules.need)).map(|candidate| {
        let reason = match candidate.state {
            TargetState::Up => Reason::NoSpace { free: candidate.free, need: rules.need },
            state => Reason::NotUp { state },
        };
        Verdict { id: candidate.id, rank: None, score: None, reason }
    }));
    Explanation { set, places, most_in_a_domain: choice.most, targets }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::{Adaptive, Random, place};

    #[test]
    fn every_target_has_a_reason() {
        let target = |id: u16| TargetCandidate {
            id: TargetId(id),
            free: if id == 8 { 3 } else { 100 },
            total: 200,
            domain: Some(format!("rack{}", id / 3).parse().unwrap()),
            state: if id == 7 { TargetState::Draining } else { TargetState::Up },
            load: None,
        };
        let targets: Vec<TargetCandidate> = (0..9).map(target).collect();
        let rules = Rules { width: 3, spare: 1, domain_level: None, need: 10 };
        for set in (0..100).map(SetId) {
            for policy in [&Adaptive::default() as &dyn Policy, &Random { seed: 1 }] {
                let told = explain(policy, &targets, &rules, set);
                assert_eq!(told.places, place(policy, &targets, &rules, set));
                assert_eq!((told.most_in_a_domain, told.targets.len()), (1, 9));
                let mut rack_has = [0; 3];
                for verdict in &told.targets {
                    let rack = usize::from(verdict.id.0 / 3);
                    match verdict.reason {
                        Reason::Taken { position } => {
                            assert_eq!(told.places[position], Some(verdict.id));
                            rack_has[rack] += 1;
                        }
                        Reason::DomainFull { most } => assert_eq!((most, rack_has[rack]), (1, 1)),
                        Reason::OthersFirst => assert_eq!(rack_has.iter().sum::<i32>(), 3),
                        Reason::NotUp { state } => assert_eq!((state, verdict.id.0), (TargetState::Draining, 7)),
                        Reason::NoSpace { free, need } => assert_eq!((free, need, verdict.id.0), (3, 10, 8)),
                    }
                }
                assert_eq!(rack_has, [1; 3]);
                let told_of = |id| told.targets.iter().find(|verdict| verdict.id == TargetId(id)).unwrap();
                assert_eq!(told_of(7).reason.to_string(), "takes no data: it is draining");
                assert_eq!(told_of(8).reason.to_string(), "3 B are free, 10 B are needed");
            }
        }
        let told = explain(&Adaptive::default(), &targets, &rules, SetId(1));
        let scored = told.targets.iter().filter(|verdict| verdict.score.is_some()).count();
        assert_eq!(scored, 7);
        assert!(explain(&Random { seed: 1 }, &targets, &rules, SetId(1)).targets[0].score.is_none());
    }
}
