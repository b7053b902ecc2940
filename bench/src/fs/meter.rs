//! One workload in one directory in one round: what it may use, and what it found.

use super::account::Account;
use super::args::Effort;
use super::cache::Cold;
use super::content::Content;
use serde::Serialize;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How much was done in a measured time.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// Bytes of file data: MiB/s.
    Bytes(u64),
    /// Operations: operations per second.
    Operations(u64),
}

/// A measurement in one round.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The row.
    pub name: String,
    /// The unit of the value.
    pub unit: &'static str,
    /// The value.
    pub value: f64,
    /// Processor time of the whole system and of the server: seconds per GiB, or microseconds per
    /// operation.
    pub processor: Option<(f64, Option<f64>)>,
}

/// Why a workload ended early.
#[derive(Clone, Debug, Serialize)]
pub struct Fault {
    /// The step and the system's complaint.
    pub message: String,
    /// The error number, when the system gave one.
    pub errno: Option<i32>,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Says what was being done when a call failed.
pub trait Doing<T> {
    /// Adds the step to an error.
    fn doing(self, step: &str) -> Result<T, Fault>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, step: &str) -> Result<T, Fault> {
        self.map_err(|e| Fault { message: format!("{step}: {e}"), errno: e.raw_os_error() })
    }
}

/// A measured time that has begun.
pub struct Watch {
    start: Instant,
    account: Account,
}

/// What a workload works with.
pub struct Meter<'a> {
    /// An empty directory of its own.
    pub directory: PathBuf,
    /// How much to do.
    pub effort: Effort,
    /// What files hold.
    pub content: &'a Content,
    /// How caches are dropped.
    pub cold: Cold,
    /// The round, from 0; it changes what is written where.
    pub round: u64,
    /// The process that serves the directory.
    pub server: Option<u32>,
    /// The processes that serve any directory.
    pub servers: &'a [u32],
    /// What was measured so far.
    pub samples: Vec<Sample>,
}

/// How long the machine is left alone before a measurement, at least and at most.
const MIN_REST: Duration = Duration::from_millis(500);
const MAX_REST: Duration = Duration::from_secs(60);
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

impl Meter<'_> {
    /// Lets what went before come to an end: data to write, blocks to discard, inodes that servers
    /// have to forget.
    pub fn settle(&self) -> Result<(), Fault> {
        rustix::fs::sync();
        self.cold.drop_names().doing("dropping caches")?;
        let start = Instant::now();
        let used = || -> f64 { self.servers.iter().filter_map(|&pid| Account::now(Some(pid)).server).sum() };
        let mut before = used();
        loop {
            std::thread::sleep(CHECK_INTERVAL);
            let now = used();
            let is_quiet = now == before && (self.effort.hasty || start.elapsed() >= MIN_REST);
            if is_quiet || start.elapsed() >= MAX_REST {
                return Ok(());
            }
            before = now;
        }
    }

    /// Begins to measure.
    pub fn start(&self) -> Watch {
        Watch { start: Instant::now(), account: Account::now(self.server) }
    }

    /// Notes what was done since then. The watch goes on, so that a later step can include this
    /// one.
    pub fn record(&mut self, name: impl Into<String>, work: Work, since: &Watch) -> f64 {
        let seconds = since.start.elapsed().as_secs_f64();
        let account = Account::now(self.server);
        let (unit, amount, scale) = match work {
            Work::Bytes(bytes) => ("MiB/s", bytes as f64 / 1_048_576.0, 1024.0),
            Work::Operations(count) => ("ops/s", count as f64, 1e6),
        };
        let per = |time: f64| time / amount * scale;
        let server = account.server.zip(since.account.server).map(|(now, then)| per(now - then));
        let processor = Some((per(account.system - since.account.system), server));
        let value = amount / seconds;
        self.samples.push(Sample { name: name.into(), unit, value, processor });
        value
    }

    /// Notes how many times one rate is another.
    pub fn note_ratio(&mut self, name: impl Into<String>, value: f64) {
        self.samples.push(Sample { name: name.into(), unit: "ratio", value, processor: None });
    }
}
