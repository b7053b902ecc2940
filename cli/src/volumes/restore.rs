//! `weft restore`: a tree of a volume, or some of it, back onto this machine.

use super::archive::{Report, end, workers};
use super::job_progress::Progress;
use super::{Address, open_within};
use crate::failure::{Failure, Outcome};
use crate::interrupt;
use archive::report::{Facts, Task};
use archive::restore::{Options, restore};
use archive::transport::Crew;
use archive::walk::Filter;
use clap::Args;
use plan::schedule::Policy;
use plan::sizes;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use volume::Shown;

/// Restore an archive, or some of it, into a directory, with all attributes, in parallel
#[derive(Args)]
#[command(after_help = "Examples:
  # The content of /runs/7 becomes that of /data/run7.
  weft restore /srv/films:/runs/7 /data/run7
  weft restore --include '*.h5' /srv/films:/runs /data/runs
  weft restore weft://meta:7600/films:/home/a.txt .

It works with as many targets missing as the code allows. It can be stopped at any moment and started again: it does \
not write again what is there. It names files that are there and differ, also in owner or mode, and leaves them, \
unless --force is given. It writes nothing outside of the directory, whatever links are in it. Only root restores \
owners and the attributes that only root may set.

With --json it prints JSON lines: {\"type\": T, T: {..}} where T is progress, problem, facts or error.")]
pub struct Arguments {
    /// What to restore: VOLUME:/path
    address: OsString,
    /// The directory to restore into; it is created if it is not there
    directory: PathBuf,
    /// Threads that write [default: by cores and memory]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    workers: Option<u32>,
    /// Memory to use
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = sizes::bytes)]
    memory: u64,
    /// Write no more bytes than this in a second
    #[arg(long, value_name = "SIZE", value_parser = sizes::bytes)]
    limit: Option<u64>,
    /// Only files that match; a pattern with a slash is for paths below the restored one, one
    /// without for names
    #[arg(long, value_name = "GLOB")]
    include: Vec<String>,
    /// No files that match, and no directories that match with what is in them
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<String>,
    /// Replace files that are there and differ, mend owners and modes, and replace the file of
    /// --report
    #[arg(long)]
    force: bool,
    /// Write a report with charts, a self-contained page
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
}

pub fn run(arguments: &Arguments, as_json: bool) -> Outcome {
    let report = Report::new(arguments.report.as_deref(), arguments.force)?;
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
    end(&facts, broken, &report, as_json)
}
