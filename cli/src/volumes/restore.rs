//! `weft restore`: a tree of a volume, or some of it, back onto this machine.

use super::archive::{Progress, bytes, end, workers};
use super::{Address, open_within};
use crate::failure::{Failure, Outcome};
use crate::interrupt;
use archive::report::{Facts, Task};
use archive::restore::{Options, restore};
use archive::transport::Crew;
use archive::walk::Filter;
use clap::Args;
use plan::schedule::Policy;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use volume::Shown;

/// Restore an archive, or some of it, into a directory, with all attributes, in parallel
#[derive(Args)]
#[command(after_help = "Examples:
  weft restore /srv/films:/runs/7 /data/run7          what is in /runs/7 becomes what is in run7
  weft restore --include '*.h5' /srv/films:/runs /data/runs
  weft restore weft://meta:7600/films:/home/a.txt .

It works with as many targets missing as the code allows, and can be stopped at any moment and started again:
what is there already is not written again. What is there and differs is named and stays, unless --force is
given. Nothing is written outside of the directory, whatever links are in it. Owners and the attributes that
only root may set are restored for root.")]
pub struct Arguments {
    /// What to restore: VOLUME:/path
    address: OsString,
    /// Into which directory; it is made when it is not there
    directory: PathBuf,
    /// Threads that write; chosen from cores and memory without this
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    workers: Option<u32>,
    /// Memory to use
    #[arg(long, value_name = "BYTES", default_value = "1GiB", value_parser = bytes)]
    memory: u64,
    /// Write no more than so much a second
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    limit: Option<u64>,
    /// Only files that fit; a pattern with a slash is for paths below the one that is restored, one without for names
    #[arg(long, value_name = "GLOB")]
    include: Vec<String>,
    /// No files that fit, nor directories with what is in them
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<String>,
    /// Replace files that are there and differ
    #[arg(long)]
    force: bool,
    /// Write a report with charts, a self-contained page
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
}

pub fn run(arguments: &Arguments, as_json: bool) -> Outcome {
    let address = Address::required(&arguments.address)?;
    let filter = Filter::new(&arguments.include, &arguments.exclude).map_err(Failure::Usage)?;
    let control = interrupt::control(false);
    let volume = open_within(&address.volume, true, arguments.memory)?;
    let (code, k, m) = volume.code();
    let workers = workers(arguments.workers, arguments.memory, &volume);
    let options = Options {
        crew: Crew { explorers: 1, workers },
        policy: Policy::Demand,
        memory: arguments.memory,
        force: arguments.force,
        limit: arguments.limit,
        filter,
    };
    let facts = Facts {
        job: format!("restore from {}", address.shown()),
        task: Task::Restore,
        version: env!("CARGO_PKG_VERSION").into(),
        sources: vec![address.shown()],
        volume: Shown(&arguments.directory).to_string(),
        code,
        k,
        m,
        ..Facts::default()
    };
    let to = arguments.directory.as_os_str().as_bytes();
    let show = Progress::new("restoring", as_json);
    let done = restore(volume.shared(), &address.path, to, options, facts, show, &control);
    volume.finish()?;
    let (facts, broken) = done.map_err(|why| Failure::Other(why.0))?;
    end(&facts, broken, arguments.report.as_deref(), as_json)
}
