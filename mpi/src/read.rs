//! The leader of jobs that read an archive: a restore, and a verification.

use crate::command::{Arguments, CrewArguments, RestoreArguments, VerifyArguments};
use crate::layout::Layout;
use crate::lead::{Begins, Done, Part, failed, hellos, transport, worker};
use crate::metadata::MetadataService;
use crate::process_message::Setup;
use crate::router::{Mail, Router, Service};
use crate::run::introduce;
use archive::clock::{Clock, process_seconds};
use archive::report::{Ending, Facts, Task};
use archive::restore::{Options, Restore, walk_of};
use archive::roles::Reporter;
use archive::transport::Crew;
use archive::{check, message::Problem, roles::Show};
use cli::archiving::{Address, Failure, open, server_of};
use fs::FileSystem;
use plan::Ino;
use plan::schedule::Policy;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use volume::Shown;

/// Restores what the arguments say.
///
/// # Errors
/// When it cannot begin, or its end cannot be written.
pub(crate) fn restore_all(
    router: &Arc<Router>,
    mail: &Mail,
    arguments: &Arguments,
    restore: &RestoreArguments,
    host: &str,
) -> Result<Done, Failure> {
    let to = absolute(&restore.directory)?;
    let leader = Leader::begin(router, mail, arguments, host, (&restore.address, &restore.crew))?;
    let (cpu, crew) = (process_seconds(), leader.layout.crew());
    let options = Options {
        crew,
        policy: Policy::Demand,
        memory: restore.crew.memory,
        force: restore.force,
        limit: restore.limit,
        filter: restore.filter()?,
    };
    let facts = leader.facts(Task::Restore, leader.address.shown(), Shown(&restore.directory).to_string());
    let place = to.into_os_string().as_bytes().to_vec();
    let job = Restore::begin(leader.volume.shared(), &leader.address.path, &place, &options, router.control())
        .map_err(failed)?;
    let (mut facts, mut broken, cpu_seconds) = leader.run("restoring", job.begins(), facts, Some(place.clone()));
    if facts.ending == Ending::Finished {
        // Directories get their attributes when all files are in them. They are few beside files,
        // and threads of this process do that.
        let few = Crew { explorers: 1, workers: 1 };
        let begun = Facts { task: Task::Restore, ..Facts::default() };
        let reporter = job.step(true, few, leader.clock, Reporter::new(few, begun, Quiet));
        let (directories, trouble) = reporter.into_facts(router.control());
        facts.others += directories.others;
        directories.errors.lines.iter().for_each(|line| facts.errors.add(line.clone()));
        facts.ending = directories.ending;
        broken = broken.or(trouble);
        if facts.ending == Ending::Finished {
            job.complete(&place, &mut facts).map_err(failed)?;
        }
    }
    leader.finish(facts, broken, cpu_seconds + process_seconds() - cpu)
}

/// Compares an archive with its hashes, or its source with them.
///
/// # Errors
/// When it cannot begin.
pub(crate) fn verify_all(
    router: &Arc<Router>,
    mail: &Mail,
    arguments: &Arguments,
    verify: &VerifyArguments,
    host: &str,
) -> Result<Done, Failure> {
    let source = verify.source.as_deref().map(absolute).transpose()?;
    let leader = Leader::begin(router, mail, arguments, host, (&verify.address, &verify.crew))?;
    let cpu = process_seconds();
    let compared = verify
        .source
        .as_ref()
        .map_or_else(|| "the hashes of what was archived".to_owned(), |source| Shown(source).to_string());
    let facts = leader.facts(Task::Verify, compared, leader.address.shown());
    let (walk, _) = walk_of(leader.volume.shared(), &leader.address.path).map_err(failed)?;
    let begins = (check::plan(leader.volume.shared(), verify.crew.memory), vec![walk]);
    let place = source.map(|source| source.into_os_string().as_bytes().to_vec());
    let (facts, broken, cpu_seconds) = leader.run("verifying", begins, facts, place);
    leader.finish(facts, broken, cpu_seconds + process_seconds() - cpu)
}

/// The leader of a job that reads.
struct Leader<'a> {
    router: &'a Arc<Router>,
    mail: &'a Mail,
    arguments: &'a Arguments,
    hosts: Vec<String>,
    layout: Layout,
    address: Address,
    volume: cli::archiving::Open,
    clock: Clock,
}

impl<'a> Leader<'a> {
    /// Waits for all processes and opens the volume.
    fn begin(
        router: &'a Arc<Router>,
        mail: &'a Mail,
        arguments: &'a Arguments,
        host: &str,
        (address, crew): (&OsStr, &CrewArguments),
    ) -> Result<Self, Failure> {
        let hosts = hellos(router, mail, host)?;
        introduce(arguments)?;
        let address = Address::required(address)?;
        let layout = Layout::new(&hosts, crew.explorers, crew.workers, false);
        // Other ranks are clients, whose sessions are metadata, too: it is not opened for reading
        // only.
        let volume = open(&address.volume, false)?;
        Ok(Self { router, mail, arguments, hosts, layout, address, volume, clock: Clock::now() })
    }

    /// What is known of the job before it begins.
    fn facts(&self, task: Task, source: String, volume: String) -> Facts {
        let (code, k, m) = self.volume.code();
        let job = match task {
            Task::Restore => format!("restore from {}", self.address.shown()),
            _ => format!("verification of {}", self.address.shown()),
        };
        Facts {
            job,
            task,
            version: env!("CARGO_PKG_VERSION").into(),
            sources: vec![source],
            volume,
            code,
            k,
            m,
            start_unix_seconds: self.clock.beginning().as_secs(),
            schedule: Policy::Demand.word().into(),
            transport: transport(&self.hosts),
            workers: self.layout.worker_names(&self.hosts).into_iter().map(worker).collect(),
            ..Facts::default()
        }
    }

    /// Does it with all processes. Returns the facts, why it could not go on, and the processor
    /// time of the others.
    fn run(
        &self,
        doing: &'static str,
        begins: Begins,
        facts: Facts,
        place: Option<Vec<u8>>,
    ) -> (Facts, Option<String>, f64) {
        let volume: &FileSystem = self.volume.shared();
        let alone = matches!(server_of(&self.address.volume), Ok(None));
        let service = alone.then(|| MetadataService::new(self.volume.shared()));
        let setup = Setup {
            layout: self.layout.clone(),
            began: self.clock.beginning(),
            volume: self.address.volume.clone(),
            hidden: Ino(0),
            update: false,
            place,
            places: volume.places(),
            absent: volume.absent_targets(),
            facts,
        };
        self.router.begin(self.layout.clone(), service.clone().map(|service| service as Arc<dyn Service>));
        self.router.send_all(&crate::process_message::ProcessMessage::Setup(Box::new(setup.clone())));
        let part = Part { router: self.router, setup: &setup, arguments: self.arguments, doing };
        let (facts, broken, all) = part.take(self.mail, begins, self.volume.shared(), service, None);
        self.router.close_service();
        (facts, broken, all.cpu_seconds)
    }

    /// Closes the volume and tells what was done.
    fn finish(self, mut facts: Facts, broken: Option<String>, cpu_seconds: f64) -> Result<Done, Failure> {
        facts.wall_seconds = self.clock.seconds();
        facts.cpu_seconds = cpu_seconds;
        self.volume.finish()?;
        Ok((facts, broken))
    }
}

/// Shows nothing: the files were shown.
struct Quiet;

impl Show for Quiet {
    fn problem(&mut self, _: &Problem) {}

    fn progress(&mut self, _: &Facts) {}
}

/// A path that means the same in every process.
fn absolute(given: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(given).map_err(|why| Failure::Other(format!("{}: {why}", Shown(given))))
}
