//! Adaptive placement: the scores of paper 003 (ECFS), section IV, with guards that the paper
//! lacks.
//!
//! For each chunk a few targets are drawn by chance, in proportion to their free space, and the one
//! with the best score of them gets it ("the power of two choices", Mitzenmacher 1996).
//!
//! - **No herd.** The best target of all is in few draws, and what was placed counts at once
//!   ([`Load::placed`](super::Load)), so that between two reports not all go to the same one. This
//!   also holds for several writers that do not know of each other.
//! - **No flood.** A new, cold target gets at most [`Tuning::draws`] times what its free space
//!   says, since it can win no more draws than it is in.
//! - **No starvation.** A part of the chunks, [`Tuning::explore`], goes to the first that is drawn:
//!   also a hot target gets some, and is seen when it cools down.
//! - **Stale reports** lose weight ([`super::score::Typical::inputs`]).
//! - **Even space.** A score is multiplied with `exp(-evenness · lead)`, where the lead is how much
//!   more of a target is used than of all together, relative to that.
//! - **Nearly full** targets, with less than a twentieth free, are drawn 16 times less.

use super::lottery::{Lottery, MAX_WEIGHT};
use super::policies::mix;
use super::policy::{Load, Policy, TargetCandidate, View};
use super::score::{Coefficients, Parts, Typical};
use crate::SetId;
use serde::{Deserialize, Serialize};

/// What can be set of adaptive placement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tuning {
    /// Of the scores.
    pub coefficients: Coefficients,
    /// Of how many targets drawn by chance the best one gets a chunk.
    pub draws: u16,
    /// The part of the chunks that go to the first target that is drawn.
    pub explore: f64,
    /// How much even space counts beside the load. With 16, a target that has 5 % more than the
    /// mean has its score halved. With 0 only the score counts.
    pub evenness: f64,
    /// The length that a chunk grows to. Differences of a few chunks are no lead.
    pub chunk_bytes: u64,
}

impl Default for Tuning {
    fn default() -> Self {
        Self { coefficients: Coefficients::default(), draws: 4, explore: 0.125, evenness: 16.0, chunk_bytes: 64 << 20 }
    }
}

/// A lead over so many chunks counts in full.
const LEAD_CHUNKS: u64 = 16;

/// No lead counts for more.
const MAX_LEAD: f64 = 0.25;

/// The bytes of all targets that can be chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Space {
    /// That are used.
    pub used: u128,
    /// That there are.
    pub total: u128,
}

impl Tuning {
    /// The score of a target, and its evenness.
    pub(super) fn parts(&self, typical: &Typical, all: Space, load: Option<Load>, free: u64, total: u64) -> Parts {
        let inputs = typical.inputs(load, free, total);
        Parts { inputs, score: self.coefficients.score(&inputs), evenness: self.even(all, free, total) }
    }

    fn even(&self, all: Space, free: u64, total: u64) -> f64 {
        if total == 0 || all.total == 0 {
            return 1.0;
        }
        let even = all.used as f64 / all.total as f64 * total as f64;
        let lead = total.saturating_sub(free) as f64 - even;
        let counts_as_one = even.max((LEAD_CHUNKS * self.chunk_bytes) as f64).max(1.0);
        (-self.evenness * (lead / counts_as_one).clamp(-MAX_LEAD, MAX_LEAD)).exp()
    }

    /// Chooses `count` members: each the best of some. `room` is what a group may get; groups
    /// without room are closed already. The lottery is afterwards as it was before.
    pub(super) fn choose(
        &self,
        lottery: &mut Lottery,
        chance: u64,
        count: usize,
        room: impl Fn(usize) -> usize,
        value: impl Fn(usize) -> f64,
    ) -> Vec<usize> {
        let mut chosen: Vec<(usize, u64)> = Vec::with_capacity(count);
        let mut groups: Vec<(usize, usize)> = Vec::with_capacity(count);
        for position in 0..count as u64 {
            let number = |draw: u64| mix(chance, position << 16 | draw);
            let explores = (number(u64::from(u16::MAX)) as f64) < self.explore * u64::MAX as f64;
            let draws = if explores { 1 } else { u64::from(self.draws.max(1)) };
            let drawn = (0..draws).filter_map(|draw| lottery.draw(number(draw)));
            let valued = drawn.map(|member| (member, if draws == 1 { 0.0 } else { value(member) }));
            // The first of several that are equal.
            let Some((member, _)) = valued.reduce(|best, next| if next.1 > best.1 { next } else { best }) else {
                break;
            };
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
}

/// What a target's chance to be drawn is proportional to: its free space, but a target of which
/// less than a twentieth is free is left for when nothing else is.
pub(super) fn draw_weight(free: u64, total: u64) -> u64 {
    let spare = free.saturating_sub(total / 20);
    spare.max(free / 16).clamp(1, MAX_WEIGHT)
}

/// The number from which all draws for a set come.
pub(super) fn chance_of(seed: u64, set: SetId) -> u64 {
    mix(set.0 ^ seed, 0x5EED)
}

/// For each chunk the best of a few that are drawn by chance.
#[derive(Clone, Copy, Debug, Default)]
pub struct Adaptive {
    /// Another one gives other draws.
    pub seed: u64,
    /// The rest.
    pub tuning: Tuning,
}

impl Adaptive {
    fn parts(&self, targets: &[TargetCandidate]) -> Vec<Parts> {
        let typical = Typical::of(targets.iter().filter_map(|target| target.load));
        let space = targets.iter().filter(|target| target.total > 0).fold(Space::default(), |space, target| Space {
            used: space.used + u128::from(target.total.saturating_sub(target.free)),
            total: space.total + u128::from(target.total),
        });
        let parts = |t: &TargetCandidate| self.tuning.parts(&typical, space, t.load, t.free, t.total);
        targets.iter().map(parts).collect()
    }
}

impl Policy for Adaptive {
    fn rank(&self, view: &View<'_>, set: SetId, width: usize) -> Vec<usize> {
        // By number, so that the same targets in another order are drawn the same.
        let mut members: Vec<usize> = (0..view.targets.len()).collect();
        members.sort_unstable_by_key(|&index| view.targets[index].id);
        let mut lottery = Lottery::new(&members.iter().map(|&index| view.domains[index]).collect::<Vec<_>>());
        for (member, &index) in members.iter().enumerate() {
            lottery.set_weight(member, draw_weight(view.targets[index].free, view.targets[index].total));
        }
        for (group, _) in view.room.iter().enumerate().filter(|(_, room)| **room == 0) {
            lottery.close(group, true);
        }
        let parts = self.parts(view.targets);
        let chance = chance_of(self.seed, set);
        let room = |group: usize| view.room[group];
        let drawn = self.tuning.choose(&mut lottery, chance, width, room, |member| parts[members[member]].value());
        let mut ranked: Vec<usize> = drawn.into_iter().map(|member| members[member]).collect();
        // The others, should the rule leave some out.
        let mut is_drawn = vec![false; view.targets.len()];
        ranked.iter().for_each(|&index| is_drawn[index] = true);
        let mut rest: Vec<usize> = members.into_iter().filter(|&index| !is_drawn[index]).collect();
        rest.sort_by(|&a, &b| parts[b].value().total_cmp(&parts[a].value()));
        ranked.append(&mut rest);
        ranked
    }

    fn scores(&self, view: &View<'_>) -> Option<Vec<Parts>> {
        Some(self.parts(view.targets))
    }
}
