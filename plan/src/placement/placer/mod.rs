//! [`Adaptive`] placement for clusters of any size: what is known of all targets
//! is kept between sets, so that a set costs some draws and no look at every target.
//!
//! It places what the policy places for the same targets at the beginning of an interval. Reports
//! come in at any time; an interval is the time between two reports of a target, and the caller
//! says when one has passed.

mod more;

use crate::domain::Domain;
use crate::membership::TargetState;
use crate::placement::adaptive::{
    Adaptive, MOST_BEHIND, Tuning, Whole, chance_of, stride, take_turns, turn_at, weight,
};
use crate::placement::candidate::{Load, TargetCandidate};
use crate::placement::choose::{Place, Rules, least_limit, place_of, turn_positions};
use crate::placement::explain::{Explanation, explain};
use crate::placement::lottery::Lottery;
use crate::placement::policies::mix;
use crate::{SetId, TargetId};
use std::collections::HashMap;

/// From so many targets on, looking at each of them for every set takes longer than 100
/// microseconds.
const MANY_TARGETS: usize = 128;

/// What a target said of itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Report {
    /// The part of its server's processors that is idle, 0 to 1.
    pub idle: f64,
    /// The part of its server's network that is used, 0 to 1.
    pub network: f64,
    /// Accesses, of which older ones count less.
    pub temperature: f64,
    /// Bytes that it can still take.
    pub free: u64,
    /// Its capacity in bytes.
    pub total: u64,
}

#[derive(Clone, Debug)]
struct Member {
    id: TargetId,
    domain: Option<Domain>,
    state: TargetState,
    free: u64,
    total: u64,
    /// The last report, and in which interval it came.
    load: Option<(Load, u64)>,
    /// Chunks placed since the last report, and between that and the one before. A report may have
    /// been on its way when they were placed, so each counts until the second report after it.
    placed: [u64; 2],
    /// Whether it can be chosen.
    usable: bool,
    /// Its share by its score, beside that of an equal target.
    share: f64,
    /// When its next chunk would be its due, but one: in the time of [`Placer::now`].
    due: f64,
    /// The time between two chunks of it, as its space and its share are. Kept, since every draw
    /// asks for it.
    stride: f64,
}

/// Places chunk sets.
#[derive(Clone, Debug)]
pub struct Placer {
    rules: Rules,
    policy: Adaptive,
    members: Vec<Member>,
    by_id: HashMap<TargetId, usize>,
    lottery: Lottery,
    /// Usable targets of each domain, and the limit that follows, if it was looked for since.
    usable_in: Vec<usize>,
    limit: Option<usize>,
    interval: u64,
    whole: Whole,
    /// A time that goes on with every chunk, faster where fewer targets share them. Each target is
    /// due for a chunk once in every stride of it.
    now: f64,
    /// The sum of all targets' rates: 1 by their strides.
    rate: f64,
}

impl Placer {
    /// Without targets. Another `seed` gives other draws.
    pub fn new(rules: Rules, tuning: Tuning, seed: u64) -> Self {
        Self {
            rules,
            policy: Adaptive { seed, tuning },
            members: Vec::new(),
            by_id: HashMap::new(),
            lottery: Lottery::new(&[]),
            usable_in: Vec::new(),
            limit: None,
            interval: 0,
            whole: Whole::of(&[], &tuning),
            now: 0.0,
            rate: 0.0,
        }
    }

    /// These are the targets now. What was placed on those that stay still counts.
    pub fn handle_members(&mut self, candidates: &[TargetCandidate]) {
        let mut old: HashMap<TargetId, Member> =
            std::mem::take(&mut self.members).into_iter().map(|member| (member.id, member)).collect();
        let interval = self.interval;
        let member = |candidate: &TargetCandidate| {
            let before = old.remove(&candidate.id);
            let load = candidate.load.map(|load| (load, interval));
            Member {
                id: candidate.id,
                domain: candidate.domain.clone(),
                state: candidate.state,
                free: candidate.free,
                total: candidate.total,
                load: load.or_else(|| before.as_ref().and_then(|before| before.load)),
                placed: before.as_ref().map_or([0; 2], |before| before.placed),
                usable: false,
                share: 1.0,
                due: before.map_or(f64::NAN, |before| before.due),
                stride: 0.0,
            }
        };
        self.members = candidates.iter().map(member).collect();
        self.members.sort_by_key(|member| member.id);
        self.members.dedup_by_key(|member| member.id);
        self.by_id = self.members.iter().enumerate().map(|(index, member)| (member.id, index)).collect();
        let groups = {
            let level = self.rules.domain_level;
            let places: Vec<Place<'_>> =
                self.members.iter().map(|member| place_of(member.id, member.domain.as_ref(), level)).collect();
            let mut names = places.clone();
            names.sort_unstable();
            names.dedup();
            let number = |place| names.binary_search(place).expect("the name of each is among them");
            places.iter().map(number).collect::<Vec<usize>>()
        };
        self.usable_in = vec![0; groups.iter().max().map_or(0, |most| most + 1)];
        self.lottery = Lottery::new(&groups);
        (self.limit, self.rate) = (None, 0.0);
        (0..self.members.len()).for_each(|index| self.keep_stride(index));
        (0..self.members.len()).for_each(|index| self.refresh(index));
        // The turn of a new one is at any time of its stride, or the largest would all be first.
        for index in 0..self.members.len() {
            if self.members[index].due.is_nan() {
                let chance = mix(self.policy.seed, self.members[index].id.0.into()) as f64 / u64::MAX as f64;
                self.members[index].due = self.now + (chance - 0.5) * self.stride(index);
            }
        }
        self.look_at_all();
    }

    /// A target is in another state now.
    pub fn handle_state(&mut self, id: TargetId, state: TargetState) {
        let Some(&index) = self.by_id.get(&id) else { return };
        self.members[index].state = state;
        self.refresh(index);
    }

    /// A target reported.
    pub fn handle_report(&mut self, id: TargetId, report: &Report) {
        let Some(&index) = self.by_id.get(&id) else { return };
        let (interval, member) = (self.interval, &mut self.members[index]);
        let Report { idle, network, temperature, free, total } = *report;
        (member.free, member.total) = (free, total);
        member.load = Some((Load { idle, network, temperature, ..Load::default() }, interval));
        member.placed = [0, member.placed[0]];
        self.keep_stride(index);
        self.look_at(index);
        self.refresh(index);
    }

    /// How busy a target is, from somebody who does not know its space.
    pub fn handle_load(&mut self, id: TargetId, report: &Report) {
        if let Some(&index) = self.by_id.get(&id) {
            let Member { free, total, .. } = self.members[index];
            self.handle_report(id, &Report { free, total, ..*report });
        }
    }

    /// A target has this much space now, whatever else is known of it. It stays as many chunks
    /// ahead as it is, also where nothing was known of its space.
    pub fn handle_space(&mut self, id: TargetId, free: u64, total: u64) {
        let Some(&index) = self.by_id.get(&id) else { return };
        if (self.members[index].free, self.members[index].total) == (free, total) {
            return;
        }
        // What it counts among all, while its stride is the old one.
        self.rate -= self.rate_of(index);
        let ahead = self.ahead(index);
        (self.members[index].free, self.members[index].total) = (free, total);
        self.keep_stride(index);
        self.members[index].due = self.now + ahead * self.stride(index);
        self.rate += self.rate_of(index);
        self.refresh(index);
    }

    /// An interval has passed: reports are older now. To be called when the reports of the interval
    /// have come.
    pub fn handle_interval(&mut self) {
        self.interval += 1;
        self.look_at_all();
    }

    /// Finds the shares of all targets.
    fn look_at_all(&mut self) {
        let usable = (0..self.members.len()).filter(|&index| self.members[index].usable);
        let usable: Vec<TargetCandidate> = usable.map(|index| self.candidate(index)).collect();
        self.whole = Whole::of(&usable, &self.policy.tuning);
        (0..self.members.len()).for_each(|index| self.look_at(index));
        // Anew, so that rounding does not add up.
        self.rate = (0..self.members.len()).map(|index| self.rate_of(index)).sum();
    }

    /// Finds the share of a target; how many chunks it is ahead stays.
    fn look_at(&mut self, index: usize) {
        let before = self.rate_of(index);
        let share = self.whole.parts(&self.candidate(index), &self.policy.tuning).share;
        let member = &mut self.members[index];
        member.due = self.now + (member.due - self.now) * member.share / share;
        member.share = share;
        self.keep_stride(index);
        self.rate += self.rate_of(index) - before;
    }

    /// How many chunks a target gets in a unit of time.
    fn rate_of(&self, index: usize) -> f64 {
        if self.members[index].usable { 1.0 / self.stride(index) } else { 0.0 }
    }

    fn stride(&self, index: usize) -> f64 {
        self.members[index].stride
    }

    /// To be called when the space of a target, what was placed on it or its share has changed.
    fn keep_stride(&mut self, index: usize) {
        let member = &mut self.members[index];
        member.stride = stride(weight(member.free_now(self.policy.tuning.chunk_bytes), member.total), member.share);
    }

    /// Brings what is kept of a target up to date after a change of its state or its space.
    fn refresh(&mut self, index: usize) {
        let (chunk_bytes, before) = (self.policy.tuning.chunk_bytes, self.rate_of(index));
        let member = &mut self.members[index];
        let free = member.free_now(chunk_bytes);
        let usable = member.state == TargetState::Up && free >= self.rules.need;
        if usable != member.usable {
            let count = &mut self.usable_in[self.lottery.group(index)];
            *count = if usable { *count + 1 } else { *count - 1 };
            self.limit = None;
        }
        member.usable = usable;
        self.lottery.set_weight(index, if usable { weight(free, member.total) } else { 0 });
        self.rate += self.rate_of(index) - before;
    }

    /// The chunks of a set that a domain may have.
    fn limit(&mut self) -> usize {
        let (width, least) = (self.rules.width, self.rules.spare.max(1));
        let usable_in = &self.usable_in;
        *self.limit.get_or_insert_with(|| least_limit(usable_in, &vec![0; usable_in.len()], width, least))
    }

    /// Chooses targets for the positions of a set, as [`place`](crate::placement::place) does, and
    /// counts what they get.
    pub fn place(&mut self, set: SetId) -> Vec<Option<TargetId>> {
        let chosen = self.draw(set, self.rules.width);
        self.take(set, &chosen)
    }

    /// The same with none of the targets `others`, such as those of the writer's other open sets,
    /// where [`place_beside`](crate::placement::place_beside) would look at every target. None in a
    /// small cluster, where that takes no time, and where there are too few targets besides.
    pub fn place_apart(&mut self, set: SetId, others: &[TargetId]) -> Option<Vec<Option<TargetId>>> {
        self.place_among(set, others, self.rules.width, |_| ())
    }

    /// The same, but of the first `pool` targets that are drawn the set gets the first ones after
    /// `prefer` has put them in another order.
    pub fn place_among(
        &mut self,
        set: SetId,
        others: &[TargetId],
        pool: usize,
        prefer: impl FnOnce(&mut Vec<TargetId>),
    ) -> Option<Vec<Option<TargetId>>> {
        if self.members.len() < MANY_TARGETS {
            return None;
        }
        let mut apart: Vec<usize> = others.iter().filter_map(|id| self.by_id.get(id).copied()).collect();
        apart.sort_unstable();
        apart.dedup();
        let weights: Vec<u64> = apart.iter().map(|&index| self.lottery.weight(index)).collect();
        apart.iter().for_each(|&index| self.lottery.set_weight(index, 0));
        let drawn = self.draw(set, pool);
        apart.iter().zip(weights).for_each(|(&index, weight)| self.lottery.set_weight(index, weight));
        let mut ids: Vec<TargetId> = drawn.iter().map(|&index| self.members[index].id).collect();
        prefer(&mut ids);
        ids.truncate(self.rules.width);
        let chosen: Vec<usize> = ids.iter().filter_map(|id| self.by_id.get(id).copied()).collect();
        (chosen.len() == self.rules.width).then(|| self.take(set, &chosen))
    }

    /// Draws `count` targets for a set, or as many as there are.
    fn draw(&mut self, set: SetId, count: usize) -> Vec<usize> {
        let limit = self.limit();
        let draws = (chance_of(self.policy.seed, set), self.policy.tuning.draws);
        // Moved out, so that the turns can be looked at meanwhile.
        let mut lottery = std::mem::replace(&mut self.lottery, Lottery::new(&[]));
        let turn = |index: usize| turn_at(self.ahead(index), self.stride(index));
        let chosen = take_turns(&mut lottery, draws, count, |_| limit, turn);
        self.lottery = lottery;
        chosen
    }

    /// Counts a set on targets that were drawn. Returns its places.
    fn take(&mut self, set: SetId, chosen: &[usize]) -> Vec<Option<TargetId>> {
        self.count(chosen);
        let mut places = chosen.iter().map(|&index| Some(self.members[index].id)).collect();
        turn_positions(&mut places, self.rules.width, set);
        places
    }

    /// Targets got a chunk each that somebody else chose, by the same [`Self::candidates`]: for a
    /// set beside others, or in a repair. It counts as if this had placed it.
    pub fn handle_placed(&mut self, ids: &[TargetId]) {
        let chosen: Vec<usize> = ids.iter().filter_map(|id| self.by_id.get(id).copied()).collect();
        self.count(&chosen);
    }

    /// A chunk of each of these targets was given back before anything was written to it: it is as
    /// if it had not been placed. A client that takes more sets than it fills would else give the
    /// targets of those a turn less.
    pub fn handle_given_back(&mut self, ids: &[TargetId]) {
        let given_back: Vec<usize> = ids.iter().filter_map(|id| self.by_id.get(id).copied()).collect();
        self.now -= given_back.len() as f64 / self.rate.max(f64::MIN_POSITIVE);
        for &index in &given_back {
            let stride = self.stride(index);
            let member = &mut self.members[index];
            (member.due, member.placed[0]) = (member.due - stride, member.placed[0].saturating_sub(1));
            self.keep_stride(index);
        }
        given_back.iter().for_each(|&index| self.refresh(index));
    }

    /// How many targets it knows.
    pub fn members(&self) -> usize {
        self.members.len()
    }

    fn count(&mut self, chosen: &[usize]) {
        for &index in chosen {
            let due = (self.ahead(index).max(-MOST_BEHIND) + 1.0) * self.stride(index);
            let member = &mut self.members[index];
            (member.due, member.placed[0]) = (self.now + due, member.placed[0] + 1);
            self.keep_stride(index);
        }
        self.now += chosen.len() as f64 / self.rate.max(f64::MIN_POSITIVE);
        chosen.iter().for_each(|&index| self.refresh(index));
    }

    /// How many chunks a target has beyond its share.
    fn ahead(&self, index: usize) -> f64 {
        (self.members[index].due - self.now) / self.stride(index)
    }

    fn candidate(&self, index: usize) -> TargetCandidate {
        let member = &self.members[index];
        let load = member.load.map_or(Load { age: f64::INFINITY, ..Load::default() }, |(load, at)| {
            // In the interval in which it came and in the next one it is new.
            Load { age: load.age + self.interval.saturating_sub(at + 1) as f64, ..load }
        });
        TargetCandidate {
            id: member.id,
            free: member.free_now(self.policy.tuning.chunk_bytes),
            total: member.total,
            domain: member.domain.clone(),
            state: member.state,
            load: Some(Load { ahead: self.ahead(index), ..load }),
        }
    }

    /// The targets as the next set finds them.
    pub fn candidates(&self) -> Vec<TargetCandidate> {
        (0..self.members.len()).map(|index| self.candidate(index)).collect()
    }

    /// The load of a target as the next set finds it.
    pub fn load(&self, id: TargetId) -> Option<Load> {
        self.candidate(*self.by_id.get(&id)?).load
    }

    /// Why a set would go where it would go now.
    pub fn explain(&self, set: SetId) -> Explanation {
        explain(&self.policy, &self.candidates(), &self.rules, set)
    }
}

impl Member {
    fn free_now(&self, chunk_bytes: u64) -> u64 {
        self.free.saturating_sub((self.placed[0] + self.placed[1]).saturating_mul(chunk_bytes))
    }
}

#[cfg(test)]
mod tests;
