//! [`Adaptive`] placement for clusters of any size: what is known of all targets
//! is kept between sets, so that a set costs some draws and no look at every target.
//!
//! It places what the policy places for the same targets at the beginning of an interval. Reports come in at any time; an interval
//! is the time between two reports of a target, and the caller says when one has passed.

use crate::placement::adaptive::{Adaptive, Space, Tuning, chance_of, draw_weight};
use crate::placement::choose::{Place, Rules, least_limit, place_of, turn};
use crate::placement::explain::{Explanation, explain};
use crate::placement::lottery::Lottery;
use crate::placement::policy::{Load, TargetCandidate};
use crate::placement::score::Typical;
use crate::domain::Domain;
use crate::membership::TargetState;
use crate::{SetId, TargetId};
use std::collections::HashMap;

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
    /// Whether it can be chosen, and its part of the space of all that can.
    usable: bool,
    space: Space,
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
    typical: Typical,
    space: Space,
    /// What a chunk adds to the temperature of its target.
    chunk_heat: f64,
    /// Chunks placed in this interval, and before, older ones less.
    placed: (u64, f64),
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
            typical: Typical::of(std::iter::empty()),
            space: Space::default(),
            chunk_heat: 1.0,
            placed: (0, 0.0),
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
                placed: before.map_or([0; 2], |before| before.placed),
                usable: false,
                space: Space::default(),
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
        (self.limit, self.space) = (None, Space::default());
        (0..self.members.len()).for_each(|index| self.refresh(index));
        self.look_at_loads();
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
        self.refresh(index);
    }

    /// How busy a target is, from somebody who does not know its space.
    pub fn handle_load(&mut self, id: TargetId, report: &Report) {
        if let Some(&index) = self.by_id.get(&id) {
            let Member { free, total, .. } = self.members[index];
            self.handle_report(id, &Report { free, total, ..*report });
        }
    }

    /// An interval has passed: reports are older now. To be called when the reports of the interval
    /// have come.
    pub fn handle_interval(&mut self) {
        self.interval += 1;
        self.placed = (0, self.placed.1 / 2.0 + self.placed.0 as f64);
        self.look_at_loads();
    }

    fn look_at_loads(&mut self) {
        let usable = self.members.iter().filter(|member| member.usable);
        let loads: Vec<Load> = usable.filter_map(|member| member.load.map(|(load, _)| load)).collect();
        self.typical = Typical::of(loads.iter().copied());
        // The accesses that there are come from the chunks that were placed lately, about. Where
        // they rather come from reading older ones, a chunk still makes a difference.
        let mean = self.typical.temperature;
        let by_chunk = mean * loads.len() as f64 / self.placed.1.max(1.0);
        self.chunk_heat = if mean > 0.0 { by_chunk.clamp(mean / 8.0, 2.0 * mean) } else { 1.0 };
    }

    /// Brings what is kept of a target up to date.
    fn refresh(&mut self, index: usize) {
        let chunk_bytes = self.policy.tuning.chunk_bytes;
        let member = &mut self.members[index];
        let free = member.free_now(chunk_bytes);
        let usable = member.state == TargetState::Up && free >= self.rules.need;
        let group = self.lottery.group(index);
        if usable != member.usable {
            self.limit = None;
            self.usable_in[group] = self.usable_in[group] + usize::from(usable) - usize::from(member.usable);
        }
        let space = match usable && member.total > 0 {
            true => Space { used: member.total.saturating_sub(free).into(), total: member.total.into() },
            false => Space::default(),
        };
        self.space.used = self.space.used + space.used - member.space.used;
        self.space.total = self.space.total + space.total - member.space.total;
        (member.usable, member.space) = (usable, space);
        self.lottery.set_weight(index, if usable { draw_weight(free, member.total) } else { 0 });
    }

    /// The chunks of a set that a domain may have.
    fn limit(&mut self) -> usize {
        let (width, least) = (self.rules.width, self.rules.spare.max(1));
        let usable_in = &self.usable_in;
        *self.limit.get_or_insert_with(|| least_limit(usable_in, &vec![0; usable_in.len()], width, least))
    }

    /// Chooses targets for the positions of a set, as [`place`](crate::placement::place) does, and counts what they
    /// get.
    pub fn place(&mut self, set: SetId) -> Vec<Option<TargetId>> {
        let limit = self.limit();
        let Self { members, lottery, policy, typical, space, interval, chunk_heat, .. } = self;
        let value = |index: usize| {
            let member = &members[index];
            let (free, load) = (member.free_now(policy.tuning.chunk_bytes), member.load_now(*interval, *chunk_heat));
            policy.tuning.parts(typical, *space, Some(load), free, member.total).value()
        };
        let chance = chance_of(policy.seed, set);
        let chosen = policy.tuning.choose(lottery, chance, self.rules.width, |_| limit, value);
        for &index in &chosen {
            self.members[index].placed[0] += 1;
            self.refresh(index);
        }
        self.placed.0 += chosen.len() as u64;
        let mut places = chosen.into_iter().map(|index| Some(self.members[index].id)).collect();
        turn(&mut places, self.rules.width, set);
        places
    }

    /// The targets as the next set finds them.
    pub fn candidates(&self) -> Vec<TargetCandidate> {
        let candidate = |member: &Member| TargetCandidate {
            id: member.id,
            free: member.free_now(self.policy.tuning.chunk_bytes),
            total: member.total,
            domain: member.domain.clone(),
            state: member.state,
            load: Some(member.load_now(self.interval, self.chunk_heat)),
        };
        self.members.iter().map(candidate).collect()
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

    fn load_now(&self, interval: u64, chunk_heat: f64) -> Load {
        let (load, age) = self.load.map_or((Load::default(), f64::INFINITY), |(load, at)| {
            // In the interval in which it came and in the next one it is new.
            (load, load.age + interval.saturating_sub(at + 1) as f64)
        });
        Load { placed: load.placed + (self.placed[0] + self.placed[1]) as f64 * chunk_heat, age, ..load }
    }
}

#[cfg(test)]
mod tests;
