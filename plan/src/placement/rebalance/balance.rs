//! The state of a rebalancing: what each target has and should have, and which moves are next.

use super::goals::{Holder, goals};
use super::moves::{Move, SetPlaces};
use super::sinks::{Key, Sinks};
use crate::membership::TargetState;
use crate::placement::TargetCandidate;
use crate::placement::choose::{Place, least_limit, place_of};
use crate::placement::policies::mix;
use crate::placement::share::is_shared;
use crate::topology::Places;
use crate::{Position, TargetId};
use std::sync::Arc;

/// No target with this number.
const NONE: u32 = u32::MAX;
/// How many of the emptiest targets are tried for a chunk.
const TRIES: usize = 32;
/// By how much of its capacity a target is above its goal, at least, before chunks go the way over
/// a third one.
const DETOUR: f64 = 0.005;
/// A move must be better by more than rounding: a chunk would go back and forth between two targets
/// that differ by just one.
const CLEARLY: f64 = 1.000_01;
/// Keys are parts of the capacity in these units.
const KEY_UNIT: f64 = (1u64 << 60) as f64;

#[derive(Debug)]
struct Target {
    id: TargetId,
    domain: usize,
    state: TargetState,
    /// 0 if it is not known.
    total: f64,
    used: f64,
    free: f64,
    goal: f64,
    /// Bytes of the chunks that were counted on it.
    chunks: f64,
    /// Which part of its chunks goes in the pass that chooses by chance.
    part: f64,
}

impl Target {
    fn above(&self) -> f64 {
        self.used - self.goal
    }

    /// The same, relative to its capacity.
    fn relative(&self) -> f64 {
        self.above() / self.total.max(1.0)
    }

    fn takes(&self) -> bool {
        self.state == TargetState::Up && self.total > 0.0
    }

    fn gives(&self) -> bool {
        matches!(self.state, TargetState::Up | TargetState::Draining)
    }

    fn key(&self) -> Key {
        (self.relative() * KEY_UNIT) as Key
    }
}

/// What is looked for in a pass over all sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pass {
    /// Chunks that break the rule, and those on targets that are emptied.
    Musts,
    /// From targets above their goal to targets below it; sets by chance. Where two chunks of a set
    /// were drawn for the only target below its goal, one stays, so there is a second draw.
    ByChance(u8),
    /// The same, with all sets.
    Direct,
    /// From targets above their goal to any with less.
    Detour,
}

/// What is to do.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outlook {
    /// Bytes of chunks that must move: on targets that are emptied, or against the rule.
    pub must: u64,
    /// Bytes above the goals of all targets.
    pub above: u64,
    /// The chunks that must move.
    pub must_chunks: u64,
    /// By how much the fullest target is above its goal, as a part of its capacity.
    pub most_above: f64,
    /// By how much the emptiest is below it.
    pub most_below: f64,
    /// Chunks that must move, and that no target may take.
    pub stuck: u64,
}

/// How full a target is, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fill {
    /// Used.
    pub used: u64,
    /// That should be used.
    pub goal: u64,
    /// The capacity.
    pub total: u64,
}

/// A rebalancing, fed by a caller that has the sets: [`Balance::count`] for each, then
/// [`Balance::begin`], then [`Balance::look`] for each until [`Balance::next_pass`] says that it
/// was the last pass. A set that is counted and never looked at stays where it is.
#[derive(Debug)]
pub struct Balance {
    targets: Vec<Target>,
    index: Vec<u32>,
    sinks: Sinks,
    /// Of each domain, the targets that count for the rule.
    targets_in: Vec<usize>,
    /// The chunks of a domain that the rule allows, by the chunks of a set and m.
    limits: Vec<((usize, usize), usize)>,
    reserve: f64,
    pass: Pass,
    moved_in_pass: bool,
    moved_since_detour: bool,
    /// The capacity of the largest target that takes chunks.
    largest: f64,
    /// Bytes of one chunk of each set, and of as many as a domain may have.
    one_each: f64,
    in_domain: f64,
    outlook: Outlook,
    /// In a torus: of targets that are as good, the one near to the rest of the set is preferred.
    near: Option<Arc<Places>>,
    /// Chunks in each domain, of the set that is looked at.
    counts: Vec<usize>,
}

impl Balance {
    /// Of these targets. `domain_level` is how many names of a domain count, `reserve` the bytes
    /// that moves leave free.
    pub fn new(targets: &[TargetCandidate], domain_level: Option<u8>, reserve: u64) -> Self {
        let place = |target| place_in(target, domain_level);
        let mut names: Vec<Place<'_>> = targets.iter().map(place).collect();
        names.sort_unstable();
        names.dedup();
        let number = |target| names.partition_point(|name| *name < place_in(target, domain_level));
        let mut index = vec![NONE; targets.iter().map(|target| usize::from(target.id.0) + 1).max().unwrap_or(0)];
        let mut targets_in = vec![0; names.len()];
        let mut all = Vec::with_capacity(targets.len());
        for target in targets {
            let domain = number(target);
            // One that is away comes back; one that is out or leaves does not count.
            let stays = matches!(target.state, TargetState::Up | TargetState::Down | TargetState::Joining);
            targets_in[domain] += usize::from(stays);
            index[usize::from(target.id.0)] = all.len() as u32;
            all.push(Target {
                id: target.id,
                domain,
                state: target.state,
                total: target.total as f64,
                used: target.total.saturating_sub(target.free) as f64,
                free: target.free as f64,
                goal: 0.0,
                chunks: 0.0,
                part: 0.0,
            });
        }
        Self {
            sinks: Sinks::new(all.iter().map(|target| target.domain).collect()),
            targets: all,
            index,
            counts: vec![0; targets_in.len()],
            targets_in,
            limits: Vec::new(),
            reserve: reserve as f64,
            pass: Pass::Musts,
            moved_in_pass: false,
            moved_since_detour: false,
            largest: 0.0,
            one_each: 0.0,
            in_domain: 0.0,
            outlook: Outlook::default(),
            near: None,
        }
    }

    /// In a torus: of the targets that differ from the best one by less than a chunk, a chunk goes
    /// to that with the fewest hops to the others of its set.
    #[must_use]
    pub fn near(self, near: Option<Arc<Places>>) -> Self {
        Self { near, ..self }
    }

    /// Where a chunk goes, if not to the emptiest target that was found.
    fn nearer(
        &self,
        set: &SetPlaces<'_>,
        position: Position,
        best: usize,
        has_room: impl Fn(usize) -> bool,
        fits: impl Fn(usize) -> bool,
    ) -> usize {
        let Some(near) = &self.near else { return best };
        let within = set.chunk_bytes as f64 / self.targets[best].total.max(1.0) * KEY_UNIT;
        let others = || Position::placed(set.places).filter(|(other, _)| *other != position);
        // Where it is not known how far it is, it may be as far as can be.
        let hops = |index: usize| {
            let between = |(_, id): (Position, TargetId)| near.between(self.targets[index].id, id);
            others().map(|other| u64::from(between(other).unwrap_or(near.torus.farthest()))).sum()
        };
        self.sinks.find_cheapest(has_room, fits, (best, within as Key), hops, TRIES)
    }

    fn index(&self, id: TargetId) -> Option<usize> {
        self.index.get(usize::from(id.0)).filter(|index| **index != NONE).map(|index| *index as usize)
    }

    /// The chunks of a set that a domain may have.
    fn limit(&mut self, set: &SetPlaces<'_>) -> usize {
        let key = (set.places.iter().flatten().count(), set.spare.max(1));
        if let Some((_, limit)) = self.limits.iter().find(|(known, _)| *known == key) {
            return *limit;
        }
        let limit = least_limit(&self.targets_in, &vec![0; self.targets_in.len()], key.0, key.1);
        self.limits.push((key, limit));
        limit
    }

    /// Counts the chunks of the set in each domain, until `clear`.
    fn fill(&mut self, set: &SetPlaces<'_>) {
        for id in set.places.iter().flatten() {
            if let Some(index) = self.index(*id) {
                self.counts[self.targets[index].domain] += 1;
            }
        }
    }

    fn clear(&mut self, set: &SetPlaces<'_>) {
        for id in set.places.iter().flatten() {
            if let Some(index) = self.index(*id) {
                self.counts[self.targets[index].domain] = 0;
            }
        }
    }

    /// Chunks beside another one of the set on their target, as far as targets without one could
    /// take them: a volume that may put several on one target has got more targets.
    fn crowded(&self, set: &SetPlaces<'_>) -> u64 {
        if !is_shared(set.places) {
            return 0;
        }
        let doubled = Position::placed(set.places).filter(|&(at, id)| is_doubled(set.places, at, id)).count();
        let others = (0..self.targets.len()).filter(|&index| self.targets[index].takes() && self.may_take(index, set));
        doubled.min(others.count()) as u64
    }

    /// A set that is there.
    pub fn count(&mut self, set: &SetPlaces<'_>) {
        let (limit, bytes) = (self.limit(set), set.chunk_bytes as f64);
        self.one_each += bytes;
        self.in_domain += bytes * limit as f64;
        let mut must = 0;
        self.fill(set);
        for id in set.places.iter().flatten() {
            let Some(index) = self.index(*id) else { continue };
            let target = &mut self.targets[index];
            target.chunks += bytes;
            let count = &mut self.counts[target.domain];
            if target.state == TargetState::Draining {
                must += 1;
            } else if *count > limit {
                *count -= 1;
                must += 1;
            }
        }
        self.clear(set);
        must = must.max(self.crowded(set));
        self.outlook.must_chunks += must;
        self.outlook.must += must * set.chunk_bytes;
    }

    /// All sets were counted: computes what each target should have.
    pub fn begin(&mut self) {
        let takes: Vec<usize> = (0..self.targets.len()).filter(|&index| self.targets[index].takes()).collect();
        let holders: Vec<Holder> = takes
            .iter()
            .map(|&index| &self.targets[index])
            .map(|target| Holder {
                domain: target.domain,
                total: target.total,
                fixed: (target.used - target.chunks).max(0.0),
            })
            .collect();
        // What a target reports may lag behind what it has.
        let own = |index: &usize| self.targets[*index].chunks.min(self.targets[*index].used);
        let leaving: f64 =
            self.targets.iter().filter(|target| target.state == TargetState::Draining).map(|it| it.chunks).sum();
        let moving = takes.iter().map(own).sum::<f64>() + leaving;
        for (&index, goal) in takes.iter().zip(goals(&holders, moving, self.one_each, self.in_domain)) {
            let target = &mut self.targets[index];
            target.goal = goal;
            self.sinks.set(index, target.key());
            self.largest = self.largest.max(target.total);
        }
        let above = |target: &&Target| target.takes() && target.above() > 0.0;
        self.outlook.above = self.targets.iter().filter(above).map(Target::above).sum::<f64>() as u64;
        let relative = self.targets.iter().filter(|target| target.takes()).map(Target::relative);
        let (most, least) = relative.fold((0.0, 0.0), |(most, least), it| (f64::max(most, it), f64::min(least, it)));
        (self.outlook.most_above, self.outlook.most_below) = (most, -least);
    }

    /// What there was to do at the beginning, and what of it turned out to be impossible.
    pub fn outlook(&self) -> Outlook {
        self.outlook
    }

    /// How full a target is by now; None for one that takes no chunks.
    pub fn fill_of(&self, id: TargetId) -> Option<Fill> {
        let target = &self.targets[self.index(id)?];
        let fill = Fill { used: target.used.max(0.0) as u64, goal: target.goal as u64, total: target.total as u64 };
        target.takes().then_some(fill)
    }

    /// Plans the moves of a set in this pass; they count as made.
    pub fn look(&mut self, set: &SetPlaces<'_>, moves: &mut Vec<Move>) {
        match self.pass {
            Pass::Musts => self.look_for_musts(set, moves),
            pass => {
                for (position, from) in Position::placed(set.places) {
                    let Some(from) = self.index(from).filter(|&index| self.is_source(index, set, position)) else {
                        continue;
                    };
                    self.move_from(set, position, from, pass, moves);
                }
            }
        }
    }

    /// Whether a chunk of this target goes in this pass.
    fn is_source(&self, index: usize, set: &SetPlaces<'_>, position: Position) -> bool {
        let target = &self.targets[index];
        let emptiest = self.sinks.lowest().map_or(f64::MAX, |key| key as f64 / KEY_UNIT);
        let least = CLEARLY * set.chunk_bytes as f64 / 2.0 * (1.0 / target.total + 1.0 / self.largest);
        let goes = target.takes() && target.above() > 0.0 && target.relative() - emptiest > least;
        match self.pass {
            Pass::ByChance(draw) => {
                let drawn = mix(set.set.0, u64::from(draw) << 16 | u64::from(position.0) | 0xBA1A << 32);
                let chance = drawn as f64 / u64::MAX as f64;
                goes && chance < target.part
            }
            Pass::Detour => goes && target.relative() > DETOUR,
            _ => goes,
        }
    }

    fn move_from(&mut self, set: &SetPlaces<'_>, position: Position, from: usize, pass: Pass, moves: &mut Vec<Move>) {
        let limit = self.limit(set);
        // What was moved before in this look counts, too.
        let now = now(set, moves);
        let set = &SetPlaces { places: &now, ..*set };
        self.fill(set);
        let (bytes, own) = (set.chunk_bytes as f64, self.targets[from].domain);
        let source = &self.targets[from];
        let has_room = |domain: usize| domain == own || self.counts[domain] < limit;
        let fits = |index: usize| {
            let sink = &self.targets[index];
            let least = CLEARLY * bytes / 2.0 * (1.0 / source.total + 1.0 / sink.total);
            let improves = source.relative() - sink.relative() > least;
            improves && (pass == Pass::Detour || sink.above() < 0.0) && self.may_take(index, set)
        };
        let to = self.sinks.find(has_room, fits, TRIES);
        let to = to.map(|best| self.nearer(set, position, best, has_room, fits));
        self.clear(set);
        if let Some(to) = to {
            self.make(set, position, from, to, moves);
        }
    }

    /// Whether a target has space for a chunk of a set of which it has none.
    fn may_take(&self, index: usize, set: &SetPlaces<'_>) -> bool {
        let target = &self.targets[index];
        target.free >= set.chunk_bytes as f64 + self.reserve && !set.places.contains(&Some(target.id))
    }

    fn make(&mut self, set: &SetPlaces<'_>, position: Position, from: usize, to: usize, moves: &mut Vec<Move>) {
        let bytes = set.chunk_bytes as f64;
        for (index, more) in [(from, -bytes), (to, bytes)] {
            let target = &mut self.targets[index];
            target.used += more;
            target.free -= more;
            target.chunks += more;
            if target.takes() {
                self.sinks.set(index, target.key());
            }
        }
        (self.moved_in_pass, self.moved_since_detour) = (true, true);
        let (from, to) = (self.targets[from].id, self.targets[to].id);
        moves.push(Move { set: set.set, position, from, to, bytes: set.chunk_bytes });
    }

    fn look_for_musts(&mut self, set: &SetPlaces<'_>, moves: &mut Vec<Move>) {
        let limit = self.limit(set);
        self.fill(set);
        let in_order = |domain: &usize| self.counts[*domain] <= limit;
        let is_fine = |id: &TargetId| {
            self.index(*id).is_none_or(|index| {
                let target = &self.targets[index];
                target.state != TargetState::Draining && in_order(&target.domain)
            })
        };
        let fine = set.places.iter().flatten().all(is_fine);
        self.clear(set);
        if fine && self.crowded(set) == 0 {
            return;
        }
        let mut given_up: Vec<Position> = Vec::new();
        loop {
            let now = now(set, moves);
            let set = &SetPlaces { places: &now, ..*set };
            self.fill(set);
            let must = |position: Position, index: usize| {
                let target = &self.targets[index];
                let breaks = target.state == TargetState::Draining || self.counts[target.domain] > limit;
                target.gives() && (breaks || is_doubled(set.places, position, target.id))
            };
            let placed = Position::placed(set.places).filter(|(position, _)| !given_up.contains(position));
            let musts =
                placed.filter_map(|(position, id)| Some((position, self.index(id).filter(|&it| must(position, it))?)));
            // Those that are emptied first, then the fullest.
            let rank = |index: usize| {
                let target = &self.targets[index];
                (target.state == TargetState::Draining, target.key())
            };
            let next = musts.max_by_key(|&(position, index)| (rank(index), std::cmp::Reverse(position)));
            let Some((position, from)) = next else { return self.clear(set) };
            let own = self.targets[from].domain;
            // Leaving makes room in its domain, but not if that has too many.
            let has_room = |domain: usize| self.counts[domain] - usize::from(domain == own) < limit;
            let fits = |index: usize| self.may_take(index, set);
            let to = self.sinks.find(has_room, fits, self.targets.len());
            let to = to.map(|best| self.nearer(set, position, best, has_room, fits));
            self.clear(set);
            match to {
                Some(to) => self.make(set, position, from, to, moves),
                None => {
                    // Where targets are too few, chunks stay beside each other.
                    let only_doubled = is_doubled(&now, position, self.targets[from].id)
                        && self.targets[from].state != TargetState::Draining;
                    self.outlook.stuck += u64::from(!only_doubled);
                    given_up.push(position);
                }
            }
        }
    }

    /// All sets were looked at. Returns whether to look at them once more.
    pub fn next_pass(&mut self) -> bool {
        let moved = std::mem::take(&mut self.moved_in_pass);
        self.pass = match self.pass {
            Pass::Musts => Pass::ByChance(0),
            Pass::ByChance(0) => Pass::ByChance(1),
            Pass::ByChance(_) => Pass::Direct,
            Pass::Direct if moved => Pass::Direct,
            Pass::Direct => {
                self.moved_since_detour = false;
                Pass::Detour
            }
            Pass::Detour if self.moved_since_detour => Pass::Direct,
            Pass::Detour => return false,
        };
        for target in &mut self.targets {
            target.part = if target.chunks > 0.0 { target.above() / target.chunks } else { 0.0 };
        }
        // Nobody is above the goal: nothing is left to look for.
        self.targets.iter().any(|target| target.takes() && target.above() > 0.0)
    }
}

/// Whether a target has another chunk of the set at an earlier position than this one.
fn is_doubled(places: &[Option<TargetId>], position: Position, id: TargetId) -> bool {
    places[..position.index()].contains(&Some(id))
}

fn place_in(target: &TargetCandidate, level: Option<u8>) -> Place<'_> {
    place_of(target.id, target.domain.as_ref(), level)
}

/// Where the chunks of a set are after the last moves, if these are of this set.
fn now(set: &SetPlaces<'_>, moves: &[Move]) -> Vec<Option<TargetId>> {
    let mut places = set.places.to_vec();
    let made: Vec<&Move> = moves.iter().rev().take_while(|made| made.set == set.set).collect();
    made.into_iter().rev().for_each(|made| places[made.position.index()] = Some(made.to));
    places
}
