//! What was measured.

use plan::energy::{Basis, Split};
use serde::Serialize;

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub struct Measurement {
    /// Weft's version.
    pub weft: &'static str,
    /// When, in universal time.
    pub date: String,
    /// The processor.
    pub processor: String,
    /// Cores that this process may use; a job uses one to code.
    pub cores: usize,
    /// Whether the sizes were tiny, so that the figures mean nothing.
    pub quick: bool,
    /// Rounds of everything; the median counts.
    pub rounds: u32,
    /// User data of a job: what stands for the study's 40 GB.
    pub bytes: u64,
    /// The kernel of the methods with SIMD.
    pub simd: &'static str,
    /// The instrument, or the model with its constants.
    pub energy: String,
    /// Whether energies are measured.
    pub basis: Basis,
    /// Instruments that were asked for and have no account, and why.
    pub refused: Vec<String>,
    /// Source and destination devices.
    pub pairs: Vec<Pair>,
    /// Reading, then writing, without coding (figure 2).
    pub copies: Vec<Copied>,
    /// Jobs (figures 3 to 7, table 4).
    pub jobs: Vec<Job>,
}

/// A source and a destination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Pair {
    pub from: String,
    pub to: String,
    /// Their numbers in the order of the command line.
    pub numbers: (usize, usize),
}

impl Pair {
    /// In words.
    pub fn name(&self) -> String {
        if self.from == self.to { self.from.clone() } else { format!("{} to {}", self.from, self.to) }
    }

    /// Whether all methods run on it.
    pub fn is_whole(&self) -> bool {
        self.numbers.0 == self.numbers.1
    }
}

/// Objects that were read and written.
#[derive(Clone, Debug, Serialize)]
pub struct Copied {
    pub pair: usize,
    pub objects: u64,
    pub object_bytes: u64,
    pub took: Took,
}

/// A method at a shape.
#[derive(Clone, Debug, Serialize)]
pub struct Job {
    pub pair: usize,
    /// The study's name.
    pub method: &'static str,
    pub what: &'static str,
    pub code: String,
    pub kernel: &'static str,
    pub k: usize,
    pub m: usize,
    /// From the source's device into k+m chunk files on the destination's, synced.
    pub encode: Took,
    /// Back, with the first m data chunks lost; only where all methods run.
    pub decode: Option<Took>,
}

/// What something took.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Took {
    pub seconds: f64,
    /// Processor time in the program: coding and checksums.
    pub user_seconds: f64,
    /// Processor time in the system: input and output.
    pub system_seconds: f64,
    pub joules: f64,
    pub basis: Basis,
    /// By cause, where that can be told.
    pub split: Option<Split>,
}

impl Took {
    /// T_io and all else: when the program did not compute.
    pub fn io_seconds(&self) -> f64 {
        (self.seconds - self.user_seconds).max(0.0)
    }
}

impl Measurement {
    /// A job, by what was done.
    pub fn job(&self, pair: usize, method: &str, shape: (usize, usize)) -> Option<&Job> {
        self.jobs.iter().find(|job| job.pair == pair && job.method == method && (job.k, job.m) == shape)
    }
}
