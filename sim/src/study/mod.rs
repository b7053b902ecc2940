//! The comparison of placement policies in paper 003 (ECFS), section VI.B, figures 8 to 11: nodes
//! that are storage servers and clients at the same time, each client writes a file of 4 GB in 6+2,
//! and in the unbalanced case half of them write a second one.
//!
//! What the paper says is kept: 32 MB blocks, a server chosen for each block, parity after data,
//! reports at an interval. What it does not say is assumed and can be set: how fast a disk and a
//! writer are, how much the speeds of nodes differ and for how long, what a writer takes of its
//! node, what seeks cost. So the differences between policies depend on these, and no figure is
//! a measurement.

mod choose;
mod model;
mod report;
mod setting;

pub use report::{csv, html, text};
pub use setting::{Policy, Setting};

use serde::Serialize;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// What is compared.
#[derive(Clone, Debug)]
pub struct Options {
    /// Numbers of servers: 8 to 1024. A set of k+m must fit, and a target's number has 16 bits.
    pub servers: Vec<usize>,
    /// Runs of each, with other chances; the results are means.
    pub seeds: u64,
    /// The first seed.
    pub seed: u64,
    /// Threads; the result does not depend on them.
    pub threads: usize,
    /// Everything else; `servers` and `unbalanced` of it do not count.
    pub setting: Setting,
}

impl Default for Options {
    fn default() -> Self {
        Self { servers: vec![8, 16, 32, 128, 1024], seeds: 4, seed: 1, threads: 2, setting: Setting::default() }
    }
}

/// A policy in one setting.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// Which.
    pub policy: Policy,
    /// Bytes of user data a second until the last writer ended: the mean of all runs.
    pub bytes_per_second: f64,
    /// The least and the most of the runs.
    pub range: [f64; 2],
    /// The sum of the writers' own speeds, which IOzone would print.
    pub sum_of_writers: f64,
    /// By how much more than round-robin: 0.1 is 10 %.
    pub over_round_robin: f64,
    /// By how much more than random.
    pub over_random: f64,
    /// How far the server with the most bytes, or the fewest, is from the mean: the mean of all
    /// runs.
    pub uneven: f64,
    /// Bytes on each server, of the first run.
    pub space: Vec<u64>,
}

/// All policies with some servers and one kind of load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Servers.
    pub servers: usize,
    /// Whether half of the clients have a second writer.
    pub unbalanced: bool,
    /// By policy.
    pub outcomes: Vec<Outcome>,
}

/// What the paper says of 32 servers: adaptive over round-robin and over random, balanced and
/// unbalanced (section VI.B).
pub const PAPER: [[f64; 2]; 2] = [[0.129, 0.389], [0.227, 0.42]];

/// The whole comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Study {
    /// The form of this document.
    pub version: u32,
    /// That it is modelled, in words.
    pub what: &'static str,
    /// What was kept and what was assumed.
    pub setting: Setting,
    /// Runs of each.
    pub seeds: u64,
    /// By number of servers, balanced and unbalanced.
    pub comparisons: Vec<Comparison>,
    /// What the paper says: see [`PAPER`].
    pub paper: [[f64; 2]; 2],
}

/// Runs the comparison.
///
/// # Errors
/// One line, when an option has no meaning.
pub fn study(options: &Options) -> Result<Study, String> {
    let width = options.setting.k + options.setting.m;
    if options.servers.is_empty() || options.servers.iter().any(|servers| !(width..=4096).contains(servers)) {
        return Err(format!("servers are from {width}, the blocks of a stripe, to 4096"));
    }
    if !(1..=1000).contains(&options.seeds) {
        return Err("seeds are from 1 to 1000".into());
    }
    let of = &options.setting;
    let positive = [of.disk_per_second, of.writer_per_second, of.speed_seconds, of.report_seconds];
    if !positive.iter().all(|value| (1e-2..1e12).contains(value)) || of.in_network == 0 || of.k == 0 {
        return Err("speeds, times and sub-networks of a setting are above 0".into());
    }
    let mut jobs = Vec::new();
    for &servers in &options.servers {
        for unbalanced in [false, true] {
            for policy in Policy::ALL {
                let seeds = (0..options.seeds).map(|seed| options.seed.wrapping_add(seed));
                let setting = Setting { servers, unbalanced, ..options.setting.clone() };
                jobs.extend(seeds.map(|seed| (setting.clone(), policy, seed)));
            }
        }
    }
    let ran = all(&jobs, options.threads);
    let (each, policies) = (options.seeds as usize, Policy::ALL.len());
    let comparisons = jobs.chunks(each * policies).zip(ran.chunks(each * policies));
    let comparisons = comparisons.map(|(jobs, ran)| compare(&jobs[0].0, &ran.chunks(each).collect::<Vec<_>>()));
    Ok(Study {
        version: 1,
        what: "modelled; see the setting for what is assumed",
        setting: options.setting.clone(),
        seeds: options.seeds,
        comparisons: comparisons.collect(),
        paper: PAPER,
    })
}

/// Runs all, the order of the results being that of the jobs.
fn all(jobs: &[(Setting, Policy, u64)], threads: usize) -> Vec<model::Ran> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, model::Ran)>> = Mutex::new(Vec::with_capacity(jobs.len()));
    let work = || {
        loop {
            let number = next.fetch_add(1, Relaxed);
            let Some((setting, policy, seed)) = jobs.get(number) else { return };
            let ran = model::run(setting, *policy, *seed);
            done.lock().expect("no thread panics with it").push((number, ran));
        }
    };
    std::thread::scope(|scope| {
        (1..threads.clamp(1, 64)).for_each(|_| drop(scope.spawn(work)));
        work();
    });
    let mut done = done.into_inner().expect("no thread panics with it");
    done.sort_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, ran)| ran).collect()
}

fn compare(setting: &Setting, by_policy: &[&[model::Ran]]) -> Comparison {
    let mean = |ran: &[model::Ran], of: &dyn Fn(&model::Ran) -> f64| ran.iter().map(of).sum::<f64>() / ran.len() as f64;
    let speed = |policy: Policy| {
        let place = Policy::ALL.iter().position(|known| *known == policy).expect("it is one of all");
        mean(by_policy[place], &|ran| ran.until_last)
    };
    let uneven = |ran: &model::Ran| {
        let mean = ran.space.iter().sum::<u64>() as f64 / ran.space.len() as f64;
        ran.space.iter().map(|space| (*space as f64 / mean - 1.0).abs()).fold(0.0, f64::max)
    };
    let outcome = |(&policy, ran): (&Policy, &&[model::Ran])| {
        let speeds = || ran.iter().map(|ran| ran.until_last);
        Outcome {
            policy,
            bytes_per_second: speed(policy),
            range: [speeds().fold(f64::INFINITY, f64::min), speeds().fold(0.0, f64::max)],
            sum_of_writers: mean(ran, &|ran| ran.of_writers),
            over_round_robin: speed(policy) / speed(Policy::RoundRobin) - 1.0,
            over_random: speed(policy) / speed(Policy::Random) - 1.0,
            uneven: mean(ran, &uneven),
            space: ran[0].space.clone(),
        }
    };
    Comparison {
        servers: setting.servers,
        unbalanced: setting.unbalanced,
        outcomes: Policy::ALL.iter().zip(by_policy).map(outcome).collect(),
    }
}

#[cfg(test)]
mod tests;
