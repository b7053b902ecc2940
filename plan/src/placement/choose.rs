//! The rules: what of a policy's order is taken.

use super::candidate::{TargetCandidate, is_nearly_full};
use super::policies::mix;
use super::policy::{Policy, View};
use crate::domain::Domain;
use crate::membership::TargetState;
use crate::{SetId, TargetId};

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place<'a> {
    Named(&'a str),
    Own(TargetId),
}

pub(crate) fn place_of(id: TargetId, domain: Option<&Domain>, level: Option<u8>) -> Place<'_> {
    domain.map_or(Place::Own(id), |domain| Place::Named(domain.at(level)))
}

/// What became of a target in a policy's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Taken,
    DomainFull,
    Enough,
}

/// A choice of targets, and how it came to be.
pub(super) struct Choice {
    /// The targets that could be chosen.
    pub targets: Vec<TargetCandidate>,
    /// In the order of the policy, by place in `targets`.
    pub order: Vec<(usize, Outcome)>,
    /// The chunks that a domain may have.
    pub most: usize,
}

impl Choice {
    pub fn taken(&self) -> impl Iterator<Item = TargetId> {
        let taken = self.order.iter().filter(|(_, outcome)| *outcome == Outcome::Taken);
        taken.map(|&(index, _)| self.targets[index].id)
    }
}

/// A target that takes data and has the space.
pub(super) fn is_usable(candidate: &TargetCandidate, need: u64) -> bool {
    candidate.state == TargetState::Up && candidate.free >= need
}

/// The targets that can be chosen as a policy sees them, and what a domain may have.
fn view<'a>(
    targets: &'a [TargetCandidate],
    rules: &Rules,
    count: usize,
    there: &[(TargetId, Option<Domain>)],
) -> (View<'a>, usize) {
    let place = |target: &'a TargetCandidate| place_of(target.id, target.domain.as_ref(), rules.domain_level);
    let mut names: Vec<Place<'_>> = targets.iter().map(place).collect();
    names.sort_unstable();
    names.dedup();
    let number = |place: &Place<'_>| names.binary_search(place);
    let domains: Vec<usize> =
        targets.iter().map(|target| number(&place(target)).expect("the name of each is among them")).collect();
    // A domain where nothing can be chosen does not matter for the limit.
    let mut taken = vec![0; names.len()];
    for (id, domain) in there {
        if let Ok(domain) = number(&place_of(*id, domain.as_ref(), rules.domain_level)) {
            taken[domain] += 1;
        }
    }
    let mut targets_in = vec![0; names.len()];
    domains.iter().for_each(|&domain| targets_in[domain] += 1);
    let most = least_limit(&targets_in, &taken, count, rules.spare.max(1));
    let room = taken.iter().map(|taken| most.saturating_sub(*taken)).collect();
    (View { targets, domains, room }, most)
}

/// Chooses at most `count` of the candidates that take data, of which each domain may have the
/// fewest that are possible, but `spare` in any case. `there` are the domains of chunks that the
/// set has elsewhere.
pub(super) fn choose(
    policy: &dyn Policy,
    candidates: &[TargetCandidate],
    rules: &Rules,
    set: SetId,
    count: usize,
    there: &[(TargetId, Option<Domain>)],
) -> Choice {
    let usable = candidates.iter().filter(|candidate| is_usable(candidate, rules.need));
    let targets: Vec<TargetCandidate> = usable.cloned().collect();
    let (view, most) = view(&targets, rules, count, there);
    let (mut room, mut chosen) = (view.room.clone(), 0);
    let outcome = |index: usize| {
        let room = &mut room[view.domains[index]];
        let outcome = match () {
            () if chosen == count => Outcome::Enough,
            () if *room == 0 => Outcome::DomainFull,
            () => Outcome::Taken,
        };
        if outcome == Outcome::Taken {
            *room -= 1;
            chosen += 1;
        }
        (index, outcome)
    };
    let mut ranked = policy.rank(&view, set, rules.width);
    // Whatever the policy: what is nearly full comes last, the others stay in their order.
    ranked.sort_by_key(|&index| is_nearly_full(view.targets[index].free, view.targets[index].total));
    let order = ranked.into_iter().map(outcome).collect();
    Choice { targets, order, most }
}

/// The lowest limit for the chunks of a domain, from `least` on, with which there is space for
/// `count` more.
pub(super) fn least_limit(targets_in: &[usize], taken: &[usize], count: usize, least: usize) -> usize {
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

/// The most chunks of a set that a domain must have when all of these targets are used, or m, if
/// that is more.
pub fn least_limit_of(
    targets: impl Iterator<Item = TargetCandidate>,
    domain_level: Option<u8>,
    width: usize,
    spare: usize,
) -> usize {
    let targets: Vec<TargetCandidate> = targets.collect();
    let rules = Rules { width, spare, domain_level, need: 0 };
    view(&targets, &rules, width, &[]).1
}

/// Chooses targets for the positions of chunk set `set`. Fewer than the width of candidates that
/// take data leave positions without a target (None).
pub fn place(policy: &dyn Policy, candidates: &[TargetCandidate], rules: &Rules, set: SetId) -> Vec<Option<TargetId>> {
    let mut chosen: Vec<Option<TargetId>> =
        choose(policy, candidates, rules, set, rules.width, &[]).taken().map(Some).collect();
    turn_positions(&mut chosen, rules.width, set);
    chosen
}

/// Gives the positions of a set to the targets that were chosen. The order of the policy would give
/// the last positions, the parity, to the same targets for ever. Mixed, as what the policy makes of
/// the number of the set may have a factor in common with the width.
pub(super) fn turn_positions(chosen: &mut Vec<Option<TargetId>>, width: usize, set: SetId) {
    chosen.resize(width, None);
    chosen.rotate_left((mix(set.0, 0) % width.max(1) as u64) as usize);
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
    choose(policy, &others, rules, set, count, there).taken().collect()
}
