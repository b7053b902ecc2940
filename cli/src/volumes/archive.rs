//! `weft archive`: trees of this machine into a volume, in parallel.

use super::job_progress::Progress;
use super::{Address, Open, open_within};
use crate::failure::{Failure, Outcome};
use crate::{interrupt, output, show};
use archive::check::{Against, check};
use archive::dry::{Header, Planned, dry_run};
use archive::job::{Job, Options, Source, most_workers};
use archive::report::{Ending, Facts, Task};
use archive::transport::Crew;
use archive::walk::{Filter, List};
use clap::Args;
use plan::schedule::Policy;
use plan::sizes;
use serde_json::json;
use std::ffi::{OsStr, OsString};
use std::io::{BufReader, BufWriter, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use volume::Shown;

/// Archive files and trees into a volume, with all their attributes, in parallel
#[derive(Args)]
#[command(after_help = "Examples:
  # It becomes /runs/run7.
  weft archive /data/run7 /srv/films:/runs
  # The content of /data/run7 becomes that of /runs/7.
  weft archive /data/run7/ /srv/films:/runs/7
  weft archive --workers 16 --exclude '*.tmp' \\
      /home/ weft://meta:7600/films:/home
  find . -newer stamp -print0 | weft archive \\
      --files-from - --null . /srv/films:/new
  weft archive --dry-run --plan tonight \\
      /data/ /srv/films:/data
  weft archive --execute tonight

A job can be stopped at any moment and started again, with any number of workers: it does not read again what is in \
the archive. It names files that have changed since and leaves them as they are, unless --update is given. It names \
files that it cannot archive, goes on with the others, and exits with status 1.

With --json it prints JSON lines: {\"type\": T, T: {..}} where T is progress, problem, plan, facts or error.")]
pub struct Arguments {
    /// The sources, then the destination, VOLUME:/path
    #[arg(required_unless_present = "execute", conflicts_with = "execute", num_args = 2.., value_name = "PATH")]
    paths: Vec<OsString>,
    /// Threads that code [default: by cores and memory]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub workers: Option<u32>,
    /// Threads that walk the trees
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub explorers: u32,
    /// How files are given to workers: demand (the largest to the next idle one) or round-robin
    #[arg(long, value_name = "POLICY", default_value = "demand", value_parser = policy)]
    schedule: Policy,
    /// Code longer files in parts of this length, a power of two [default: by size and workers]
    #[arg(long, value_name = "SIZE", value_parser = sizes::bytes)]
    part_bytes: Option<u64>,
    /// Memory to use
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = sizes::bytes)]
    memory: u64,
    /// Read no more bytes than this in a second
    #[arg(long, value_name = "SIZE", value_parser = sizes::bytes)]
    limit: Option<u64>,
    /// Replace files of the archive that have changed since then
    #[arg(long)]
    update: bool,
    /// Only files that match; a pattern with a slash is for paths below the source, one without for
    /// names
    #[arg(long, value_name = "GLOB")]
    include: Vec<String>,
    /// No files that match, and no directories that match with what is in them
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<String>,
    /// Stay on the file systems of the sources
    #[arg(long)]
    one_file_system: bool,
    /// Archive the files in a list: a path below the source, one directory, on each line; - is
    /// standard input
    #[arg(long, value_name = "FILE")]
    pub files_from: Option<PathBuf>,
    /// Names in the list end with a NUL
    #[arg(long, requires = "files_from")]
    null: bool,
    /// Write a report with charts, a self-contained page
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
    /// Replace the file of --report if there is one
    #[arg(long, requires = "report")]
    pub force: bool,
    /// Change nothing; show what would be done
    #[arg(long)]
    pub dry_run: bool,
    /// Write a plan for --execute to a new file, a line for each file
    #[arg(long, value_name = "FILE", requires = "dry_run")]
    plan: Option<PathBuf>,
    /// Archive what a plan lists; files that have changed since are left out
    #[arg(long, value_name = "PLAN", conflicts_with_all = ["dry_run", "files_from", "include", "exclude", "update"])]
    execute: Option<PathBuf>,
    /// Read everything back at the end and compare it with what was read from the source
    #[arg(long)]
    pub verify: bool,
    /// Account for energy, by the best instrument there is or by the model; naming an instrument is
    /// enough
    #[arg(long)]
    pub energy: bool,
    /// The instruments that may be used.
    #[command(flatten)]
    pub sources: crate::energy::Sources,
}

/// What an archive is compared with, if that is not a source.
const THE_HASHES: &str = "the hashes of what was archived";
/// The memory of a verification.
const MEMORY: u64 = 1 << 30;

fn policy(given: &str) -> Result<Policy, String> {
    [Policy::Demand, Policy::RoundRobin]
        .into_iter()
        .find(|policy| policy.word() == given)
        .ok_or_else(|| "it is demand or round-robin".into())
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

/// As many workers as suit cores and memory, or as the user wants.
pub fn workers(wanted: Option<u32>, memory: u64, volume: &Open) -> u32 {
    let (_, k, m) = volume.code();
    let cores = std::thread::available_parallelism().map_or(2, |cores| cores.get() as u32);
    // More than cores: while one waits for the disk, another codes.
    let suits = (2 * cores).min(most_workers(memory, volume.stripe_bytes(), k, m));
    wanted.unwrap_or(suits)
}

/// What a job is about, from its arguments or from a plan.
pub struct Wanted {
    /// Where to.
    pub address: Address,
    from: Vec<OsString>,
    /// What.
    pub sources: Vec<Source>,
    /// The files, where they are listed.
    pub list: Option<List>,
    /// Files of the archive that have changed since then are replaced.
    pub update: bool,
}

impl Wanted {
    /// What the user asks for.
    ///
    /// # Errors
    /// When it makes no sense, or the list or plan cannot be read.
    pub fn of(arguments: &Arguments) -> Result<Self, Failure> {
        if let Some(plan) = &arguments.execute {
            return Self::of_plan(plan);
        }
        let Some((to, from)) = arguments.paths.split_last() else {
            return Err(Failure::Usage("give one or more sources and a destination".into()));
        };
        let address = Address::required(to)?;
        let one = |what: &str| {
            Failure::Usage(format!("with {what} there is one source, the directory that its paths are below"))
        };
        let sources = match (&arguments.files_from, from) {
            (Some(_), [directory]) => vec![Source { directory: directory.as_bytes().to_vec(), names: None }],
            (Some(_), _) => return Err(one("--files-from")),
            (None, _) => {
                let parsed = from.iter().map(|given| Source::parse(given.as_bytes())).collect::<Result<Vec<_>, _>>();
                parsed.map_err(|why| Failure::Usage(why.0))?
            }
        };
        if arguments.plan.is_some() && sources.len() > 1 {
            return Err(one("--plan"));
        }
        let list = arguments.files_from.as_deref().map(|from| list(from, arguments.null)).transpose()?;
        Ok(Self { address, from: from.to_vec(), sources, list, update: arguments.update })
    }

    fn of_plan(plan: &Path) -> Result<Self, Failure> {
        let failed = |why: &dyn std::fmt::Display| Failure::Other(format!("{}: {why}", Shown(plan)));
        let file = std::fs::File::open(plan).map_err(|why| failed(&why))?;
        let (header, list) = archive::dry::read_plan(Box::new(BufReader::new(file))).map_err(|why| failed(&why))?;
        let source = OsString::from_vec(header.source.clone());
        Ok(Self {
            address: Address::required(&OsString::from_vec(header.address))?,
            from: vec![source],
            sources: vec![Source { directory: header.source, names: None }],
            list: Some(list),
            update: header.update,
        })
    }
}

impl Wanted {
    /// What is known of the job before it begins.
    pub fn facts(&self, volume: &fs::FileSystem) -> Facts {
        let (code, k, m) = volume.code();
        Facts {
            job: format!("archive to {}", self.address.shown()),
            version: env!("CARGO_PKG_VERSION").into(),
            sources: self.from.iter().map(|given| Shown(Path::new(given)).to_string()).collect(),
            volume: self.address.shown(),
            code,
            k,
            m,
            ..Facts::default()
        }
    }
}

impl Arguments {
    /// How to do it, without a list of files.
    ///
    /// # Errors
    /// Names the pattern that is not valid.
    pub fn options(&self, crew: Crew, update: bool) -> Result<Options, Failure> {
        Ok(Options {
            crew,
            policy: self.schedule,
            part_bytes: self.part_bytes,
            memory: self.memory,
            update,
            limit: self.limit,
            filter: Filter::new(&self.include, &self.exclude).map_err(Failure::Usage)?,
            one_file_system: self.one_file_system,
            list: None,
        })
    }
}

fn failed(why: archive::transport::Broken) -> Failure {
    Failure::Other(why.0)
}

pub fn run(arguments: &Arguments, as_json: bool) -> Outcome {
    let report = Report::new(arguments.report.as_deref(), arguments.force)?;
    let mut wanted = Wanted::of(arguments)?;
    let mut options = arguments.options(Crew { explorers: arguments.explorers, workers: 0 }, wanted.update)?;
    options.list = wanted.list.take();
    let control = interrupt::control(false);
    let volume = open_within(&wanted.address.volume, arguments.dry_run, arguments.memory)?;
    options.crew.workers = workers(arguments.workers, arguments.memory, &volume);
    let crew = options.crew;
    let facts = wanted.facts(&volume);
    let (address, sources) = (&wanted.address, &wanted.sources);
    if arguments.dry_run {
        let plan = PlanFile::begin(arguments, sources, wanted.update)?;
        let (plan, list) = plan.map_or((None, None), |(plan, list)| (Some(plan), Some(list)));
        let show = Progress::new("looking", as_json);
        let done = dry_run(volume.shared(), sources, &address.path, options, list, facts, show, &control);
        let (planned, broken) = done.map_err(failed)?;
        if let Some(plan) = plan.filter(|_| broken.is_none() && planned.facts.ending == Ending::Finished) {
            plan.finish()?;
        }
        let targets = volume.target_count();
        volume.finish()?;
        return tell_plan(&planned, broken, targets, as_json);
    }
    let sampler = arguments.sources.watch(arguments.energy)?;
    let mut checked = None;
    let work = || {
        // No other job writes to the directory before its manifest is there.
        let job = Job::begin(volume.shared(), sources, &address.path, options, &control)?;
        let (mut facts, broken) = job.run(facts.clone(), Progress::new("archiving", as_json))?;
        if facts.ending == Ending::Finished {
            archive::check::write_manifest(&volume, &address.path)?;
            if arguments.verify {
                let job = format!("verification of {}", address.shown());
                let sources = vec![THE_HASHES.into()];
                let begun = Facts { job, task: Task::Verify, sources, ..wanted.facts(&volume) };
                let show = Progress::new("verifying", as_json);
                let memory = arguments.memory;
                let found = check(volume.shared(), &address.path, Against::Hashes, crew, memory, begun, show, &control);
                let of = |facts: &Facts| facts.phases.iter().find(|phase| phase.name == Task::Verify.phase()).cloned();
                facts.phases.extend(found.iter().find_map(|(found, _)| of(found)));
                checked = Some(found);
            }
        }
        if let Some(sampler) = sampler {
            archive::energy::account(sampler, &mut facts).iter().for_each(show::warning);
        }
        drop(job);
        Ok((facts, broken))
    };
    let done = work();
    // Work that was done before a failure stays.
    let finished = volume.finish();
    let (facts, broken) = done.map_err(failed)?;
    finished?;
    let ended = end(&facts, broken, &report, as_json);
    match checked {
        None => ended,
        Some(checked) => {
            let (facts, broken) = checked.map_err(failed)?;
            let verified = end(&facts, broken, &Report::default(), as_json);
            ended.and(verified)
        }
    }
}

type Writer = Box<dyn Write + Send>;

/// The file of a plan. It is empty until the plan is complete, and is removed with what was written
/// if that does not happen: a part of a plan would be carried out like a whole one.
struct PlanFile {
    path: PathBuf,
    /// What is written so far.
    part: PathBuf,
    finished: bool,
}

impl PlanFile {
    /// The file, with its first line in it.
    fn begin(arguments: &Arguments, sources: &[Source], update: bool) -> Result<Option<(Self, Writer)>, Failure> {
        let (Some(path), [source]) = (&arguments.plan, sources) else { return Ok(None) };
        let address = arguments.paths.last().map(|to| to.as_bytes().to_vec()).unwrap_or_default();
        let directory = Path::new(OsStr::from_bytes(&source.directory));
        let directory = std::fs::canonicalize(directory).map_err(|why| cannot(path, &why))?;
        let header = Header { weft_plan: 1, source: directory.into_os_string().into_vec(), address, update };
        std::fs::File::create_new(path).map_err(|why| cannot(path, &why))?;
        let part = path.with_file_name(format!(".weft-plan-{:x}", fastrand::u64(..)));
        let plan = Self { path: path.clone(), part, finished: false };
        let file = std::fs::File::create_new(&plan.part).map_err(|why| cannot(&plan.part, &why))?;
        let mut file = BufWriter::new(file);
        serde_json::to_writer(&mut file, &header).map_err(|why| cannot(path, &why))?;
        file.write_all(b"\n").map_err(|why| cannot(path, &why))?;
        Ok(Some((plan, Box::new(file))))
    }

    /// The plan is complete: it gets its name.
    fn finish(mut self) -> Outcome {
        let synced = std::fs::File::open(&self.part).and_then(|file| file.sync_all());
        let named = synced.and_then(|()| std::fs::rename(&self.part, &self.path));
        named.map_err(|why| cannot(&self.path, &why))?;
        self.finished = true;
        Ok(())
    }
}

impl Drop for PlanFile {
    fn drop(&mut self) {
        if !self.finished {
            let _ = std::fs::remove_file(&self.part);
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn cannot(path: &Path, why: &dyn std::fmt::Display) -> Failure {
    Failure::Other(format!("{}: {why}", Shown(path)))
}

/// Tells what a job would do.
fn tell_plan(planned: &Planned, broken: Option<String>, targets: usize, as_json: bool) -> Outcome {
    let facts = &planned.facts;
    let stored = (facts.bytes as f64 * (facts.k + facts.m) as f64 / facts.k.max(1) as f64) as u64;
    let each = stored / targets.max(1) as u64;
    if as_json {
        show::json_line(
            "plan",
            json!({
                "files": facts.files, "bytes": facts.bytes, "others": facts.others, "parts": planned.parts,
                "unchanged_files": facts.unchanged_files, "unchanged_bytes": facts.unchanged_bytes,
                "stored_bytes": stored, "stored_bytes_per_target": each, "targets": targets,
                "estimated_seconds": planned.seconds, "problems": facts.errors.count(),
            }),
        )?;
    } else {
        show::text(format_args!(
            "would archive {} with {}, in {}, and {} directories, links and special files",
            show::count(facts.files as usize, "file"),
            show::bytes(facts.bytes),
            show::count(planned.parts as usize, "part"),
            facts.others
        ))?;
        show::text(format_args!("  unchanged   {}, {}", facts.unchanged_files, show::bytes(facts.unchanged_bytes)))?;
        show::text(format_args!(
            "  space       {} with {}, about {} on each of {}",
            show::bytes(stored),
            facts.code,
            show::bytes(each),
            show::count(targets, "target")
        ))?;
        show::text(match planned.seconds {
            Some(seconds) => {
                format!("  time        about {seconds:.0} s, at the pace of the last job into this directory")
            }
            None => "  time        not known: no job into this directory to go by".into(),
        })?;
    }
    match (facts.ending, broken) {
        (Ending::Failed, why) => Err(Failure::Other(why.unwrap_or_default())),
        (Ending::Interrupted, _) => Err(Failure::Work(volume::Error::Interrupted)),
        _ if facts.errors.count() > 0 => {
            if facts.errors.lines.iter().any(|line| line.contains("which only an update ")) {
                show::warning("some files differ from the archive; --update replaces and changes them there");
            }
            Err(Failure::Found)
        }
        _ => Ok(()),
    }
}

/// Checks an archive against the hashes of what was archived, or a source against them.
pub fn verify(address: &OsStr, source: Option<&OsStr>, as_json: bool) -> Outcome {
    let address = Address::required(address)?;
    let control = interrupt::control(false);
    let volume = open_within(&address.volume, true, MEMORY)?;
    let (code, k, m) = volume.code();
    let against = source.map_or(Against::Hashes, |source| Against::Source(source.as_bytes().to_vec()));
    let facts = Facts {
        job: format!("verification of {}", address.shown()),
        task: Task::Verify,
        version: env!("CARGO_PKG_VERSION").into(),
        sources: vec![source.map_or_else(|| THE_HASHES.into(), |source| Shown(Path::new(source)).to_string())],
        volume: address.shown(),
        code,
        k,
        m,
        ..Facts::default()
    };
    let crew = Crew { explorers: 1, workers: workers(None, MEMORY, &volume) };
    let show = Progress::new("verifying", as_json);
    let done = check(volume.shared(), &address.path, against, crew, MEMORY, facts, show, &control);
    volume.finish()?;
    let (facts, broken) = done.map_err(failed)?;
    end(&facts, broken, &Report::default(), as_json)
}

/// Where the report of a job goes, if anywhere.
#[derive(Default)]
pub struct Report<'a> {
    file: Option<&'a Path>,
    force: bool,
}

impl<'a> Report<'a> {
    /// A report in a file, which must not exist unless it may be replaced.
    ///
    /// # Errors
    /// When it exists: the job must not end without its report.
    pub fn new(file: Option<&'a Path>, force: bool) -> Result<Self, Failure> {
        file.map_or(Ok(()), |file| output::check(file, force))?;
        Ok(Self { file, force })
    }
}

/// Tells how a job ended.
///
/// # Errors
/// When it did not end well, or the report cannot be written.
pub fn end(facts: &Facts, broken: Option<String>, report: &Report<'_>, as_json: bool) -> Outcome {
    if let Some(path) = report.file {
        output::write(path, &archive::report::page(facts), report.force)?;
    }
    if as_json {
        show::json_line_of("facts", archive::report::json(facts))?;
    } else {
        show::text(archive::report::text(facts))?;
    }
    match (facts.ending, broken) {
        (Ending::Failed, why) => Err(Failure::Other(why.unwrap_or_default())),
        (Ending::Interrupted, _) => Err(Failure::Work(volume::Error::Interrupted)),
        _ if facts.errors.count() > 0 => {
            if facts.errors.lines.iter().any(|line| line.contains("which only an update ")) {
                show::warning("some files differ from the archive; --update replaces and changes them there");
            }
            Err(Failure::Found)
        }
        _ => Ok(()),
    }
}
