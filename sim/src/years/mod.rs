//! Years of failures: what is lost and when it is whole again, with the real order of repairs, the
//! real destinations and the real time until a store counts as out.

mod events;
mod exposure;
mod repairs;
mod run;

use crate::chance::Estimate;
use crate::cluster::Cluster;
use crate::config::{Config, Failures};
use crate::table::Table;
use crate::watch::{Phase, Watch};
use plan::durability::Chain;
use run::{Run, Seen, YEAR};
use serde::Serialize;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// What all runs saw.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Years {
    /// Years of all runs together.
    pub years: u64,
    /// Stores that were lost with their data.
    pub failures: u64,
    /// Chunks that were rebuilt.
    pub rebuilt_chunks: u64,
    /// Sectors that a repair could not read.
    pub latent_errors: u64,
    /// Seconds from the loss of a store until its chunks were rebuilt.
    pub rebuild_seconds: Times,
    /// By number of lost chunks, from one to m: how many sets, and for how long.
    pub exposure: Vec<Level>,
    /// Sets that were lost.
    pub lost_sets: u64,
    /// The part of the years in which a set was lost.
    pub loss_per_year: Estimate,
    /// The same by a Markov chain.
    pub markov: Markov,
}

/// Some times, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Times {
    /// How many.
    pub count: u64,
    /// The one in the middle.
    pub median: f64,
    /// Of a hundred, 99 are no longer.
    pub most_of_99: f64,
    /// The longest.
    pub longest: f64,
}

/// Sets that had lost a number of chunks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Level {
    /// So many.
    pub lost: u64,
    /// Hours that a set was so, in a year, all sets together.
    pub set_hours_per_year: f64,
    /// The mean time until such a set was whole, in seconds.
    pub mean_seconds: Option<f64>,
    /// Over the time of a run, the most sets at once in any run.
    pub most: Vec<u64>,
}

/// What a Markov chain says, with the mean times of repair that the simulation saw.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Markov {
    /// Mean years until one set is lost.
    pub years_to_loss_of_a_set: Option<f64>,
    /// The chance that any set is lost within a year, if sets were lost independently.
    pub loss_per_year: f64,
    /// How often a chunk is lost, in a year.
    pub chunk_losses_per_year: f64,
    /// Mean seconds until a set is whole, by number of lost chunks.
    pub repair_seconds: Vec<f64>,
}

/// What the tables of all threads may take.
const MOST_BYTES: usize = 2 << 30;

/// All runs, on so many threads. The result does not depend on these.
pub fn simulate(
    config: &Config,
    failures: &Failures,
    cluster: &Cluster,
    table: &Table,
    threads: usize,
    watch: &Watch,
) -> Years {
    watch.begin(Phase::Years, u64::from(failures.runs) * u64::from(failures.years));
    let next = AtomicU32::new(0);
    let all: Mutex<Vec<(u32, Seen)>> = Mutex::new(Vec::new());
    let work = || {
        loop {
            let number = next.fetch_add(1, Relaxed);
            if number >= failures.runs {
                return;
            }
            let seen = Run::new(config, failures, cluster, table, number).run(|| watch.add(1));
            all.lock().expect("no thread panics with it").push((number, seen));
        }
    };
    // Each run has a table of its own.
    let fits = (MOST_BYTES / (2 * table.sets() * table.width()).max(1)).max(1);
    std::thread::scope(|scope| {
        (1..threads.min(fits).clamp(1, failures.runs as usize)).for_each(|_| drop(scope.spawn(work)));
        work();
    });
    let mut all = all.into_inner().expect("no thread panics with it");
    all.sort_by_key(|(number, _)| *number);
    let all: Vec<Seen> = all.into_iter().map(|(_, seen)| seen).collect();
    summary(config, failures, cluster, &all)
}

fn summary(config: &Config, failures: &Failures, cluster: &Cluster, all: &[Seen]) -> Years {
    let years = u64::from(failures.runs) * u64::from(failures.years);
    let sum = |of: fn(&Seen) -> u64| all.iter().map(of).sum::<u64>();
    let mut exposure = all[0].exposure.clone();
    all[1..].iter().for_each(|seen| exposure.add(&seen.exposure));
    let mut rebuilds: Vec<u64> = all.iter().flat_map(|seen| &seen.rebuilds).copied().collect();
    rebuilds.sort_unstable();
    let level = |lost: usize| {
        let (time, repaired) = (exposure.time[lost] as f64, exposure.repaired[lost]);
        Level {
            lost: lost as u64,
            set_hours_per_year: time / 3_600e3 / years as f64,
            mean_seconds: (repaired > 0).then(|| time / 1e3 / repaired as f64),
            most: exposure.most[lost].to_vec(),
        }
    };
    let levels: Vec<Level> = (1..=config.volume.m as usize).map(level).collect();
    let bad_years = all.iter().flat_map(|seen| &seen.years).filter(|bad| **bad).count() as u64;
    Years {
        years,
        failures: sum(|seen| seen.failures),
        rebuilt_chunks: sum(|seen| seen.rebuilt),
        latent_errors: sum(|seen| seen.latent),
        rebuild_seconds: times(&rebuilds),
        lost_sets: sum(|seen| seen.lost_sets),
        loss_per_year: Estimate::of(bad_years, years),
        markov: markov(config, failures, cluster, &levels),
        exposure: levels,
    }
}

/// Of sorted milliseconds.
fn times(sorted: &[u64]) -> Times {
    let at = |part: f64| {
        let place = ((sorted.len() as f64 * part).ceil() as usize).saturating_sub(1);
        sorted.get(place).map_or(0.0, |time| *time as f64 / 1e3)
    };
    Times { count: sorted.len() as u64, median: at(0.5), most_of_99: at(0.99), longest: at(1.0) }
}

fn markov(config: &Config, failures: &Failures, cluster: &Cluster, levels: &[Level]) -> Markov {
    let alone = if failures.server_mtbf_years > 0.0 { 1.0 / failures.server_mtbf_years } else { 0.0 };
    let together = failures.correlated_per_year * f64::from(failures.correlated_stores) / cluster.stores.len() as f64;
    let loss = alone + together;
    // Where no set was repaired with so many lost: the time until that is known, and a chunk.
    let slowest = cluster.stores.iter().map(|store| store.disk.min(store.link)).fold(f64::INFINITY, f64::min);
    let chunk = config.volume.chunk.0 as f64 / (failures.repair_share * slowest);
    let unseen = failures.detection_minutes * 60.0 + chunk;
    let seconds: Vec<f64> = levels.iter().map(|level| level.mean_seconds.unwrap_or(unseen)).collect();
    let repair = seconds.iter().map(|seconds| YEAR / 1e3 / seconds.max(1e-3)).collect();
    let chain = Chain { width: config.volume.width() as u32, loss, repair };
    let time = chain.mean_time_to_loss();
    Markov {
        years_to_loss_of_a_set: time.is_finite().then_some(time),
        loss_per_year: chain.chance_of_loss(config.volume.sets as f64, 1.0),
        chunk_losses_per_year: loss,
        repair_seconds: seconds,
    }
}

#[cfg(test)]
mod tests;
