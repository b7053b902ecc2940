//! [`Adaptive`] placement for clusters of any size: what is known of all targets
//! is kept between sets, so that a set costs some draws and no look at every target.
//!
//! It places what the policy places for the same targets at the beginning of an interval. Reports
//! come in at any time; an interval is the time between two reports of a target, and the caller
//! says when one has passed.

mod account;
#[cfg(test)]
mod account_tests;
mod more;

use self::account::Account;
use crate::by_target::ByTarget;
use crate::domain::Domain;
use crate::membership::TargetState;
use crate::placement::adaptive::{
    Adaptive, Look, MOST_BEHIND, Pace, Tuning, Whole, chance_of, stride, take_turns, turn_at, weight,
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

/// The part of the chunks placed before the last report that it does not count yet.
const STILL_PLACED: f64 = 0.3;

/// After this many intervals without a report, ...
const SILENT_INTERVALS: u64 = 8;
/// ... no more than these of the chunks that were placed wait.
const SILENT_PLACED: f64 = 4.0;

/// What a target said of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Report {
    /// The part of its server's processors that is idle, 0 to 1.
    pub idle: f64,
    /// The part of its server's network that is used, 0 to 1.
    pub network: f64,
    /// Accesses, of which older ones count less.
    pub temperature: f64,
    /// Accesses that waited for it or ran on it, on average.
    pub queue: f64,
    /// How long an access takes that waits for no other one, in seconds.
    pub service: f64,
    /// How long its server takes to answer, in seconds.
    pub answer: f64,
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
    /// Its share by its score and its space, beside that of an equal target.
    share: f64,
    /// What it got lately.
    account: Account,
    /// When its next chunk would be its due, but one: in the time of [`Placer::now`].
    due: f64,
    /// The time between two chunks of it, as its space and its share are. Kept, since every draw
    /// asks for it.
    stride: f64,
    /// When it has its turn, where accesses are measured.
    pace: Option<Pace>,
}

/// Places chunk sets.
#[derive(Clone, Debug)]
pub struct Placer {
    rules: Rules,
    policy: Adaptive,
    members: Vec<Member>,
    by_id: ByTarget<usize>,
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
            by_id: ByTarget::default(),
            lottery: Lottery::new(&[]),
            usable_in: Vec::new(),
            limit: None,
            interval: 0,
            whole: Whole::of(std::iter::empty(), &tuning),
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
                account: before.as_ref().map_or_else(Account::default, |before| before.account),
                due: before.map_or(f64::NAN, |before| before.due),
                stride: 0.0,
                pace: None,
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
        self.look_at_whole();
        self.find_shares();
    }

    /// A target is in another state now.
    pub fn handle_state(&mut self, id: TargetId, state: TargetState) {
        let Some(&index) = self.by_id.get(id) else { return };
        if self.members[index].state != state {
            self.members[index].state = state;
            self.refresh(index);
        }
    }

    /// A target reported.
    pub fn handle_report(&mut self, id: TargetId, report: &Report) {
        let Some(&index) = self.by_id.get(id) else { return };
        (self.members[index].free, self.members[index].total) = (report.free, report.total);
        self.members[index].handle_load(report, self.interval);
        self.keep_stride(index);
        self.look_at(index);
        self.refresh(index);
    }

    /// How busy a target is, from somebody who does not know its space.
    pub fn handle_load(&mut self, id: TargetId, report: &Report) {
        if let Some(&index) = self.by_id.get(id) {
            let Member { free, total, .. } = self.members[index];
            self.handle_report(id, &Report { free, total, ..*report });
        }
    }

    /// The same of many targets, and perhaps an interval has passed before their reports came: as
    /// [`Self::handle_interval`] and then [`Self::handle_load`] of each, with one look at all.
    pub fn handle_loads(&mut self, reports: &[(TargetId, Report)], interval_ends: bool) {
        if !interval_ends {
            return reports.iter().for_each(|(id, report)| self.handle_load(*id, report));
        }
        self.interval += 1;
        // As they were at the end of the interval: each is compared with that.
        self.look_at_whole();
        self.settle();
        for (id, report) in reports {
            let Some(&index) = self.by_id.get(*id) else { continue };
            self.members[index].handle_load(report, self.interval);
        }
        self.find_shares();
        (0..self.members.len()).for_each(|index| self.refresh(index));
    }

    /// A target has this much space now, whatever else is known of it. It stays as many chunks
    /// ahead as it is, also where nothing was known of its space.
    pub fn handle_space(&mut self, id: TargetId, free: u64, total: u64) {
        let Some(&index) = self.by_id.get(id) else { return };
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
        self.look_at_whole();
        self.settle();
        self.find_shares();
    }

    /// An interval has passed: finds the leads of all targets.
    fn settle(&mut self) {
        // Without its score, a target's rate is its weight.
        let weight = |index: usize| self.rate_of(index) / self.members[index].share;
        let weights: Vec<f64> = (0..self.members.len()).map(weight).collect();
        let all = weights.iter().sum::<f64>().max(f64::MIN_POSITIVE);
        let new = self.members.iter().map(|member| member.account.newly()).sum::<f64>().max(0.0);
        let (mut sum, mut count) = (0.0, 0.0);
        for (index, weight) in weights.into_iter().enumerate() {
            let is_slow = self.whole.is_slow(self.look(index), &self.policy.tuning);
            let account = &mut self.members[index].account;
            account.settle(weight / all * new, is_slow);
            if !account.is_slow() {
                (sum, count) = (sum + weight * account.lead, count + weight);
            }
        }
        let usual = if count > 0.0 { sum / count } else { 0.0 };
        self.members.iter_mut().for_each(|member| member.account.compare(usual));
    }

    /// Compares all targets.
    fn look_at_whole(&mut self) {
        let usable = (0..self.members.len()).filter(|&index| self.members[index].usable);
        self.whole = Whole::of(usable.map(|index| self.look(index)), &self.policy.tuning);
    }

    /// Finds the shares of all targets.
    fn find_shares(&mut self) {
        (0..self.members.len()).for_each(|index| self.find_share(index));
        // Anew, so that rounding does not add up.
        self.rate = (0..self.members.len()).map(|index| self.rate_of(index)).sum();
    }

    /// Finds the share of a target; how many chunks it is ahead stays.
    fn look_at(&mut self, index: usize) {
        let before = self.rate_of(index);
        self.find_share(index);
        self.rate += self.rate_of(index) - before;
    }

    fn find_share(&mut self, index: usize) {
        let look = self.look(index);
        let share = self.whole.parts(look, &self.policy.tuning).share;
        let member = &mut self.members[index];
        member.pace = self.whole.pace(look, &self.policy.tuning);
        member.due = self.now + (member.due - self.now) * member.share / share;
        member.share = share;
        self.keep_stride(index);
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
        let mut apart: Vec<usize> = others.iter().filter_map(|id| self.by_id.get(*id).copied()).collect();
        apart.sort_unstable();
        apart.dedup();
        let weights: Vec<u64> = apart.iter().map(|&index| self.lottery.weight(index)).collect();
        apart.iter().for_each(|&index| self.lottery.set_weight(index, 0));
        let drawn = self.draw(set, pool);
        apart.iter().zip(weights).for_each(|(&index, weight)| self.lottery.set_weight(index, weight));
        let mut ids: Vec<TargetId> = drawn.iter().map(|&index| self.members[index].id).collect();
        prefer(&mut ids);
        ids.truncate(self.rules.width);
        let chosen: Vec<usize> = ids.iter().filter_map(|id| self.by_id.get(*id).copied()).collect();
        (chosen.len() == self.rules.width).then(|| self.take(set, &chosen))
    }

    /// Draws `count` targets for a set, or as many as there are.
    fn draw(&mut self, set: SetId, count: usize) -> Vec<usize> {
        let limit = self.limit();
        let draws = (chance_of(self.policy.seed, set), self.policy.tuning.draws);
        // Moved out, so that the turns can be looked at meanwhile.
        let mut lottery = std::mem::replace(&mut self.lottery, Lottery::new(&[]));
        let turn = |index: usize| self.turn(index);
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
        let chosen: Vec<usize> = ids.iter().filter_map(|id| self.by_id.get(*id).copied()).collect();
        self.count(&chosen);
    }

    /// A chunk of each of these targets was given back before anything was written to it: it is as
    /// if it had not been placed. A client that takes more sets than it fills would else give the
    /// targets of those a turn less.
    pub fn handle_given_back(&mut self, ids: &[TargetId]) {
        let given_back: Vec<usize> = ids.iter().filter_map(|id| self.by_id.get(*id).copied()).collect();
        self.pass(-(given_back.len() as f64));
        for &index in &given_back {
            let stride = self.stride(index);
            let member = &mut self.members[index];
            (member.due, member.placed[0]) = (member.due - stride, member.placed[0].saturating_sub(1));
            member.account.count(-1.0);
            self.keep_stride(index);
        }
        given_back.iter().for_each(|&index| self.refresh(index));
    }

    /// Whether a target is among those that it knows.
    pub fn knows(&self, id: TargetId) -> bool {
        self.by_id.get(id).is_some()
    }

    /// How many targets it knows.
    pub fn members(&self) -> usize {
        self.members.len()
    }

    /// Moves the time on by as long as all targets together take to get that many chunks. Without a
    /// usable target there is no such rate, and the time stays.
    fn pass(&mut self, chunks: f64) {
        if self.rate > f64::MIN_POSITIVE {
            self.now += chunks / self.rate;
        }
    }

    fn count(&mut self, chosen: &[usize]) {
        for &index in chosen {
            let due = (self.ahead(index).max(-MOST_BEHIND) + 1.0) * self.stride(index);
            let member = &mut self.members[index];
            (member.due, member.placed[0]) = (self.now + due, member.placed[0] + 1);
            member.account.count(1.0);
            self.keep_stride(index);
        }
        self.pass(chosen.len() as f64);
        chosen.iter().for_each(|&index| self.refresh(index));
    }

    /// When a target has its next chunk: of those that are drawn, the first one gets it.
    fn turn(&self, index: usize) -> f64 {
        let member = &self.members[index];
        match member.pace {
            Some(pace) => pace.turn(member.placed_since(self.interval), self.ahead(index)),
            None => turn_at(self.ahead(index), member.stride),
        }
    }

    /// How many chunks a target has beyond its share.
    fn ahead(&self, index: usize) -> f64 {
        (self.members[index].due - self.now) / self.stride(index)
    }

    fn look(&self, index: usize) -> Look {
        let member = &self.members[index];
        let load = member.load.map_or(Load { age: f64::INFINITY, ..Load::default() }, |(load, at)| {
            // In the interval in which it came and in the next one it is new.
            Load { age: load.age + self.interval.saturating_sub(at + 1) as f64, ..load }
        });
        let (ahead, lead) = (self.ahead(index), member.account.lead);
        let placed = member.placed_since(self.interval);
        let load = Some(Load { ahead, lead, placed, ..load });
        Look { load, free: member.free_now(self.policy.tuning.chunk_bytes), total: member.total }
    }

    fn candidate(&self, index: usize) -> TargetCandidate {
        let (Member { id, domain, state, .. }, Look { load, free, total }) = (&self.members[index], self.look(index));
        TargetCandidate { id: *id, free, total, domain: domain.clone(), state: *state, load }
    }

    /// The targets as the next set finds them.
    pub fn candidates(&self) -> Vec<TargetCandidate> {
        (0..self.members.len()).map(|index| self.candidate(index)).collect()
    }

    /// The load of a target as the next set finds it.
    pub fn load(&self, id: TargetId) -> Option<Load> {
        self.look(*self.by_id.get(id)?).load
    }

    /// Why a set would go where it would go now.
    pub fn explain(&self, set: SetId) -> Explanation {
        explain(&self.policy, &self.candidates(), &self.rules, set)
    }
}

impl Member {
    fn handle_load(&mut self, report: &Report, interval: u64) {
        let Report { idle, network, temperature, queue, service, answer, .. } = *report;
        self.load = Some((Load { idle, network, temperature, queue, service, answer, ..Load::default() }, interval));
        self.placed = [0, self.placed[0]];
    }

    /// Chunks that no report knows of. Of those on a target that reports no longer only some count
    /// after a while, as its load does not.
    fn placed_since(&self, interval: u64) -> f64 {
        let placed = self.placed[0] as f64 + STILL_PLACED * self.placed[1] as f64;
        let reports = self.load.is_none_or(|(_, at)| at + SILENT_INTERVALS > interval);
        if reports { placed } else { placed.min(SILENT_PLACED) }
    }

    fn free_now(&self, chunk_bytes: u64) -> u64 {
        self.free.saturating_sub((self.placed[0] + self.placed[1]).saturating_mul(chunk_bytes))
    }
}

#[cfg(test)]
mod tests;
