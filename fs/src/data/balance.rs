//! How busy the targets are, and what follows for new chunks. It is kept between sets: what was
//! placed counts at once, reports come once in a while. [`plan::placement`] decides; this module
//! brings it the reports and the counters.

use crate::volume::label::{Label, Role};
use crate::volume::places::Places;
use plan::TargetId;
use plan::membership::TargetState;
use plan::placement::{Load, Observed, Observer, Placement, Placer, Rules, TargetCandidate, TargetLoad};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
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
    /// The places of the targets that new sets may go to.
    members: BTreeMap<TargetId, PathBuf>,
    own: Own,
    /// Targets of which the last report came from their server.
    from_servers: BTreeSet<TargetId>,
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
            (id, Observed { number, idle, network: 0.0, accesses: metered.accesses, queue, seconds, delay: 0.0 })
        };
        let seen = counted.iter().map(observed).collect();
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
            from_servers: BTreeSet::new(),
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
        let is_new = |candidate: &&TargetCandidate| self.placer.load(candidate.id).is_none();
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
        let active = label.members().filter(|member| member.role == Role::Active);
        state.members = active.map(|member| (member.id, member.path.clone())).collect();
        let State { observer, members, .. } = &mut *state;
        observer.retain(|id| members.contains_key(&id));
    }

    /// Takes in what the servers of the targets reported, or what this process counted of those
    /// that have none. It waits for nothing.
    pub fn observe(&self, targets: &Targets, places: &dyn Places, candidates: &[TargetCandidate]) {
        let mut state = self.state();
        state.handle_candidates(candidates);
        let own = state.own.look(targets);
        let State { members, from_servers, observer, placer, .. } = &mut *state;
        let mut seen = Vec::new();
        for (&id, path) in &*members {
            let reported = places.load(path);
            // The counters of the two have nothing to do with each other.
            let is_other = match reported {
                Some(_) => from_servers.insert(id),
                None => from_servers.remove(&id),
            };
            if is_other {
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

    /// Targets got a chunk each: it counts for the next set already.
    pub fn placed(&self, ids: &[TargetId], candidates: &[TargetCandidate]) {
        let mut state = self.state();
        if ids.iter().any(|id| state.placer.load(*id).is_none()) {
            state.handle_candidates(candidates);
        }
        state.placer.handle_placed(ids);
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
mod tests {
    use super::*;
    use crate::data::sets::Placed;
    use crate::testing::{Lab, make};
    use crate::{Error, FileSystem, OpenOptions, Result};
    use plan::placement::PolicyName;
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use volume::Control;
    use volume::target::Target;

    /// Servers that say how busy they are: two of their eight targets have a long queue.
    #[derive(Debug, Default)]
    struct Servers {
        reports: AtomicU64,
    }

    const SLOW: [&str; 2] = ["/disk0", "/disk5"];

    impl Places for Servers {
        fn format(&self, _: &Path) -> Result<Arc<dyn Target>> {
            Err(Error::Invalid("there are no places".into()))
        }

        fn open(&self, _: &Path) -> Result<Arc<dyn Target>> {
            Err(Error::Invalid("there are no places".into()))
        }

        fn full(&self, place: &Path) -> Result<PathBuf> {
            Ok(place.to_path_buf())
        }

        fn load(&self, place: &Path) -> Option<Observed> {
            let number = self.reports.load(Ordering::SeqCst);
            let (queue, speed) = if SLOW.iter().any(|slow| Path::new(slow) == place) { (6.0, 10) } else { (0.2, 40) };
            let observed =
                Observed { number, idle: 0.9, network: 1e6, accesses: number * speed, queue, seconds: 1.0, delay: 0.0 };
            (number > 0).then_some(observed)
        }
    }

    /// A volume on eight targets whose servers report.
    fn volume(code: &str, policy: PolicyName) -> (Arc<FileSystem>, Arc<Servers>, Lab) {
        let (lab, servers) = (Lab::new(code, 8), Arc::new(Servers::default()));
        let fs = lab.open_as(OpenOptions { places: servers.clone(), ..OpenOptions::default() });
        fs.set_placement(Placement { policy, ..Placement::default() }).unwrap();
        (fs, servers, lab)
    }

    fn report(fs: &FileSystem, servers: &Servers) {
        servers.reports.fetch_add(1, Ordering::SeqCst);
        fs.observe_loads();
    }

    #[test]
    fn new_sets_avoid_busy_targets_and_starve_none() {
        let (fs, servers, _lab) = volume("rs:2+2", PolicyName::Adaptive);
        for number in 0..8 {
            let rack = if number < 4 { "left" } else { "right" };
            fs.set_domain(Path::new(&format!("/disk{number}")), Some(rack.parse().unwrap())).unwrap();
        }
        let placed = Placed(fs.engine().unwrap().meta.clone());
        let mut counts = [0; 8];
        for number in 0..200 {
            if number % 5 == 0 {
                report(&fs, &servers);
            }
            let (_, record) = placed.place(&fs.store, &[], &[], |_| ()).unwrap();
            let ids: Vec<usize> = record.places.iter().flatten().map(|id| usize::from(id.0)).collect();
            assert_eq!(ids.iter().filter(|&&id| id < 4).count(), 2, "no rack has more than two: {ids:?}");
            ids.into_iter().for_each(|id| counts[id] += 1);
        }
        for (slow, others) in [(counts[0], &counts[1..4]), (counts[5], &[counts[4], counts[6], counts[7]])] {
            assert!(slow >= 10 && others.iter().all(|&count| count > 2 * slow), "{counts:?}");
        }
        fs.close_volume().unwrap();
    }

    /// The second set of a writer goes beside its first one, and not to the busy targets because
    /// they are the ones without a chunk.
    #[test]
    fn the_sets_of_one_writer_avoid_busy_targets_too() {
        let (fs, servers, _lab) = volume("rs:2+1", PolicyName::Adaptive);
        let placed = Placed(fs.engine().unwrap().meta.clone());
        (0..3).for_each(|_| report(&fs, &servers));
        let mut beside = Vec::new();
        for _ in 0..4 {
            let places = placed.place(&fs.store, &[], &beside, |_| ()).unwrap().1.places;
            beside.push(places);
        }
        let on = |id: u16| beside.iter().flatten().filter(|place| **place == Some(TargetId(id))).count();
        let (busy, all) = (on(0) + on(5), (0..8).map(on).sum::<usize>());
        assert!(all == 12 && busy <= 1, "{beside:?}");
        fs.close_volume().unwrap();
    }

    #[test]
    fn other_policies_look_at_no_load() {
        let (fs, servers, _lab) = volume("rs:2+1", PolicyName::RoundRobin);
        let placed = Placed(fs.engine().unwrap().meta.clone());
        (0..3).for_each(|_| report(&fs, &servers));
        let mut counts = [0; 8];
        for _ in 0..40 {
            let places = placed.place(&fs.store, &[], &[], |_| ()).unwrap().1.places;
            places.into_iter().flatten().for_each(|id| counts[usize::from(id.0)] += 1);
        }
        assert!(counts.iter().all(|&count| (14..=16).contains(&count)), "{counts:?}");
        // What is known is shown all the same.
        let status = fs.status().unwrap();
        assert!(status.targets[0].load.unwrap().queue > 5.0 && status.targets[1].load.unwrap().queue < 1.0);
        assert_eq!(status.targets[0].score, None);
        fs.close_volume().unwrap();
    }

    #[test]
    fn rebuilt_chunks_go_where_new_ones_would() {
        let (fs, servers, _lab) = volume("rs:2+1", PolicyName::RoundRobin);
        for number in 0..64 {
            fs.write(make(&fs, &format!("file{number}")), 0, &[7; 100_000]).unwrap();
            fs.sync_all().unwrap();
            fs.set_placement(fs.placement()).unwrap();
        }
        fs.set_placement(Placement { policy: PolicyName::Adaptive, ..Placement::default() }).unwrap();
        (0..3).for_each(|_| report(&fs, &servers));
        let chunks =
            |fs: &FileSystem| fs.status().unwrap().targets.iter().map(|target| target.chunks).collect::<Vec<_>>();
        let before = chunks(&fs);
        let done = fs.drain_target(Path::new("/disk7"), &Control::default()).unwrap();
        assert!(done.chunks >= 20, "{done:?}");
        let more: Vec<usize> = chunks(&fs).iter().zip(&before).map(|(now, before)| now - before).collect();
        let slow = more[0].max(more[5]);
        assert!([1, 2, 3, 4, 6].into_iter().all(|id| more[id] > slow && more[id] > 0), "{more:?}");
        fs.close_volume().unwrap();
    }

    #[test]
    fn what_is_explained_is_where_it_would_go_and_where_it_is() {
        let (fs, servers, _lab) = volume("rs:2+1", PolicyName::Adaptive);
        (0..3).for_each(|_| report(&fs, &servers));
        let next = fs.explain_set(None).unwrap();
        assert!(next.there.is_none() && next.loads.len() == 8 && next.now.targets.len() == 8);
        let score = |id: u16| next.now.targets.iter().find(|target| target.id.0 == id).unwrap().score.unwrap().score;
        assert!(score(0) < score(1) && score(5) < score(6));
        let (set, record) = Placed(fs.engine().unwrap().meta.clone()).place(&fs.store, &[], &[], |_| ()).unwrap();
        let there = fs.explain_set(Some(set)).unwrap();
        assert_eq!(there.there, Some(record.places));
        fs.close_volume().unwrap();
    }
}
