//! What an archive job tells about itself: plain data that the engine fills while it works and the report reads afterwards.
//!
//! All of it is bounded, however long the job and however many its files: lists keep a limit and count the rest.

use super::bounded::{Listed, Series, Sizes, Timeline};
use plan::energy::Account;
use serde::{Deserialize, Serialize};

/// Everything that is known of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// The job's name.
    pub job: String,
    /// What it does.
    pub task: Task,
    /// Version of the program.
    pub version: String,
    /// What was archived or restored, or what was compared with.
    pub sources: Vec<String>,
    /// Where to, or what was compared.
    pub volume: String,
    /// The code as it is written, `rs:4+2`.
    pub code: String,
    /// Data blocks of a stripe.
    pub k: usize,
    /// Parity blocks of a stripe.
    pub m: usize,
    /// `demand` or `round-robin`.
    pub schedule: String,
    /// How the roles talked: `threads`, or `mpi` with so many ranks.
    pub transport: String,
    /// When it began, in seconds since 1970.
    pub start_unix_seconds: u64,
    /// How long it took.
    pub wall_seconds: f64,
    /// Processor time of all its processes.
    pub cpu_seconds: f64,
    /// How it ended.
    pub ending: Ending,
    /// Who coded.
    pub workers: Vec<Worker>,
    /// Files that it archived, restored or found to be as they should.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Directories, links and special files, likewise.
    pub others: u64,
    /// Files that were there already and were left alone.
    pub unchanged_files: u64,
    /// Their bytes.
    pub unchanged_bytes: u64,
    /// Sizes of the files that it did.
    pub sizes: Sizes,
    /// What it wrote.
    pub written: Written,
    /// Bytes of user data that were done, over time.
    pub throughput: Series,
    /// Where the time went. They may overlap, so that their wall times need not add up to the job's.
    pub phases: Vec<Phase>,
    /// What went wrong, a line each with its path.
    pub errors: Listed,
    /// What each source says of the energy; empty when nobody asked.
    pub energy: Vec<Account>,
}

/// What a job does with files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Task {
    /// Puts them into a volume.
    #[default]
    Archive,
    /// Gets them back.
    Restore,
    /// Compares them.
    Verify,
}

impl Task {
    /// The phase in which its workers are at files.
    pub fn phase(self) -> &'static str {
        match self {
            Self::Archive => "encode",
            Self::Restore => "restore",
            Self::Verify => "verify",
        }
    }

    /// What the job's sources are to it, and what its volume.
    pub fn ends(self) -> [&'static str; 2] {
        match self {
            Self::Archive | Self::Restore => ["from", "to"],
            Self::Verify => ["with", "of"],
        }
    }

    /// What was done with data when it counts.
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
    /// It goes on.
    #[default]
    Running,
    /// Everything was done, but for what `errors` names.
    Finished,
    /// It was stopped; the rest is done when it is started again.
    Interrupted,
    /// It could not go on.
    Failed,
}

impl Ending {
    /// In a word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Finished => "finished",
            Self::Interrupted => "interrupted",
            Self::Failed => "failed",
        }
    }
}

/// One that coded. All times are seconds since the job began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Worker {
    /// Its name: `worker 3`, or `rank 5 on node7`.
    pub name: String,
    /// Its tasks.
    pub tasks: u64,
    /// Bytes of user data in them.
    pub bytes: u64,
    /// When it was at work: also its first start, first finish, last finish and busy time.
    pub timeline: Timeline,
}

/// What was written to the targets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    /// Chunk sets begun.
    pub chunk_sets: u64,
    /// Chunks of data.
    pub data_chunks: u64,
    /// Chunks of code.
    pub code_chunks: u64,
    /// Bytes of all of them that this job wrote.
    pub bytes: u64,
}

/// A phase of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// `explore`, `encode`, `commit`, `restore`, `verify`.
    pub name: String,
    /// From its beginning to its end.
    pub wall_seconds: f64,
    /// Processor time in it.
    pub cpu_seconds: f64,
}
