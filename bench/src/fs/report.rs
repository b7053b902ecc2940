//! What was measured: rows of figures, a column for each directory.

use super::args::{Args, Target, Workload};
use super::cache::Cold;
use super::meter::{Fault, Sample};
use crate::results::Figure;
use serde::Serialize;
use std::path::Path;
use std::time::SystemTime;

/// Everything that was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Weft's version.
    pub weft: &'static str,
    /// When, in universal time.
    pub date: String,
    /// The command that repeats it.
    pub command: String,
    /// Rounds of every figure.
    pub rounds: u32,
    /// Whether the sizes were tiny, so that the figures mean nothing.
    pub quick: bool,
    /// The processor.
    pub processor: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// Main memory in bytes, 0 when it is not known.
    pub memory_bytes: u64,
    /// The kernel's release.
    pub kernel: String,
    /// How caches were dropped.
    pub cold: &'static str,
    /// The directories, in column order.
    pub places: Vec<Place>,
    /// The results.
    pub rows: Vec<Row>,
    /// Workloads that failed.
    pub failures: Vec<Failure>,
}

/// A directory.
#[derive(Clone, Debug, Serialize)]
pub struct Place {
    /// The column's heading.
    pub label: String,
    /// The type of its file system.
    pub file_system: String,
    /// The greatest memory of the process that serves it, since that started.
    pub server_peak_bytes: Option<u64>,
}

/// One measurement in every directory.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The workload.
    pub workload: String,
    /// What was measured.
    pub name: String,
    /// Its unit: MiB/s, ops/s or ratio.
    pub unit: &'static str,
    /// The unit of processor time: s/GiB or us/op.
    pub processor_unit: &'static str,
    /// Results, in column order; empty where there is none.
    pub cells: Vec<Option<Cell>>,
}

/// The result in one directory.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    /// The rate.
    #[serde(flatten)]
    pub figure: Figure,
    /// How many times the first directory's figure this is.
    pub ratio_to_first: Option<f64>,
    /// Processor time of the whole system.
    pub system: Option<Figure>,
    /// Processor time of the process that serves the directory.
    pub server: Option<Figure>,
}

/// A workload that ended early.
#[derive(Clone, Debug, Serialize)]
pub struct Failure {
    /// The workload.
    pub workload: String,
    /// The directory.
    pub label: String,
    /// The round, from 1; it is not tried again in later ones.
    pub round: u64,
    /// Why.
    #[serde(flatten)]
    pub fault: Fault,
}

impl Report {
    /// Puts the results together with where they come from.
    pub fn new(args: &Args, cold: Cold, places: Vec<Place>, rows: Vec<Row>, failures: Vec<Failure>) -> Self {
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            weft: env!("CARGO_PKG_VERSION"),
            date: crate::report::date(SystemTime::now()),
            command: args.command(),
            rounds: args.rounds,
            quick: args.quick,
            processor: volume::machine::processor().unwrap_or_else(|| "unknown".into()),
            cores: crate::threads::cores(),
            memory_bytes: crate::machine::memory("MemTotal").unwrap_or(0),
            kernel: kernel.trim().to_owned(),
            cold: cold.describe(),
            places,
            rows,
            failures,
        }
    }
}

impl Place {
    /// Describes a directory.
    pub fn new(target: &Target, server_peak_bytes: Option<u64>) -> Self {
        let file_system = file_system(&target.directory).unwrap_or_else(|| "unknown".into());
        Self { label: target.label.clone(), file_system, server_peak_bytes }
    }
}

/// The type of the file system that a directory is in: of the mount points above it, the longest
/// and latest.
fn file_system(directory: &Path) -> Option<String> {
    let directory = directory.canonicalize().ok()?;
    let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
    let fields = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        Some((fields.next()?, fields.next()?))
    });
    let above = fields.filter(|(point, _)| directory.starts_with(point));
    Some(above.max_by_key(|(point, _)| point.len())?.1.to_owned())
}

/// Samples of all rounds, in the order in which their rows first appeared.
#[derive(Default)]
pub struct Ledger {
    entries: Vec<Entry>,
}

struct Entry {
    workload: Workload,
    place: usize,
    sample: Sample,
}

impl Ledger {
    /// Adds one turn's samples.
    pub fn add(&mut self, workload: Workload, place: usize, samples: Vec<Sample>) {
        self.entries.extend(samples.into_iter().map(|sample| Entry { workload, place, sample }));
    }

    /// The medians.
    pub fn rows(&self, args: &Args) -> Vec<Row> {
        let mut rows: Vec<Row> = vec![];
        for entry in &self.entries {
            let workload = entry.workload.name();
            if rows.iter().any(|row| row.workload == workload && row.name == entry.sample.name) {
                continue;
            }
            let first = self.cell(entry, 0, None);
            let cell = |place| self.cell(entry, place, first.as_ref());
            rows.push(Row {
                workload,
                name: entry.sample.name.clone(),
                unit: entry.sample.unit,
                processor_unit: if entry.sample.unit == "MiB/s" { "s/GiB" } else { "us/op" },
                cells: (0..args.targets.len()).map(cell).collect(),
            });
        }
        rows
    }

    fn cell(&self, like: &Entry, place: usize, first: Option<&Cell>) -> Option<Cell> {
        let same = |e: &&Entry| e.place == place && e.workload == like.workload && e.sample.name == like.sample.name;
        let samples: Vec<&Sample> = self.entries.iter().filter(same).map(|entry| &entry.sample).collect();
        let figure = |of: &dyn Fn(&Sample) -> Option<f64>| {
            let values: Vec<f64> = samples.iter().filter_map(|sample| of(sample)).collect();
            (!values.is_empty()).then(|| Figure::of(values))
        };
        let rate = figure(&|sample| Some(sample.value))?;
        Some(Cell {
            ratio_to_first: first.map(|first| rate.ratio(&first.figure)),
            figure: rate,
            system: figure(&|sample| Some(sample.processor?.0)),
            server: figure(&|sample| sample.processor?.1),
        })
    }
}
