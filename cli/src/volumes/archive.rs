//! `weft archive`: trees of this machine into a volume, in parallel.

use super::{Address, Open, open};
use crate::failure::{Failure, Outcome};
use crate::{interrupt, show};
use archive::job::{Job, Options, Source, most_workers};
use archive::message::Problem;
use archive::report::{Ending, Facts};
use archive::roles::{Show, line};
use archive::transport::Crew;
use archive::walk::{Filter, List};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use plan::schedule::Policy;
use serde_json::json;
use std::ffi::OsString;
use std::io::{BufReader, IsTerminal};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use volume::Shown;

/// Archive files and trees into a volume, with all their attributes, in parallel
#[derive(Args)]
#[command(after_help = "Examples:
  weft archive /data/run7 /srv/films:/runs            becomes /runs/run7
  weft archive /data/run7/ /srv/films:/runs/7         what is in it becomes what is in /runs/7
  weft archive --exclude '*.tmp' /home/ weft://meta:7600/films:/home --workers 16
  find . -newer stamp -print0 | weft archive --files-from - --null . /srv/films:/new

It can be stopped at any moment and started again, with any number of workers: what is in the archive is not
read again. Files that have changed since are named and left as they are, unless --update is given. Problems
with single files are named, the others go on, and the exit status is 1.")]
pub struct Arguments {
    /// What to archive, and where to: VOLUME:/path
    #[arg(required = true, num_args = 2.., value_name = "PATH")]
    paths: Vec<OsString>,
    /// Threads that code; chosen from cores and memory without this
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub workers: Option<u32>,
    /// Threads that walk the trees
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub explorers: u32,
    /// Who gets which work: demand (whoever is idle, the largest first) or round-robin
    #[arg(long, value_name = "POLICY", default_value = "demand", value_parser = policy)]
    schedule: Policy,
    /// Files that are longer are coded in parts of this length, a power of two; chosen from size and workers without this
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    part_bytes: Option<u64>,
    /// Memory to use
    #[arg(long, value_name = "BYTES", default_value = "1GiB", value_parser = bytes)]
    memory: u64,
    /// Read no more than so much a second
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    limit: Option<u64>,
    /// Replace files of the archive that have changed since
    #[arg(long)]
    update: bool,
    /// Only files that fit; a pattern with a slash is for paths below the source, one without for names
    #[arg(long, value_name = "GLOB")]
    include: Vec<String>,
    /// No files that fit, nor directories with what is in them
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<String>,
    /// Stay on the file systems of the sources
    #[arg(long)]
    one_file_system: bool,
    /// Archive the files that are listed, by line, with paths below the source, which must be one directory; - is standard input
    #[arg(long, value_name = "FILE")]
    pub files_from: Option<PathBuf>,
    /// Names in the list end with a NUL
    #[arg(long, requires = "files_from")]
    null: bool,
    /// Write a report with charts, a self-contained page
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
    /// Account for the energy by the best instrument there is, or by the model; naming one is enough
    #[arg(long)]
    pub energy: bool,
    /// The instruments that may be used.
    #[command(flatten)]
    pub sources: crate::energy::Sources,
}

fn policy(given: &str) -> Result<Policy, String> {
    [Policy::Demand, Policy::RoundRobin]
        .into_iter()
        .find(|policy| policy.word() == given)
        .ok_or_else(|| "it is demand or round-robin".into())
}

/// A number of bytes, with a unit or without.
pub fn bytes(given: &str) -> Result<u64, String> {
    let end = given.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(given.len());
    let (number, unit) = given.split_at(end);
    let scale = match unit.trim_start().to_ascii_lowercase().as_str() {
        "" | "b" => 1u64,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return Err(format!("{unit} is no unit; KiB, MiB, GiB, TiB, kB, MB, GB and TB are")),
    };
    let number: f64 = number.parse().map_err(|_| "give it as 1048576, 1024k or 1MiB".to_owned())?;
    let bytes = number * scale as f64;
    if bytes >= 1.0 && bytes < 1e18 { Ok(bytes as u64) } else { Err("it must be at least 1".into()) }
}

/// The list of files of `--files-from`.
fn list(from: &Path, null: bool) -> Result<List, Failure> {
    let separator = if null { 0 } else { b'\n' };
    if from == Path::new("-") {
        return Ok(List::paths(Box::new(BufReader::new(std::io::stdin())), separator));
    }
    let file = std::fs::File::open(from).map_err(|why| Failure::Other(format!("{}: {why}", Shown(from))))?;
    Ok(List::paths(Box::new(BufReader::new(file)), separator))
}

/// As many workers as suit cores and memory, or as are wanted.
pub fn workers(wanted: Option<u32>, memory: u64, volume: &Open) -> u32 {
    let (_, k, m) = volume.code();
    let cores = std::thread::available_parallelism().map_or(2, |cores| cores.get() as u32);
    // More than cores: while one waits for the disk, another codes.
    let suits = (2 * cores).min(most_workers(memory, volume.stripe_bytes(), k, m));
    wanted.unwrap_or(suits)
}

/// What is to be archived, and where to.
pub struct Request {
    /// Where to.
    pub address: Address,
    /// What.
    pub sources: Vec<Source>,
}

impl Arguments {
    /// What is asked for.
    ///
    /// # Errors
    /// When it makes no sense.
    pub fn request(&self) -> Result<Request, Failure> {
        let Some((to, from)) = self.paths.split_last() else {
            return Err(Failure::Usage("what is to be archived, and where to?".into()));
        };
        let address = Address::required(to)?;
        let mut sources = from.iter().map(|given| Source::parse(given.as_bytes())).collect::<Result<Vec<_>, _>>();
        if let (Some(_), Ok(sources)) = (&self.files_from, &mut sources) {
            let [source] = &mut sources[..] else {
                return Err(Failure::Usage(
                    "with --files-from there is one source, the directory that the paths are below".into(),
                ));
            };
            *source = Source { directory: from[0].as_bytes().to_vec(), names: None };
        }
        Ok(Request { address, sources: sources.map_err(|why| Failure::Usage(why.0))? })
    }

    /// The files, where they are listed.
    ///
    /// # Errors
    /// When the list cannot be opened.
    pub fn list(&self) -> Result<Option<List>, Failure> {
        self.files_from.as_deref().map(|from| list(from, self.null)).transpose()
    }

    /// How it is to be done.
    ///
    /// # Errors
    /// Names the pattern that is none.
    pub fn options(&self, crew: Crew, list: Option<List>) -> Result<Options, Failure> {
        Ok(Options {
            crew,
            policy: self.schedule,
            part_bytes: self.part_bytes,
            memory: self.memory,
            update: self.update,
            limit: self.limit,
            filter: Filter::new(&self.include, &self.exclude).map_err(Failure::Usage)?,
            one_file_system: self.one_file_system,
            list,
        })
    }

    /// What is known of the job before it begins.
    pub fn facts(&self, address: &Address, volume: &fs::FileSystem) -> Facts {
        let (code, k, m) = volume.code();
        let from = self.paths.split_last().map_or(&[][..], |(_, from)| from);
        Facts {
            job: format!("archive to {}", address.shown()),
            version: env!("CARGO_PKG_VERSION").into(),
            sources: from.iter().map(|given| Shown(Path::new(given)).to_string()).collect(),
            volume: address.shown(),
            code,
            k,
            m,
            ..Facts::default()
        }
    }
}

pub fn run(arguments: &Arguments, as_json: bool) -> Outcome {
    let Request { address, sources } = arguments.request()?;
    let list = arguments.list()?;
    let crew = Crew { explorers: arguments.explorers, workers: 0 };
    let mut options = arguments.options(crew, list)?;
    let control = interrupt::control(false);
    let volume = open(&address.volume, false)?;
    options.crew.workers = workers(arguments.workers, arguments.memory, &volume);
    let facts = arguments.facts(&address, &volume);
    let failed = |why: archive::transport::Broken| Failure::Other(why.0);
    let sampler = arguments.sources.watch(arguments.energy)?;
    let done = Job::begin(volume.shared(), &sources, &address.path, options, &control)
        .and_then(|job| job.run(facts, Progress::new("archiving", as_json)));
    // Also what was done before a failure stays.
    let finished = volume.finish();
    let (mut facts, broken) = done.map_err(failed)?;
    if let Some(sampler) = sampler {
        archive::energy::account(sampler, &mut facts).iter().for_each(show::warning);
    }
    finished?;
    end(&facts, broken, arguments.report.as_deref(), as_json)
}

/// Tells how a job ended.
pub fn end(facts: &Facts, broken: Option<String>, report: Option<&Path>, as_json: bool) -> Outcome {
    if let Some(path) = report {
        let page = archive::report::page(facts);
        std::fs::write(path, page).map_err(|why| Failure::Other(format!("{}: {why}", Shown(path))))?;
    }
    if as_json {
        // One line, as those before it.
        show::text(archive::report::json(facts))?;
    } else {
        show::text(archive::report::text(facts))?;
    }
    match (facts.ending, broken) {
        (Ending::Failed, why) => Err(Failure::Other(why.unwrap_or_default())),
        (Ending::Interrupted, _) => Err(Failure::Work(volume::Error::Interrupted)),
        _ if facts.errors.count() > 0 => Err(Failure::Found),
        _ => Ok(()),
    }
}

/// Shows how far a job is: a line on a terminal, or lines of JSON.
pub struct Progress {
    bar: Option<ProgressBar>,
    json: bool,
}

impl Progress {
    /// Shows progress on a terminal, with this word, or as JSON.
    ///
    /// # Panics
    /// Never: the template is one of this program.
    pub fn new(what: &'static str, json: bool) -> Self {
        let style = ProgressStyle::with_template("{msg} {prefix} {elapsed}").expect("a template of this program");
        let terminal = std::io::stderr().is_terminal() && !json;
        let bar = terminal.then(|| ProgressBar::new(0).with_style(style).with_message(what));
        Self { bar, json }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Show for Progress {
    fn problem(&mut self, problem: &Problem) {
        let text = line(problem);
        if self.json {
            let path = String::from_utf8_lossy(&problem.path);
            let _ = show::text(json!({ "problem": { "path": path, "what": problem.what } }));
        }
        match &self.bar {
            Some(bar) => bar.suspend(|| show::warning(text)),
            None => show::warning(text),
        }
    }

    fn progress(&mut self, facts: &Facts) {
        if self.json {
            let Facts { files, bytes, others, unchanged_files, unchanged_bytes, .. } = facts;
            let _ = show::text(json!({ "progress": {
                "files": files, "bytes": bytes, "others": others,
                "unchanged_files": unchanged_files, "unchanged_bytes": unchanged_bytes, "errors": facts.errors.count(),
            } }));
        }
        if let Some(bar) = &self.bar {
            let unchanged = match facts.unchanged_files {
                0 => String::new(),
                count => format!(", {count} unchanged"),
            };
            bar.set_prefix(format!("{} files, {}{unchanged}", facts.files, show::bytes(facts.bytes)));
            bar.tick();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::bytes;

    #[test]
    fn bytes_have_units() {
        let read = ["1", "1k", "1.5MiB", "2 GB", "1GiB"].map(|given| bytes(given).unwrap());
        assert_eq!(read, [1, 1024, 3 << 19, 2_000_000_000, 1 << 30]);
        assert!(["", "x", "1x", "-1", "0", "1e300"].iter().all(|given| bytes(given).is_err()));
    }
}
