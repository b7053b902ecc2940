//! How busy the targets are, and what follows for new chunks. It is kept between sets: what was
//! placed counts at once, reports come once in a while. [`plan::placement`] decides; this module
//! brings it the reports and the counters.

use crate::volume::gauge::Gauge;
use crate::volume::label::{Label, Role};
use crate::volume::places::Places;
use plan::membership::TargetState;
use plan::placement::{Load, Observed, Observer, Placement, Placer, PolicyName, Rules, TargetCandidate, TargetLoad};
use plan::topology::places::pool;
use plan::{SetId, TargetId};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;
use volume::{Metered, Targets, lock};

/// What is known of the loads of a volume's targets.
#[derive(Debug)]
pub(crate) struct Balance(Mutex<State>);

#[derive(Debug)]
struct State {
    rules: Rules,
    placement: Placement,
    observer: Observer,
    placer: Placer,
    /// The targets that new sets may go to.
    members: BTreeMap<TargetId, Member>,
    own: Own,
}

/// A target that new sets may go to.
#[derive(Debug)]
struct Member {
    path: PathBuf,
    /// Where its server says how busy it is; None as long as nobody asked for it.
    gauge: Option<Option<Gauge>>,
    /// Whether the last report came from its server.
    from_server: bool,
}

impl Member {
    fn at(path: &Path) -> Self {
        Self { path: path.to_path_buf(), gauge: None, from_server: false }
    }

    /// What its server said last, if it has one that tells.
    fn reported(&mut self, places: &dyn Places) -> Option<Observed> {
        self.gauge.get_or_insert_with(|| places.gauge(&self.path)).as_ref()?.get()
    }
}

/// What this process itself knows of targets that nobody else reports of.
#[derive(Debug, Default)]
struct Own {
    number: u64,
    looked: Option<Instant>,
    counted: BTreeMap<TargetId, Metered>,
    /// Processor time of the machine: idle, and in total.
    processors: (u64, u64),
}

impl Own {
    /// What happened since the last look.
    fn look(&mut self, targets: &Targets) -> BTreeMap<TargetId, Observed> {
        let now = Instant::now();
        let seconds = self.looked.map_or(0.0, |before| now.saturating_duration_since(before).as_secs_f64());
        let spent = volume::machine::processors().map_or((0, 0), |spent| (spent.idle, spent.all()));
        let (idle, all) = (spent.0.saturating_sub(self.processors.0), spent.1.saturating_sub(self.processors.1));
        // Processors of which nothing is known are taken for idle.
        let idle = if all == 0 { 1.0 } else { (idle as f64 / all as f64).min(1.0) };
        let counted: BTreeMap<TargetId, Metered> = targets.metered().into_iter().collect();
        let number = self.number + 1;
        let observed = |(&id, metered): (&TargetId, &Metered)| {
            let before = self.counted.get(&id).map_or(metered.waited, |before| before.waited);
            let waited = metered.waited.saturating_sub(before).as_secs_f64();
            let queue = if seconds > 0.0 { waited / seconds } else { 0.0 };
            (
                id,
                Observed {
                    number,
                    idle,
                    network: 0.0,
                    accesses: metered.accesses,
                    queue,
                    measured: (0, 0.0),
                    seconds,
                    delay: 0.0,
                },
            )
        };
        // The first look says nothing of an interval.
        let seen = self.looked.map_or_else(BTreeMap::new, |_| counted.iter().map(observed).collect());
        *self = Self { number, looked: Some(now), counted, processors: spent };
        seen
    }
}

impl State {
    fn new(placement: Placement, rules: Rules, seed: u64, chunk_bytes: u64) -> Self {
        Self {
            rules,
            placement,
            observer: Observer::new(placement.scoring().tau),
            placer: Placer::new(rules, placement.tuning(chunk_bytes), seed),
            members: BTreeMap::new(),
            own: Own::default(),
        }
    }

    /// These can take data now; the other members cannot.
    fn handle_candidates(&mut self, candidates: &[TargetCandidate]) {
        let known: BTreeMap<TargetId, &TargetCandidate> =
            candidates.iter().map(|candidate| (candidate.id, candidate)).collect();
        let away = |id: TargetId| TargetCandidate {
            id,
            free: 0,
            total: 0,
            domain: None,
            state: TargetState::Down,
            load: None,
        };
        let is_new = |candidate: &&TargetCandidate| !self.placer.knows(candidate.id);
        if candidates.iter().any(|candidate| is_new(&candidate)) || self.members.len() != self.placer.members() {
            let ids: BTreeSet<TargetId> = self.members.keys().chain(known.keys()).copied().collect();
            let all: Vec<TargetCandidate> = ids
                .into_iter()
                .map(|id| known.get(&id).map_or_else(|| away(id), |&known| known.clone()))
                .map(|candidate| TargetCandidate { load: None, ..candidate })
                .collect();
            self.placer.handle_members(&all);
        }
        let ids: Vec<TargetId> = self.members.keys().copied().collect();
        for id in ids {
            match known.get(&id) {
                Some(candidate) => {
                    self.placer.handle_space(id, candidate.free, candidate.total);
                    self.placer.handle_state(id, TargetState::Up);
                }
                None => self.placer.handle_state(id, TargetState::Down),
            }
        }
    }
}

impl Default for Balance {
    fn default() -> Self {
        let rules = Rules { width: 1, spare: 0, domain_level: None, need: 0 };
        Self(Mutex::new(State::new(Placement::default(), rules, 0, 0)))
    }
}

impl Balance {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }

    /// The label is another one now. What is known of the targets that stay is kept, unless the
    /// volume makes other scores of it.
    pub fn set_label(&self, label: &Label, rules: Rules, seed: u64) {
        let mut state = self.state();
        if state.placement != label.placement || state.rules != rules {
            *state = State::new(label.placement, rules, seed, label.chunk_bytes.into());
        }
        let mut before = std::mem::take(&mut state.members);
        let mut kept = |id: TargetId, path: &Path| {
            before.remove(&id).filter(|member| member.path == path).unwrap_or_else(|| Member::at(path))
        };
        let active = label.members().filter(|member| member.role == Role::Active);
        state.members = active.map(|member| (member.id, kept(member.id, &member.path))).collect();
        let State { observer, members, .. } = &mut *state;
        observer.retain(|id| members.contains_key(&id));
    }

    /// Takes in what the servers of the targets reported, or what this process counted of those
    /// that have none. It waits for nothing.
    pub fn observe(&self, targets: &Targets, places: &dyn Places, candidates: &[TargetCandidate]) {
        let mut state = self.state();
        state.handle_candidates(candidates);
        let own = state.own.look(targets);
        let State { members, observer, placer, .. } = &mut *state;
        let mut seen = Vec::with_capacity(members.len());
        for (&id, member) in &mut *members {
            let reported = member.reported(places);
            // The counters of the two have nothing to do with each other.
            if reported.is_some() != member.from_server {
                member.from_server = reported.is_some();
                observer.retain(|other| other != id);
            }
            seen.extend(reported.or_else(|| own.get(&id).copied()).map(|observed| (id, observed)));
        }
        observer.handle(&seen, placer);
    }

    /// The candidates with what is known of their loads.
    pub fn with_loads(&self, candidates: Vec<TargetCandidate>) -> Vec<TargetCandidate> {
        let state = self.state();
        let with_load = |candidate: TargetCandidate| TargetCandidate { load: state.load(candidate.id), ..candidate };
        candidates.into_iter().map(with_load).collect()
    }

    /// The targets of a new set of the volume's code in a large cluster, on none of `others`,
    /// without a look at every target: only those that are chosen must be `good`. In a torus they
    /// are near each other. None where that is not possible, or the policy has no memory.
    pub fn place_apart(
        &self,
        set: SetId,
        others: &[TargetId],
        near: Option<&plan::topology::Places>,
        good: impl Fn(TargetId) -> bool,
    ) -> Option<Vec<Option<TargetId>>> {
        let mut state = self.state();
        if state.placement.policy != PolicyName::Adaptive {
            return None;
        }
        let (width, known) = (state.rules.width, state.members.len().saturating_sub(others.len()));
        let places = match near {
            None => state.placer.place_apart(set, others)?,
            Some(near) => state.placer.place_among(set, others, pool(width, known), |ids| {
                near.nearest_first(ids, |id| *id);
            })?,
        };
        let taken: Vec<TargetId> = places.iter().flatten().copied().collect();
        if !taken.iter().all(|&id| good(id)) {
            state.placer.handle_given_back(&taken);
            return None;
        }
        Some(places)
    }

    /// Targets got a chunk each: it counts for the next set already.
    pub fn placed(&self, ids: &[TargetId], candidates: &[TargetCandidate]) {
        let mut state = self.state();
        if ids.iter().any(|id| !state.placer.can_take(*id)) {
            state.handle_candidates(candidates);
        }
        state.placer.handle_placed(ids);
    }

    /// Chunks on these targets were given back before anything was written to them.
    pub fn given_back(&self, ids: &[TargetId]) {
        self.state().placer.handle_given_back(ids);
    }

    /// How busy a target is; None as long as nothing is known of it.
    pub fn load(&self, id: TargetId) -> Option<TargetLoad> {
        self.state().observer.load(id)
    }

    /// What stays of a temperature after an interval at present.
    pub fn tau(&self) -> f64 {
        self.state().observer.tau()
    }
}

impl State {
    fn load(&self, id: TargetId) -> Option<Load> {
        self.placer.load(id)
    }
}

#[cfg(test)]
mod tests;
