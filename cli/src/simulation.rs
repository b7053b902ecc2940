//! `weft sim`: a simulated cluster. What is simulated, and how, is in the crate `sim`.

use crate::failure::{Failure, Outcome};
use crate::{interrupt, output, show};
use clap::{Args, value_parser};
use indicatif::{ProgressBar, ProgressStyle};
use sim::{Config, Watch};
use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;
use volume::Shown;

/// Simulate a cluster: placement, growth, failures and clients, with the real decisions
#[derive(Args)]
#[command(after_help = "Examples:
  # All keys, with their meaning.
  weft sim --example > cluster.toml
  weft sim cluster.toml
  # More runs of failures, and a page with charts.
  weft sim cluster.toml --seeds 200 --html sim.html
  weft sim cluster.toml --seed 7 --json

The same file and seed give the same result, with any number of threads. docs/simulator.md says what is modelled.")]
pub struct Arguments {
    /// The simulation, or - for standard input
    #[arg(value_name = "FILE.toml", required_unless_present = "example")]
    file: Option<PathBuf>,
    /// Print an example of such a file, with all keys
    #[arg(long, conflicts_with_all = ["file", "seed", "seeds", "html", "threads"])]
    example: bool,
    /// Take all chance from this number, and not from the file's
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Number of runs of the failures, each with another seed
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=10_000))]
    seeds: Option<u32>,
    /// Write a page with charts
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Replace the file of --html if there is one
    #[arg(long)]
    force: bool,
    /// Number of threads [default: one for each processor]
    #[arg(long, value_name = "N", value_parser = value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
}

/// No file of a simulation is longer.
const MOST_BYTES: u64 = 1 << 20;

pub fn run(arguments: &Arguments, as_json: bool) -> Outcome {
    let Some(file) = arguments.file.as_deref().filter(|_| !arguments.example) else {
        return show::text(sim::EXAMPLE.trim_end());
    };
    if let Some(page) = &arguments.html {
        output::check(page, arguments.force)?;
    }
    let wrong = |why: String| Failure::Usage(format!("{}: {why}", Shown(file)));
    let config = Config::parse(&read(file)?).map_err(wrong)?;
    let config = config.with(arguments.seed, arguments.seeds).map_err(wrong)?;
    // There is nothing to clean up: a signal ends the process.
    let _control = interrupt::control(true);
    let threads = arguments.threads.map(usize::from);
    let threads = threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let watch = Watch::default();
    let report = watched(&watch, || sim::run(&config, threads, &watch)).map_err(wrong)?;
    if let Some(page) = &arguments.html {
        output::write(page, &sim::report::html(&report), arguments.force)?;
    }
    if as_json { show::json(&report.json()) } else { show::text(sim::report::text(&report)) }
}

fn read(file: &Path) -> Result<String, Failure> {
    let failed = |why: std::io::Error| Failure::Other(format!("{}: {why}", Shown(file)));
    let mut text = String::new();
    let input: Box<dyn Read> = match file == Path::new("-") {
        true => Box::new(std::io::stdin()),
        false => Box::new(std::fs::File::open(file).map_err(failed)?),
    };
    input.take(MOST_BYTES + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > MOST_BYTES {
        return Err(Failure::Usage(format!("{}: a simulation has no more than 1 MiB", Shown(file))));
    }
    Ok(text)
}

/// Simulates while another thread shows on a terminal how far it is.
fn watched<T>(watch: &Watch, work: impl FnOnce() -> T) -> T {
    if !std::io::stderr().is_terminal() {
        return work();
    }
    std::thread::scope(|scope| {
        let (done, wait) = channel::<()>();
        scope.spawn(move || {
            let style = ProgressStyle::with_template("{msg} {bar:30} {pos}/{len} {eta} left");
            let bar = ProgressBar::new(0).with_style(style.expect("a template of this program"));
            while wait.recv_timeout(Duration::from_millis(200)) == Err(RecvTimeoutError::Timeout) {
                let (phase, done, total) = watch.look();
                bar.set_message(phase.name());
                bar.set_length(total);
                bar.set_position(done);
            }
            bar.finish_and_clear();
        });
        let result = work();
        drop(done);
        result
    })
}
