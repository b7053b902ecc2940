//! The facts of an archive job: plain data that the engine fills while it works and that the report
//! reads afterwards.
//!
//! All of it is bounded, however long the job is and however many files it has: lists have a limit
//! and count the rest.

use super::bounded::{Listed, Series, Sizes, Timeline};
use plan::energy::Account;
use serde::{Deserialize, Serialize};

/// All facts of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// The job's name.
    pub job: String,
    /// What the job does.
    pub task: Task,
    /// The version of the program.
    pub version: String,
    /// The sources of an archive job or a restore, or what a check compared with.
    pub sources: Vec<String>,
    /// The destination, or what a check compared.
    pub volume: String,
    /// The code in its notation: `rs:4+2`.
    pub code: String,
    /// Data blocks of a stripe.
    pub k: usize,
    /// Parity blocks of a stripe.
    pub m: usize,
    /// `demand` or `round-robin`.
    pub schedule: String,
    /// How the roles communicated: `threads`, or `mpi` with the number of ranks.
    pub transport: String,
    /// When the job began, in seconds since 1970.
    pub start_unix_seconds: u64,
    /// How long the job took, in seconds.
    pub wall_seconds: f64,
    /// Processor time of all processes of the job, in seconds.
    pub cpu_seconds: f64,
    /// How the job ended.
    pub ending: Ending,
    /// The workers.
    pub workers: Vec<Worker>,
    /// Files that the job archived, restored or verified.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Directories, links and special files that it archived, restored or verified.
    pub others: u64,
    /// Files that were found so far.
    #[serde(default)]
    pub found_files: u64,
    /// Their bytes.
    #[serde(default)]
    pub found_bytes: u64,
    /// Everything was found that there is to find.
    #[serde(default)]
    pub explored: bool,
    /// Files that existed already and were left alone.
    pub unchanged_files: u64,
    /// Their bytes.
    pub unchanged_bytes: u64,
    /// Sizes of the files that were done.
    pub sizes: Sizes,
    /// What the job wrote.
    pub written: Written,
    /// Bytes of user data that were done, over time.
    pub throughput: Series,
    /// The phases. They may overlap, so that their wall times need not add up to the job's.
    pub phases: Vec<Phase>,
    /// Problems: a line each, with the path.
    pub errors: Listed,
    /// What each source says about the energy; empty if that was not requested.
    pub energy: Vec<Account>,
}

/// What a job does with files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Task {
    /// Archives files into a volume.
    #[default]
    Archive,
    /// Restores files.
    Restore,
    /// Compares files.
    Verify,
}

impl Task {
    /// The name of the phase in which workers process files.
    pub fn phase(self) -> &'static str {
        match self {
            Self::Archive => "encode",
            Self::Restore => "restore",
            Self::Verify => "verify",
        }
    }

    /// The labels of the job's sources and of its volume.
    pub fn ends(self) -> [&'static str; 2] {
        match self {
            Self::Archive | Self::Restore => ["from", "to"],
            Self::Verify => ["with", "of"],
        }
    }

    /// The verb for data that is done.
    pub fn done(self) -> &'static str {
        match self {
            Self::Archive => "coded and written",
            Self::Restore => "decoded and written",
            Self::Verify => "read and compared",
        }
    }
}

/// How a job ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ending {
    /// It is still running.
    #[default]
    Running,
    /// Everything is done except what `errors` lists.
    Finished,
    /// It was stopped. A restarted job does the rest.
    Interrupted,
    /// It could not continue.
    Failed,
}

impl Ending {
    /// The ending in one word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Finished => "finished",
            Self::Interrupted => "interrupted",
            Self::Failed => "failed",
        }
    }
}

/// A worker. All times are seconds since the job began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Worker {
    /// Its name: `worker 3`, or `rank 5 on node7`.
    pub name: String,
    /// The number of its tasks.
    pub tasks: u64,
    /// The bytes of user data in them.
    pub bytes: u64,
    /// When it was busy, with its first start, first finish, last finish and busy time.
    pub timeline: Timeline,
}

/// What was written to the targets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    /// Chunk sets that the job began.
    pub chunk_sets: u64,
    /// Chunks of data.
    pub data_chunks: u64,
    /// Parity chunks.
    pub code_chunks: u64,
    /// Bytes of all chunks that the job wrote.
    pub bytes: u64,
}

/// A phase of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// `explore`, `encode`, `commit`, `restore` or `verify`.
    pub name: String,
    /// The time from its beginning to its end, in seconds.
    pub wall_seconds: f64,
    /// Processor time in it, in seconds.
    pub cpu_seconds: f64,
}
