//! On which targets a chunk set goes: a [`Policy`] says which it would rather have, and what is
//! here sees to the rules, whatever it says.
//!
//! The rules: distinct targets, only such as take data and have space, and no failure domain with
//! more than m chunks of a set, so that the loss of any one domain loses nothing. Where there are
//! too few domains for that, the fullest has as few as can be.

mod policies;
mod policy;
mod spread;

pub(crate) use policies::mix;
pub use policies::{Random, RoundRobin};
pub use policy::{Load, Policy, TargetCandidate, View};
pub use spread::{open_sets, place_beside};

use crate::domain::Domain;
use crate::membership::TargetState;
use crate::{SetId, TargetId};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

/// The policies by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyName {
    /// By chance, those with more space more often.
    #[default]
    Random,
    /// One after the other, whatever space they have.
    RoundRobin,
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Random => "random",
            Self::RoundRobin => "round-robin",
        })
    }
}

impl FromStr for PolicyName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "random" => Ok(Self::Random),
            "round-robin" => Ok(Self::RoundRobin),
            _ => Err("the policies are random and round-robin".into()),
        }
    }
}

/// How a volume places its chunk sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// By which policy.
    pub policy: PolicyName,
    /// How many names of a target's domain count; all without one.
    pub domain_level: Option<u8>,
}

impl Placement {
    /// The policy. Volumes with another `seed` get other random orders.
    pub fn policy(&self, seed: u64) -> Box<dyn Policy> {
        match self.policy {
            PolicyName::Random => Box::new(Random { seed }),
            PolicyName::RoundRobin => Box::new(RoundRobin),
        }
    }
}

/// What holds for every set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Chunks of a set.
    pub width: usize,
    /// Chunks that a set can lose: m, what a domain may have.
    pub spare: usize,
    /// How many names of a domain count.
    pub domain_level: Option<u8>,
    /// The space that a target must have.
    pub need: u64,
}

/// The domain that a target is in.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Place<'a> {
    Named(&'a str),
    Own(TargetId),
}

fn place_of(id: TargetId, domain: Option<&Domain>, level: Option<u8>) -> Place<'_> {
    domain.map_or(Place::Own(id), |domain| Place::Named(domain.at(level)))
}

/// Chooses at most `count` of the candidates that take data, of which each domain may have the
/// fewest that are possible, but `spare` in any case. `there` are the domains of chunks that the
/// set has elsewhere.
fn choose(
    policy: &dyn Policy,
    candidates: &[TargetCandidate],
    rules: &Rules,
    set: SetId,
    count: usize,
    there: &[(TargetId, Option<Domain>)],
) -> Vec<TargetId> {
    let level = rules.domain_level;
    let takes = |candidate: &&TargetCandidate| candidate.state == TargetState::Up && candidate.free >= rules.need;
    let targets: Vec<TargetCandidate> = candidates.iter().filter(takes).cloned().collect();
    let mut numbers = HashMap::new();
    let mut number_of = |place| {
        let next = numbers.len();
        *numbers.entry(place).or_insert(next)
    };
    let domains: Vec<usize> =
        targets.iter().map(|target| number_of(place_of(target.id, target.domain.as_ref(), level))).collect();
    let there: Vec<usize> = there.iter().map(|(id, domain)| number_of(place_of(*id, domain.as_ref(), level))).collect();
    let mut taken = vec![0; numbers.len()];
    there.iter().for_each(|&domain| taken[domain] += 1);
    let mut targets_in = vec![0; numbers.len()];
    domains.iter().for_each(|&domain| targets_in[domain] += 1);
    let most = least_limit(&targets_in, &taken, count, rules.spare.max(1));
    let view = View { targets: &targets, domains };
    let mut chosen = Vec::with_capacity(count);
    for index in policy.rank(&view, set, rules.width) {
        let taken = &mut taken[view.domains[index]];
        if chosen.len() < count && *taken < most {
            *taken += 1;
            chosen.push(targets[index].id);
        }
    }
    chosen
}

/// The lowest limit for the chunks of a domain, from `least` on, with which there is space for
/// `count` more.
fn least_limit(targets_in: &[usize], taken: &[usize], count: usize, least: usize) -> usize {
    let fits = |limit: usize| -> bool {
        let capacity = targets_in.iter().zip(taken).map(|(&targets, &taken)| targets.min(limit.saturating_sub(taken)));
        capacity.sum::<usize>() >= count
    };
    // With this one everything that there is can be taken; whether that is enough or not.
    let highest = (count + taken.iter().max().unwrap_or(&0)).max(least);
    let (mut low, mut high) = (least, highest);
    while low < high {
        let middle = low + (high - low) / 2;
        if fits(middle) { high = middle } else { low = middle + 1 }
    }
    low
}

/// Chooses targets for the positions of chunk set `set`. Fewer than the width of candidates that
/// take data leave positions without a target (None).
pub fn place(policy: &dyn Policy, candidates: &[TargetCandidate], rules: &Rules, set: SetId) -> Vec<Option<TargetId>> {
    let mut chosen: Vec<Option<TargetId>> =
        choose(policy, candidates, rules, set, rules.width, &[]).into_iter().map(Some).collect();
    chosen.resize(rules.width, None);
    // The order of the policy would give the last positions, the parity, to the same targets for
    // ever. Mixed, as what the policy makes of the number of the set may have a factor in common
    // with the width.
    chosen.rotate_left((mix(set.0, 0) % rules.width.max(1) as u64) as usize);
    chosen
}

/// Chooses targets for `count` chunks of a set that has others on `there`: none of those, and with
/// the domains of those counted.
pub fn place_more(
    policy: &dyn Policy,
    candidates: &[TargetCandidate],
    rules: &Rules,
    set: SetId,
    count: usize,
    there: &[(TargetId, Option<Domain>)],
) -> Vec<TargetId> {
    let others: Vec<TargetCandidate> =
        candidates.iter().filter(|candidate| !there.iter().any(|(id, _)| *id == candidate.id)).cloned().collect();
    choose(policy, &others, rules, set, count, there)
}

#[cfg(test)]
mod tests;
