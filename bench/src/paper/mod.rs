//! `weft bench archive --paper`: the experiments of the parallel encoder's and the energy study
//! (P7, S2), scaled to this machine, and trees of large and small files beside `cp -r`.
//!
//! The program runs itself as a user would. What needs more cores than there are is modelled by the
//! archive's own scheduler from times measured here, and says so, in a table of its own.

pub mod energy;
mod jobs;
mod show;
pub mod table;
mod tree;
mod wide;

use crate::args::{Lanes, Section};
use plan::schedule::Policy;
use serde::Serialize;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Arguments of `weft bench archive`.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "Examples:
  # All experiments, in some minutes.
  weft bench archive --paper --dir /archive \\
      --html paper.html
  # Sizes for which turns are as bad as in the study.
  weft bench archive --paper --size-mix periodic
  # Under MPI, with weft-mpi beside weft.
  weft bench archive --paper --mpi
  # A large file as in the study; the volume takes 1.5 times
  # as much beside it.
  weft bench archive --paper --bytes 40GiB --dir /archive
  # Energy from a meter at the plug.
  weft bench archive --paper --meter /var/log/meter.csv
  # A trial run; the figures mean nothing.
  weft bench archive --paper --quick --json

Peers are built by `cargo xtask peers`; each that is missing is named and left out.")]
pub struct Args {
    /// The studies' experiments
    #[arg(long, required = true)]
    pub paper: bool,
    /// Where sources and volumes are made; they are removed again
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,
    /// Rounds of every measurement but that of the schedules; the median counts
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// The size of the file in 20 and 40 parts, at most; in fewer parts it has four fifths of it.
    /// The study has 40 GB
    #[arg(long, value_name = "SIZE", default_value = "640MiB", value_parser = size)]
    pub bytes: u64,
    /// Sizes of the 600 objects
    #[arg(long, value_enum, default_value_t = SizeMix::Mixed)]
    pub size_mix: SizeMix,
    /// Run the parallel encoder's jobs with mpirun and weft-mpi, a rank for each worker
    #[arg(long)]
    pub mpi: bool,
    /// Options of `weft archive` that name its instruments.
    #[arg(skip)]
    pub instruments: Vec<OsString>,
    /// Tiny sizes: shows that everything works; the figures mean nothing
    #[arg(long)]
    pub quick: bool,
    /// Where the peers' executables are [default: target/peers beside this program's, or
    /// ./target/peers]
    #[arg(long, value_name = "DIR")]
    pub peers: Option<PathBuf>,
    /// Print one JSON document instead of text
    #[arg(long)]
    pub json: bool,
    /// Write all results as JSON
    #[arg(long, value_name = "FILE")]
    pub json_file: Option<PathBuf>,
    /// Write the tables, a line for each cell
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Write a self-contained page with charts
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// Sizes of the many objects; the study does not publish its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum SizeMix {
    /// Spread evenly over three powers of ten, in no order
    Mixed,
    /// Every eighth is seven times as large as the others, as where each step of a program writes
    /// one large file and seven small ones: in turn, four workers of 32 get all large ones
    Periodic,
}

/// A size of a file in parts.
fn size(given: &str) -> Result<u64, String> {
    let least = jobs::UNITS << 16;
    let bytes = plan::sizes::bytes(given)?;
    if bytes < least { Err(format!("it is {least} bytes or more")) } else { Ok(bytes) }
}

/// Everything that was measured and modelled.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Weft's version.
    pub weft: &'static str,
    /// When, in universal time.
    pub date: String,
    /// Whether the sizes were tiny, so that the figures mean nothing.
    pub quick: bool,
    /// Rounds of every measurement.
    pub rounds: u32,
    /// The processor.
    pub processor: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// How the parallel encoder's roles communicated: threads, or MPI.
    pub transport: &'static str,
    /// Sizes of the 600 objects.
    pub size_mix: SizeMix,
    /// One large file in parts (P7).
    pub parts: Vec<Parts>,
    /// 600 objects under both schedulers (P7).
    pub schedules: Vec<Schedule>,
    /// Trees of large and small files beside `cp -r`.
    pub trees: Vec<tree::Tree>,
    /// Wide stripes beside other libraries (S2).
    pub wide: Vec<wide::Wide>,
    /// Peers that did not take part, and why.
    pub absent: Vec<String>,
}

/// One large file in some number of parts, by as many workers.
#[derive(Clone, Debug, Serialize)]
pub struct Parts {
    /// Parts and workers.
    pub parts: u64,
    /// The file.
    pub bytes: u64,
    /// Seconds of the job, measured.
    pub seconds: f64,
    /// How much shorter than with one part, for the same bytes.
    pub reduction: f64,
    /// Processor seconds, measured.
    pub cpu_seconds: f64,
    /// Joules by the model.
    pub modelled_joules: f64,
    /// The most trusted instrument and its joules, where there is one.
    pub measured: Option<(String, f64)>,
}

/// 600 objects under one policy.
#[derive(Clone, Debug, Serialize)]
pub struct Schedule {
    /// `demand` or `round-robin`.
    pub policy: &'static str,
    /// Whether the workers had a core each only in the model.
    pub modelled: bool,
    /// Workers.
    pub workers: usize,
    /// When they finished.
    pub finish: archive::report::Finish,
    /// When each of them finished, in seconds; none of one that had no work.
    pub workers_seconds: Vec<Option<f64>>,
    /// The study's utilization and gap, in seconds, for comparison.
    pub published: (f64, f64),
}

/// Runs the experiments and writes what was asked for.
///
/// # Errors
/// When a folder cannot be written or a job fails.
pub fn run(args: &Args) -> Result<(), String> {
    let report = measure(args)?;
    if let Some(path) = &args.html {
        crate::write(path, &show::page(&report))?;
    }
    if let Some(path) = &args.csv {
        crate::write(path, &show::csv(&report))?;
    }
    let json = serde_json::to_string_pretty(&report).map_err(|error| error.to_string())? + "\n";
    if let Some(path) = &args.json_file {
        crate::write(path, &json)?;
    }
    if args.json {
        return crate::write(Path::new("-"), &json);
    }
    crate::write(Path::new("-"), &show::text(&report))
}

fn measure(args: &Args) -> Result<Report, String> {
    let mut ground = jobs::Ground::make(&args.dir)?;
    ground.instruments.clone_from(&args.instruments);
    let codes = crate::Args {
        section: vec![Section::Wide],
        rounds: args.rounds,
        quick: args.quick,
        kernel: Lanes::Auto,
        peers: args.peers.clone(),
        ..crate::Args::default()
    };
    let coding = crate::measure(&codes)?;
    let (wide, absent) = wide::compare(&ground, &coding, args.quick)?;
    Ok(Report {
        weft: env!("CARGO_PKG_VERSION"),
        date: crate::report::date(SystemTime::now()),
        quick: args.quick,
        rounds: args.rounds,
        processor: volume::machine::processor().unwrap_or_else(|| "unknown".into()),
        cores: crate::threads::cores(),
        transport: if args.mpi { "MPI" } else { "threads" },
        size_mix: args.size_mix,
        parts: jobs::parts(&ground, args)?,
        schedules: jobs::schedules(&ground, args)?,
        trees: tree::trees(&ground, args)?,
        wide,
        absent,
    })
}

/// The study's utilization and gap of a policy.
fn published(policy: Policy) -> (f64, f64) {
    match policy {
        Policy::Demand => (0.9523, 9.0),
        Policy::RoundRobin => (0.2619, 263.0),
    }
}
