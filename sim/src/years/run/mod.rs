//! One run: the same stores and sets, failures by one seed.

mod repairing;

use super::events::{Events, What};
use super::exposure::Exposure;
use super::repairs::{Lacks, Repairs, positions};
use crate::chance::exponential;
use crate::chooser::Chooser;
use crate::cluster::Cluster;
use crate::config::{Config, Failures};
use crate::growth;
use crate::table::Table;
use plan::TargetId;
use plan::membership::{Membership, TargetState};
use std::collections::BTreeMap;
use std::time::Duration;

/// Milliseconds of a year of 365.25 days.
pub const YEAR: f64 = 365.25 * 86_400e3;
const HOUR: f64 = 3_600e3;

/// What a run saw.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Sets by chunks lost, over time.
    pub exposure: Exposure,
    /// Sets that were lost.
    pub lost_sets: u64,
    /// Of each year, whether a set was lost.
    pub years: Vec<bool>,
    /// Stores that were lost.
    pub failures: u64,
    /// Milliseconds from the loss of a store until all of its chunks were rebuilt.
    pub rebuilds: Vec<u64>,
    /// Chunks that were rebuilt.
    pub rebuilt: u64,
    /// Sectors that a repair could not read.
    pub latent: u64,
}

/// A store that was lost, of which chunks are missing.
#[derive(Clone, Copy, Debug, Default)]
struct Missing {
    since: u64,
    chunks: u64,
}

/// Where the chunks of a set that is being rebuilt go, each with the life of the store, and from
/// where they are read.
type Work = (Vec<(usize, TargetId, u32)>, Vec<TargetId>);

pub struct Run<'a> {
    config: &'a Config,
    failures: &'a Failures,
    cluster: Cluster,
    table: Table,
    chooser: Chooser,
    members: Membership,
    random: fastrand::Rng,
    events: Events,
    now: u64,
    /// Of each store: whether its data is gone, and how often that happened.
    gone: Vec<bool>,
    lives: Vec<u32>,
    away: Vec<bool>,
    missing: Vec<Missing>,
    degraded: BTreeMap<u32, Lacks>,
    /// Sets being rebuilt.
    work: BTreeMap<u32, Work>,
    repairs: Repairs,
    /// Chunks that a repair reads until the next one with a bad sector.
    until_latent: f64,
    latent_mean: f64,
    /// Whether a look at how even stores are is planned.
    rebalances: bool,
    seen: Seen,
}

impl<'a> Run<'a> {
    pub fn new(config: &'a Config, failures: &'a Failures, cluster: &Cluster, table: &Table, run: u32) -> Self {
        let mut random = fastrand::Rng::with_seed(config.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ u64::from(run));
        let volume = &config.volume;
        let stores = cluster.stores.len();
        let down_out = Duration::from_secs_f64(failures.detection_minutes * 60.0);
        let mut members = Membership::new(down_out);
        let ids: Vec<(TargetId, bool)> = (0..stores as u16)
            .map(|id| (TargetId(id), cluster.stores[usize::from(id)].state == TargetState::Draining))
            .collect();
        members.handle_members(&ids, Duration::ZERO);
        ids.iter().for_each(|(id, _)| members.handle_answer(*id, Duration::ZERO));
        while members.poll_change().is_some() {}
        // A sector goes bad, on average, half a round of verification before it is read.
        let terabytes = volume.chunk.0 as f64 / 1e12;
        let bad = failures.latent_errors_per_tb_year * terabytes * failures.scrub_days / 2.0 / 365.25;
        let latent_mean = if bad > 0.0 { 1.0 / bad } else { f64::INFINITY };
        let end = (f64::from(failures.years) * YEAR) as u64;
        let mut new = Self {
            until_latent: if latent_mean.is_finite() { exponential(&mut random, latent_mean) } else { f64::INFINITY },
            chooser: Chooser::new(volume, cluster, config.seed ^ u64::from(run) << 40, 1),
            repairs: Repairs::new(cluster, volume.width(), failures.repair_share, failures.repairs_at_a_time),
            seen: Seen {
                exposure: Exposure::new(volume.m as usize, end),
                lost_sets: 0,
                years: vec![false; failures.years as usize],
                failures: 0,
                rebuilds: Vec::new(),
                rebuilt: 0,
                latent: 0,
            },
            config,
            failures,
            cluster: cluster.clone(),
            table: table.clone(),
            members,
            random,
            events: Events::default(),
            now: 0,
            gone: vec![false; stores],
            lives: vec![0; stores],
            away: vec![false; stores],
            missing: vec![Missing::default(); stores],
            degraded: BTreeMap::new(),
            work: BTreeMap::new(),
            latent_mean,
            rebalances: false,
        };
        (0..stores).for_each(|store| new.plan_loss(store));
        new.plan_correlated();
        (0..cluster.cabinets).for_each(|cabinet| new.plan_cabinet(cabinet));
        new
    }

    fn after(&mut self, mean: f64) -> u64 {
        // Far beyond the end of any run, and within a u64.
        self.now.saturating_add(exponential(&mut self.random, mean).min(1e18) as u64)
    }

    fn plan_loss(&mut self, store: usize) {
        // One that is emptied leaves.
        if self.failures.server_mtbf_years > 0.0 && self.cluster.stores[store].state != TargetState::Draining {
            let at = self.after(self.failures.server_mtbf_years * YEAR);
            self.events.push(at, What::StoreLost(store as u16, self.lives[store]));
        }
    }

    fn plan_correlated(&mut self) {
        if self.failures.correlated_per_year > 0.0 {
            let at = self.after(YEAR / self.failures.correlated_per_year);
            self.events.push(at, What::SeveralLost);
        }
    }

    fn plan_cabinet(&mut self, cabinet: u32) {
        if self.failures.cabinet_mtbf_years > 0.0 {
            let at = self.after(self.failures.cabinet_mtbf_years * YEAR);
            self.events.push(at, What::CabinetAway(cabinet));
        }
    }

    /// Runs to the end. `year` is told of each year that has passed.
    pub fn run(mut self, mut year: impl FnMut()) -> Seen {
        let end = (f64::from(self.failures.years) * YEAR) as u64;
        let mut years = 0;
        while let Some((at, what)) = self.events.pop() {
            if at >= end {
                break;
            }
            let passed = (at as f64 / YEAR) as u32;
            (years..passed).for_each(|_| year());
            years = passed;
            self.now = at;
            self.seen.exposure.advance(at);
            self.handle(what);
            self.repair();
        }
        (years..self.failures.years).for_each(|_| year());
        self.seen.exposure.advance(end);
        self.seen
    }

    fn time(&self) -> Duration {
        Duration::from_millis(self.now)
    }

    fn handle(&mut self, what: What) {
        match what {
            What::StoreLost(store, life) => {
                if self.lives[usize::from(store)] == life {
                    self.lose(usize::from(store));
                }
            }
            What::SeveralLost => {
                for _ in 0..self.failures.correlated_stores {
                    let store = self.random.usize(0..self.gone.len());
                    self.lose(store);
                }
                self.plan_correlated();
            }
            What::CabinetAway(cabinet) => {
                for store in 0..self.away.len() {
                    if self.cluster.stores[store].cabinet == cabinet {
                        self.away[store] = true;
                        self.silent(store);
                    }
                }
                let back = self.now.saturating_add((self.failures.cabinet_hours * HOUR) as u64 + 1);
                self.events.push(back, What::CabinetBack(cabinet));
            }
            What::CabinetBack(cabinet) => {
                for store in 0..self.away.len() {
                    if self.cluster.stores[store].cabinet == cabinet && self.away[store] {
                        self.away[store] = false;
                        self.back(store);
                    }
                }
                self.plan_cabinet(cabinet);
                self.plan_repairs();
            }
            What::Replaced(store) => {
                let store = usize::from(store);
                self.gone[store] = false;
                self.back(store);
                self.plan_loss(store);
                self.plan_repairs();
                if self.failures.rebalance_days > 0.0 && !self.rebalances {
                    self.rebalances = true;
                    let after = (self.failures.rebalance_days * 24.0 * HOUR) as u64;
                    self.events.push(self.now.saturating_add(after), What::Rebalance);
                }
            }
            What::Rebalance => self.rebalance(),
            What::Look => self.look(),
            What::Rebuilt(set) => self.rebuilt(set),
        }
    }

    /// Moves chunks onto stores that are too empty. Redundancy never falls meanwhile, so all moves
    /// are made at once. Sets that lack chunks stay.
    fn rebalance(&mut self) {
        self.rebalances = false;
        let degraded = &self.degraded;
        let mut moved = BTreeMap::new();
        growth::rebalance(
            self.config,
            &self.cluster,
            &mut self.table,
            |set| degraded.contains_key(&(set as u32)),
            |_| (),
            |made| {
                *moved.entry(made.from).or_insert(0i64) -= 1;
                *moved.entry(made.to).or_insert(0) += 1;
            },
        );
        for (id, more) in moved {
            let store = &mut self.cluster.stores[usize::from(id.0)];
            store.chunks = store.chunks.saturating_add_signed(more);
            self.chooser.handle_store(&self.cluster, id);
        }
    }

    /// A store does not answer.
    fn silent(&mut self, store: usize) {
        self.members.handle_silence(TargetId(store as u16), self.time());
        self.changes();
        let out = self.now.saturating_add((self.failures.detection_minutes * 60e3).ceil() as u64 + 1);
        self.events.push(out, What::Look);
    }

    /// A store answers. What it has lost is found at once: it says so.
    fn back(&mut self, store: usize) {
        if self.away[store] || self.gone[store] {
            return;
        }
        let id = TargetId(store as u16);
        self.members.handle_answer(id, self.time());
        self.changes();
        let at = |table: &Table, set: u32, position: usize| table.at(set as usize, position) == Some(id);
        for (&set, lacks) in &mut self.degraded {
            for position in positions(lacks.lost | lacks.known).filter(|&position| at(&self.table, set, position)) {
                let bit = 1 << position;
                lacks.known = if lacks.lost & bit != 0 { lacks.known | bit } else { lacks.known & !bit };
            }
        }
        self.degraded.retain(|_, lacks| lacks.lost | lacks.known | lacks.rebuilding != 0);
    }

    /// A store is lost with its data.
    fn lose(&mut self, store: usize) {
        if self.gone[store] {
            return;
        }
        self.gone[store] = true;
        self.lives[store] += 1;
        self.seen.failures += 1;
        let id = TargetId(store as u16);
        let chunks: Vec<(usize, usize)> = self.table.chunks_of(id).collect();
        self.missing[store] = Missing { since: self.now, chunks: chunks.len() as u64 };
        for (set, position) in chunks {
            self.lose_chunk(set as u32, position);
        }
        self.cluster.stores[store].chunks = 0;
        self.repairs.forget(id);
        self.silent(store);
        let replaced = self.now.saturating_add((self.failures.replace_hours * HOUR) as u64 + 1);
        self.events.push(replaced, What::Replaced(store as u16));
    }

    /// A chunk is lost; with one too many, the set is.
    fn lose_chunk(&mut self, set: u32, position: usize) {
        let lacks = self.degraded.entry(set).or_default();
        let before = lacks.lost.count_ones();
        lacks.lost |= 1 << position;
        let now = lacks.lost.count_ones();
        self.seen.exposure.change(before, now);
        if now > self.config.volume.m {
            self.lose_set(set);
        }
    }

    fn lose_set(&mut self, set: u32) {
        let lacks = self.degraded.remove(&set).unwrap_or_default();
        self.seen.exposure.forget(lacks.lost.count_ones());
        self.seen.lost_sets += 1;
        let year = (self.now as f64 / YEAR) as usize;
        if let Some(year) = self.seen.years.get_mut(year) {
            *year = true;
        }
        for position in 0..self.table.width() {
            if let Some(id) = self.table.at(set as usize, position) {
                self.found(id);
                let store = &mut self.cluster.stores[usize::from(id.0)];
                store.chunks = store.chunks.saturating_sub(1);
            }
            self.table.put(set as usize, position, None);
        }
    }

    /// A chunk that was lost with a store is not missing there any more.
    fn found(&mut self, id: TargetId) {
        let missing = &mut self.missing[usize::from(id.0)];
        if missing.chunks > 0 {
            missing.chunks -= 1;
            if missing.chunks == 0 {
                self.seen.rebuilds.push(self.now - missing.since);
            }
        }
    }

    /// Tells placement how stores are now.
    fn changes(&mut self) {
        while let Some(change) = self.members.poll_change() {
            self.cluster.stores[usize::from(change.id.0)].state = change.is;
            self.chooser.handle_store(&self.cluster, change.id);
        }
    }

    /// Stores that were silent for too long are out: what they have is known to be missing.
    fn look(&mut self) {
        let out: Vec<TargetId> = self.members.poll_repair(self.time());
        self.changes();
        if out.is_empty() {
            return;
        }
        for &id in &out {
            let chunks: Vec<(usize, usize)> = self.table.chunks_of(id).collect();
            for (set, position) in chunks {
                let lacks = self.degraded.entry(set as u32).or_default();
                lacks.known |= (1 << position) & !lacks.rebuilding;
            }
        }
        // The queue knows of them from here on.
        self.members.handle_repair(&out, self.time(), true, self.time());
        self.plan_repairs();
    }
}
