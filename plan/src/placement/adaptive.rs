//! Adaptive placement: the scores of paper 003 (ECFS), section IV, as weights, with guards that the
//! paper lacks.
//!
//! For each chunk some targets are drawn by chance, in proportion to their free space, and the one
//! gets it that is next. Where accesses are measured, that is the one at which the next access
//! takes the shortest time ([`super::score::Typical::wait`]): the scores of the paper are too close
//! together to say that. A better score shortens this time a little.
//!
//! Before anything is measured, targets take turns as in weighted fair queueing. A score says which
//! share of the new chunks a target gets, and the next is the one whose turn it is by its share.
//! Equal targets so get the same number at any time, as with round-robin, but in ever new
//! combinations. Without any load, nobody knows whose turn it is: then chance alone follows the
//! shares.
//!
//! - **No herd.** What a target got counts at once ([`Load::placed`](super::Load),
//!   [`Load::ahead`](super::Load)), without a report: each chunk waits as one access does, so the
//!   fastest target soon is no longer the first one. Writers that do not know of each other do not
//!   all take the same target, either: it is in few of their draws.
//! - **No flood, no starvation.** No target counts as more than four times as fast or as slow as
//!   the usual one, and no wait as more than eight usual ones. One that is slow all the time gets a
//!   quarter of its even part. A share is between a quarter and four times that of an equal target
//!   ([`MAX_SHARE`]).
//! - **Stale reports** lose weight ([`super::score::Typical::inputs`]).
//! - **Even space.** A share is multiplied with `exp(-evenness · lead)`, and a wait divided by its
//!   square. The lead is how much more of a target is used than of all together, relative to that.
//!   Mixed sizes fill by ratio, since targets are drawn, and an equal share is, in proportion to
//!   free space. What a target got lately beyond its part counts, too, long before that: a target
//!   that was slow for a while gets back what it missed.
//! - **Nearly full** targets, with less than a twentieth free, are taken when nothing else is
//!   left.

use super::candidate::{Load, TargetCandidate, is_nearly_full};
use super::lottery::{Lottery, MAX_WEIGHT};
use super::policies::{lot, mix};
use super::policy::{Policy, View};
use super::score::{Coefficients, Inputs, Parts, Typical, Wait};
use crate::SetId;
use serde::{Deserialize, Serialize};

/// What can be set of adaptive placement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tuning {
    /// Of the scores.
    pub coefficients: Coefficients,
    /// Of how many targets drawn by chance one gets a chunk.
    pub draws: u16,
    /// How much a score that is better than the mean is worth: a share is the ratio of both to this
    /// power. The scores of equation 5 are close together, and the paper only compares them.
    pub sharpness: f64,
    /// How much even space counts beside the load. With 32, a target that has 2.2 % more than the
    /// mean has its share halved, and equal targets stay within 5 % whatever their scores are. That
    /// also means that in the long run equal targets of unequal speed get equal parts, and only
    /// take turns by speed; until a sixteenth of them is used, a lead is measured by that much.
    /// What a target got in the last thousand intervals counts before that, unless it was slow all
    /// the time. With 0 only the score counts, and space follows speed.
    pub evenness: f64,
    /// The length that a chunk grows to. Differences of a few chunks are no lead.
    pub chunk_bytes: u64,
}

impl Default for Tuning {
    fn default() -> Self {
        Self { coefficients: Coefficients::default(), draws: 8, sharpness: 8.0, evenness: 32.0, chunk_bytes: 64 << 20 }
    }
}

/// No share is higher, compared with that of an equal target, and none is lower than one by this.
pub const MAX_SHARE: f64 = 4.0;

/// A target is slow when an access takes so many times as long as usually, ...
const SLOW: f64 = 2.5;
/// ... or when its share by its score is at the lower bound.
const SLOW_SHARE: f64 = 1.04 / MAX_SHARE;

/// The most chunks that a target may be behind its share; what it missed before that is forgotten.
pub(super) const MOST_BEHIND: f64 = 2.0;

/// A lead that is measured over this many chunks counts in full.
const LEAD_CHUNKS: u64 = 16;
/// The same as a part of the target, so that scores count in a cluster that is nearly empty, where
/// a few chunks are many per cent of what is used and nothing of what there is.
const LEAD_DIVISOR: u64 = 16;

/// With this evenness, a lead of one in what a target got lately ([`Load::lead`]) divides its share
/// by e.
const LATELY_EVENNESS: f64 = 32.0;
/// What a target got lately changes a share by e to this power at most, so that space counts more.
const MOST_LATELY: f64 = 6.0;
/// The turn of a target comes sooner by its score beside the mean to this power. Most of what
/// a score says of the load is in the wait already.
const BY_SCORE: f64 = 0.25;
/// Each chunk that a target is ahead of its share puts its turn off by e to this power.
const AHEAD: f64 = 0.2;

/// The bytes of all targets that can be chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Space {
    /// That are used.
    pub used: u128,
    /// That there are.
    pub total: u128,
}

impl Space {
    pub fn of(free: u64, total: u64) -> Self {
        Self { used: total.saturating_sub(free).into(), total: total.into() }
    }

    pub fn sum(of: impl Iterator<Item = Self>) -> Self {
        of.fold(Self::default(), |sum, space| Self { used: sum.used + space.used, total: sum.total + space.total })
    }
}

/// What a share follows from: a target without its domain.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    pub load: Option<Load>,
    pub free: u64,
    pub total: u64,
}

impl From<&TargetCandidate> for Look {
    fn from(target: &TargetCandidate) -> Self {
        Self { load: target.load, free: target.free, total: target.total }
    }
}

/// All targets together, with which each is compared.
#[derive(Clone, Copy, Debug)]
pub(super) struct Whole {
    typical: Typical,
    space: Space,
    mean_score: f64,
}

impl Whole {
    pub fn of(targets: impl Iterator<Item = Look> + Clone, tuning: &Tuning) -> Self {
        let typical = Typical::of(targets.clone().filter_map(|target| target.load));
        let space = Space::sum(targets.clone().map(|target| Space::of(target.free, target.total)));
        let score = |target: Look| tuning.coefficients.score(&typical.inputs(target.load, target.free, target.total));
        let (count, sum) = targets.map(score).fold((0u64, 0.0), |(count, sum), score| (count + 1, sum + score));
        Self { typical, space, mean_score: sum / count.max(1) as f64 }
    }

    /// What follows for a target.
    pub fn parts(&self, target: Look, tuning: &Tuning) -> Parts {
        let inputs: Inputs = self.typical.inputs(target.load, target.free, target.total);
        let score = tuning.coefficients.score(&inputs);
        let evenness = self.evenness(target, tuning);
        // Held within the bounds first, so that a lead of a few per cent outweighs any score.
        let share = within(self.share_of(score, tuning) * evenness);
        let ahead = target.load.map_or(0.0, |load| load.ahead);
        let ahead = if ahead.is_nan() { 0.0 } else { ahead.max(-MOST_BEHIND) };
        let placed = target.load.map_or(0.0, |load| load.placed);
        let delay = self.typical.wait(target.load).map_or(0.0, |wait| wait.of(placed));
        Parts { inputs, score, evenness, share, delay, ahead }
    }

    /// When a target has its turn; None where nobody knows how long accesses take.
    pub fn pace(&self, target: Look, tuning: &Tuning) -> Option<Pace> {
        let wait = self.typical.wait(target.load)?;
        let inputs = self.typical.inputs(target.load, target.free, target.total);
        let by_score = self.ratio(tuning.coefficients.score(&inputs)).powf(BY_SCORE);
        // Waits are measured, and no two measurements of one target are the same. What keeps
        // targets even weighs twice as much as they do, so that targets that differ by that alone
        // are even.
        Some(Pace { wait, times: (by_score * within(self.evenness(target, tuning))).powi(-2) })
    }

    /// Whether a target is so slow at the moment that it must not get back what it missed; None
    /// where nobody knows. Where accesses are not measured, its share by its score says so.
    pub fn is_slow(&self, target: Look, tuning: &Tuning) -> Option<bool> {
        let load = target.load.filter(|load| load.age < f64::INFINITY)?;
        let by_score = || {
            let inputs = self.typical.inputs(Some(load), target.free, target.total);
            self.share_of(tuning.coefficients.score(&inputs), tuning) < SLOW_SHARE
        };
        Some(self.typical.slowness(load).map_or_else(by_score, |slowness| slowness > SLOW))
    }

    fn share_of(&self, score: f64, tuning: &Tuning) -> f64 {
        within(self.ratio(score).powf(tuning.sharpness))
    }

    /// A score beside the mean.
    fn ratio(&self, score: f64) -> f64 {
        if self.mean_score > 0.0 { score / self.mean_score } else { 1.0 }
    }

    fn evenness(&self, target: Look, tuning: &Tuning) -> f64 {
        let lately_lead = target.load.map_or(0.0, |load| if load.lead.is_nan() { 0.0 } else { load.lead });
        let lately = (-tuning.evenness / LATELY_EVENNESS * lately_lead).clamp(-MOST_LATELY, MOST_LATELY).exp();
        if target.total == 0 || self.space.total == 0 {
            return lately;
        }
        let even = self.space.used as f64 / self.space.total as f64 * target.total as f64;
        let lead = target.total.saturating_sub(target.free) as f64 - even;
        let least = LEAD_CHUNKS.saturating_mul(tuning.chunk_bytes).max(target.total / LEAD_DIVISOR);
        let counts_as_one = even.max(least as f64).max(1.0);
        lately * (-tuning.evenness * lead / counts_as_one).clamp(-20.0, 20.0).exp()
    }
}

/// When a target has its turn, where accesses are measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    wait: Wait,
    /// What the wait counts, for its score, and as it has more or less than others.
    times: f64,
}

impl Pace {
    /// The one of those that are drawn for which this is least gets the chunk.
    pub fn turn(&self, placed: f64, ahead: f64) -> f64 {
        let turns = (2.0 * AHEAD * ahead.clamp(-MOST_BEHIND, MOST_BEHIND)).exp();
        self.wait.of(placed) * self.times * turns
    }
}

/// Within the bounds of a share.
fn within(share: f64) -> f64 {
    if share.is_nan() { 1.0 } else { share.clamp(1.0 / MAX_SHARE, MAX_SHARE) }
}

/// The time between two chunks of a target with this weight and this share.
pub(super) fn stride(weight: u64, share: f64) -> f64 {
    1.0 / (weight.max(1) as f64 * share)
}

/// When a target has its next chunk: who is first gets it.
pub(super) fn turn_at(ahead: f64, stride: f64) -> f64 {
    (ahead.max(-MOST_BEHIND) + 1.0) * stride
}

/// Chooses `count` members: of some that are drawn each time, the one whose turn is first. `room`
/// is what a group may get; groups without room are closed already. The lottery is afterwards as it
/// was before.
pub(super) fn take_turns(
    lottery: &mut Lottery,
    (chance, draws): (u64, u16),
    count: usize,
    room: impl Fn(usize) -> usize,
    turn: impl Fn(usize) -> f64,
) -> Vec<usize> {
    let mut chosen: Vec<(usize, u64)> = Vec::with_capacity(count);
    let mut groups: Vec<(usize, usize)> = Vec::with_capacity(count);
    for position in 0..count as u64 {
        let drawn = (0..u64::from(draws.max(1))).filter_map(|draw| lottery.draw(mix(chance, position << 16 | draw)));
        let timed = drawn.map(|member| (member, turn(member)));
        // The one that was drawn first, of several whose turn it is.
        let Some((member, _)) = timed.reduce(|best, next| if next.1 < best.1 { next } else { best }) else { break };
        chosen.push((member, lottery.weight(member)));
        lottery.set_weight(member, 0);
        let group = lottery.group(member);
        let place = groups.iter().position(|(known, _)| *known == group).unwrap_or_else(|| {
            groups.push((group, 0));
            groups.len() - 1
        });
        groups[place].1 += 1;
        if groups[place].1 >= room(group) {
            lottery.close(group, true);
        }
    }
    chosen.iter().for_each(|&(member, weight)| lottery.set_weight(member, weight));
    groups.iter().filter(|(group, count)| *count >= room(*group)).for_each(|(group, _)| lottery.close(*group, false));
    chosen.into_iter().map(|(member, _)| member).collect()
}

/// What a target's chance to be drawn, and its share beside others with the same score, is
/// proportional to: its free space, but a target of which less than a twentieth is free is left for
/// when nothing else is.
pub(super) fn weight(free: u64, total: u64) -> u64 {
    let counts = match is_nearly_full(free, total) {
        true => free >> 20,
        false => free.saturating_sub(total / 20).max(free / 16),
    };
    counts.clamp(1, MAX_WEIGHT)
}

/// The number from which all draws for a set come.
pub(super) fn chance_of(seed: u64, set: SetId) -> u64 {
    mix(set.0 ^ seed, 0x5EED)
}

/// Shares by load, temperature and space.
#[derive(Clone, Copy, Debug, Default)]
pub struct Adaptive {
    /// Another one gives other draws.
    pub seed: u64,
    /// The rest.
    pub tuning: Tuning,
}

impl Policy for Adaptive {
    fn rank(&self, view: &View<'_>, set: SetId, width: usize) -> Vec<usize> {
        let whole = Whole::of(view.targets.iter().map(Look::from), &self.tuning);
        let parts: Vec<Parts> = view.targets.iter().map(|target| whole.parts(target.into(), &self.tuning)).collect();
        let weight = |index: usize| weight(view.targets[index].free, view.targets[index].total);
        let turn = |(index, parts): (usize, &Parts)| {
            let target = &view.targets[index];
            match whole.pace(target.into(), &self.tuning) {
                Some(pace) => pace.turn(target.load.map_or(0.0, |load| load.placed), parts.ahead),
                None => turn_at(parts.ahead, stride(weight(index), parts.share)),
            }
        };
        let turns: Vec<f64> = parts.iter().enumerate().map(turn).collect();
        // Where nobody knows whose turn it is, chance alone follows the shares: else the largest
        // share would win every draw.
        let by_turns = parts.iter().any(|parts| parts.ahead != 0.0 || parts.delay > 0.0);
        let chance = |index: usize| match by_turns {
            true => weight(index),
            false => ((weight(index) as f64 * parts[index].share) as u64).max(1),
        };
        // By number, so that the same targets in another order are drawn the same.
        let mut members: Vec<usize> = (0..view.targets.len()).collect();
        members.sort_unstable_by_key(|&index| view.targets[index].id);
        let mut lottery = Lottery::new(&members.iter().map(|&index| view.domains[index]).collect::<Vec<_>>());
        for (member, &index) in members.iter().enumerate() {
            lottery.set_weight(member, chance(index));
        }
        // Groups are as many as the highest number says; a domain above that has no target.
        let closed = view.domains.iter().filter(|&&domain| view.room[domain] == 0);
        closed.for_each(|&group| lottery.close(group, true));
        let draws = (chance_of(self.seed, set), if by_turns { self.tuning.draws } else { 1 });
        let room = |group: usize| view.room[group];
        let drawn = take_turns(&mut lottery, draws, width, room, |member| turns[members[member]]);
        let mut ranked: Vec<usize> = drawn.into_iter().map(|member| members[member]).collect();
        // The others, should the rule leave some out.
        let mut is_drawn = vec![false; view.targets.len()];
        ranked.iter().for_each(|&index| is_drawn[index] = true);
        let mut rest: Vec<usize> = members.into_iter().filter(|&index| !is_drawn[index]).collect();
        // By chance where nobody knows whose turn it is: the callers would all take the same.
        let id = |index: usize| u64::from(view.targets[index].id.0);
        let order = |index: usize| match by_turns {
            true => turns[index],
            false => -lot(mix(draws.0, id(index)), chance(index)),
        };
        rest.sort_by(|&a, &b| order(a).total_cmp(&order(b)));
        ranked.append(&mut rest);
        ranked
    }

    fn scores(&self, view: &View<'_>) -> Option<Vec<Parts>> {
        let whole = Whole::of(view.targets.iter().map(Look::from), &self.tuning);
        Some(view.targets.iter().map(|target| whole.parts(target.into(), &self.tuning)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TargetId;
    use crate::membership::TargetState;
    use crate::placement::{Rules, place};

    /// Without memory between sets: chunks follow the free space, and no draw is always won by the
    /// target with the most.
    #[test]
    fn without_turns_chance_follows_free_space() {
        let target = |id: u16| TargetCandidate {
            id: TargetId(id),
            free: [1u64, 2, 4][usize::from(id % 3)] << 40,
            total: [1u64, 2, 4][usize::from(id % 3)] << 40,
            domain: None,
            state: TargetState::Up,
            load: None,
        };
        let targets: Vec<TargetCandidate> = (0..30).map(target).collect();
        let rules = Rules { width: 1, spare: 1, domain_level: None, need: 1 };
        let mut counts = [0; 3];
        for set in (0..14_000).map(SetId) {
            let id = place(&Adaptive::default(), &targets, &rules, set)[0].unwrap();
            counts[usize::from(id.0 % 3)] += 1;
        }
        assert!((1850..2150).contains(&counts[0]) && (7800..8200).contains(&counts[2]), "{counts:?}");
    }
}
