//! The leader's part of every job, and of an archive: it opens the volume, gives out the roles,
//! runs the manager, and puts together what all have done.

use crate::command::Arguments;
use crate::layout::{LEADER, Layout, Process};
use crate::metadata::{Line, MetadataService};
use crate::process_message::{Farewell, ProcessMessage, Setup};
use crate::router::{Mail, Router, Service};
use crate::run::{RoleContext, close, context, introduce, open_here, run};
use archive::clock::{Clock, process_seconds};
use archive::job::{Job, Options};
use archive::message::Walk;
use archive::report::{Ending, Facts, Written};
use archive::roles::{Manager, Plan, Reporter, Show};
use archive::transport::{Broken, REPORTER};
use archive::walk::List;
use cli::archiving::{Failure, Progress, Wanted, open, server_of, warning};
use fs::FileSystem;
use plan::words::count;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Mutex};
use volume::Shown;
use volume::lock;

/// What a job did, and why it could not go on.
pub type Done = (Facts, Option<String>);

/// Does the job.
///
/// # Errors
/// When it cannot begin, or its end cannot be written.
pub(crate) fn archive_all(
    router: &Arc<Router>,
    mail: &Mail,
    arguments: &Arguments,
    archive: &cli::archiving::Arguments,
    host: &str,
) -> Result<Done, Failure> {
    let hosts = hellos(router, mail, host)?;
    introduce(arguments)?;
    let mut wanted = wanted(archive, hosts.iter().all(|other| other == host))?;
    let sources = std::mem::take(&mut wanted.sources).into_iter().map(absolute).collect::<Result<Vec<_>, _>>()?;
    let list = wanted.list.take();
    let layout = Layout::new(&hosts, archive.explorers, archive.workers.unwrap_or(1), list.is_some());
    let options =
        |list| -> Result<_, Failure> { Ok(Options { list, ..archive.options(layout.crew(), wanted.update)? }) };
    let address = &wanted.address;
    let begin = options(list)?;
    let volume = open(&address.volume, false)?;
    let sampler = archive.sources.watch(archive.energy)?;
    let (clock, cpu) = (Clock::now(), process_seconds());
    let facts = Facts {
        start_unix_seconds: clock.beginning().as_secs(),
        schedule: begin.policy.word().into(),
        transport: transport(&hosts),
        workers: layout.worker_names(&hosts).into_iter().map(worker).collect(),
        ..wanted.facts(&volume)
    };
    let job = Job::begin(volume.shared(), &sources, &address.path, begin, router.control()).map_err(failed)?;
    let service = server_of(&address.volume)?.is_none().then(|| MetadataService::new(volume.shared()));
    let setup = Setup {
        layout,
        began: clock.beginning(),
        volume: address.volume.clone(),
        hidden: job.encoding.hidden,
        update: wanted.update,
        place: None,
        places: volume.places(),
        absent: volume.absent_targets(),
        facts,
    };
    router.begin(setup.layout.clone(), service.clone().map(|service| service as Arc<dyn Service>));
    router.send_all(&ProcessMessage::Setup(Box::new(setup.clone())));
    let part = Part { router, setup: &setup, arguments, doing: "archiving" };
    let list = lock(&job.walking.list).take();
    let begins = (job.plan, job.walks.clone());
    let (mut facts, broken, done) = part.take(mail, begins, volume.shared(), service, list);
    router.close_service();
    facts.wall_seconds = clock.seconds();
    let completed = complete(&job, &volume, &facts);
    let own = volume.written();
    // Also what was done before a failure stays.
    let finished = volume.finish();
    completed.map_err(failed)?;
    let sets = own.sets + done.sets;
    let (data_chunks, code_chunks) = (sets * facts.k as u64, sets * facts.m as u64);
    facts.written = Written { chunk_sets: sets, data_chunks, code_chunks, bytes: own.bytes + done.bytes };
    facts.cpu_seconds = done.cpu_seconds + process_seconds() - cpu;
    if let Some(sampler) = sampler {
        archive::energy::account(sampler, &mut facts).iter().for_each(warning);
    }
    finished?;
    Ok((facts, broken))
}

/// What the user asks for, if many processes can do it.
fn wanted(archive: &cli::archiving::Arguments, one_host: bool) -> Result<Wanted, Failure> {
    let refused = if archive.dry_run || archive.verify {
        Some("plans are made and archives verified by one process: use weft archive --dry-run and weft volume verify")
    } else if archive.energy && !one_host {
        Some("--energy measures one node, and this job has several")
    } else {
        None
    };
    refused.map_or_else(|| Wanted::of(archive), |why| Err(Failure::Usage(why.into())))
}

/// What follows once only the leader has the volume open.
fn complete(job: &Job, volume: &FileSystem, facts: &Facts) -> Result<(), Broken> {
    if facts.ending == Ending::Finished {
        job.clean_up()?;
        archive::check::write_manifest(volume, &job.target)?;
    }
    if facts.ending == Ending::Failed { Ok(()) } else { job.keep_pace(facts) }
}

pub(crate) fn failed(why: Broken) -> Failure {
    Failure::Other(why.0)
}

pub(crate) fn worker(name: String) -> archive::report::Worker {
    archive::report::Worker { name, ..Default::default() }
}

pub(crate) fn transport(hosts: &[String]) -> String {
    let mut nodes: Vec<&String> = hosts.iter().collect();
    nodes.sort_unstable();
    nodes.dedup();
    format!("MPI with {} on {}", count(hosts.len(), "rank"), count(nodes.len(), "node"))
}

/// Waits until all are there. Returns their hosts.
pub(crate) fn hellos(router: &Router, mail: &Mail, host: &str) -> Result<Vec<String>, Failure> {
    let mut hosts = vec![None; router.processes() as usize];
    hosts[LEADER as usize] = Some(host.to_owned());
    while hosts.iter().any(Option::is_none) {
        let Ok((from, process_message)) = mail.recv() else { break };
        let ProcessMessage::Hello(version, host) = process_message else { continue };
        if version != env!("CARGO_PKG_VERSION") {
            return Err(Failure::Other(format!(
                "rank {from} on {host} runs weft-mpi {version}, and rank 0 {}; start the same program everywhere",
                env!("CARGO_PKG_VERSION")
            )));
        }
        if let Some(slot) = hosts.get_mut(from as usize) {
            *slot = Some(host);
        }
    }
    Ok(hosts.into_iter().flatten().collect())
}

/// A source whose path means the same in every process.
fn absolute(mut source: archive::job::Source) -> Result<archive::job::Source, Failure> {
    let given = std::path::Path::new(std::ffi::OsStr::from_bytes(&source.directory));
    let full = std::path::absolute(given).map_err(|why| Failure::Other(format!("{}: {why}", Shown(given))))?;
    source.directory = full.as_os_str().as_bytes().to_vec();
    Ok(source)
}

/// What the manager begins with.
pub(crate) type Begins = (Plan, Vec<Walk>);

/// The leader's own part of the job.
pub(crate) struct Part<'a> {
    pub(crate) router: &'a Arc<Router>,
    pub(crate) setup: &'a Setup,
    pub(crate) arguments: &'a Arguments,
    /// What it does, for the display.
    pub(crate) doing: &'static str,
}

impl Part<'_> {
    /// What the leader's own explorers and workers work with, if it has any. They are clients of
    /// the volume like those of other processes.
    fn context(
        &self,
        volume: &Arc<FileSystem>,
        service: Option<Arc<MetadataService>>,
        list: Option<List>,
    ) -> Result<(Option<Arc<FileSystem>>, RoleContext), String> {
        if !self.setup.layout.touches_files(LEADER) {
            return Err("it touches no files".into());
        }
        let client = service.map(|service| open_here(&Line::here(&service, self.router), self.setup));
        let client = client.transpose().map_err(|why| why.to_string())?;
        let used = client.as_ref().unwrap_or(volume);
        self.router.opened(used);
        let context = context(used, self.router, self.setup, self.arguments, list).map_err(|why| why.to_string())?;
        Ok((client, context))
    }

    /// Takes part until all processes are done. Returns the facts, why the job could not go on, and
    /// what all processes did together.
    pub(crate) fn take(
        &self,
        mail: &Mail,
        begins: Begins,
        volume: &Arc<FileSystem>,
        service: Option<Arc<MetadataService>>,
        list: Option<List>,
    ) -> (Facts, Option<String>, Farewell) {
        let context = self.context(volume, service, list);
        let (client, context) = context.map_or_else(|why| (None, Err(why)), |(client, context)| (client, Ok(context)));
        let ((mut facts, mut broken), mut farewells) = self.run(mail, &context, begins);
        drop(context);
        // Its processor time is the leader's, which is counted at the end.
        farewells.push(close(client, process_seconds()));
        let mut all = Farewell::default();
        for farewell in farewells {
            all.sets += farewell.sets;
            all.bytes += farewell.bytes;
            all.cpu_seconds += farewell.cpu_seconds;
            broken = broken.or(farewell.trouble);
        }
        facts.ending = match (&broken, self.router.control().go_on()) {
            (Some(_), _) => Ending::Failed,
            (None, Err(_)) => Ending::Interrupted,
            (None, Ok(())) => Ending::Finished,
        };
        (facts, broken, all)
    }

    /// Plays the leader's roles, and shows what the reporter says, until all processes are done.
    fn run(&self, mail: &Mail, context: &Result<RoleContext, String>, begins: Begins) -> (Done, Vec<Farewell>) {
        let Self { router, setup, arguments, doing } = *self;
        let crew = setup.layout.crew();
        let manager = Manager::new(crew, begins.0, begins.1, router.control().clone());
        let show = Mutex::new(Progress::new(doing, arguments.json));
        let here = setup.layout.process_of(REPORTER) == Some(LEADER);
        let reporter = here.then(|| Reporter::new(crew, setup.facts.clone(), Shared(&show)));
        std::thread::scope(|scope| {
            let playing = scope.spawn(|| run(router, setup, context, Some(manager), reporter));
            let (reported, farewells) = collect(mail, &show, router.processes(), here);
            let own = playing.join().ok().flatten().map(|reporter| reporter.into_facts(router.control()));
            let nothing = || (setup.facts.clone(), Some("the reporter panicked, which is a defect".into()));
            (own.or(reported).unwrap_or_else(nothing), farewells)
        })
    }
}

/// The leader's display, which the reporter shares with [`collect`].
struct Shared<'a>(&'a Mutex<Progress>);

impl Show for Shared<'_> {
    fn problem(&mut self, problem: &archive::message::Problem) {
        lock(self.0).problem(problem);
    }

    fn progress(&mut self, facts: &Facts) {
        lock(self.0).progress(facts);
    }
}

/// Listens to the others until all have said farewell and the reporter has reported, unless the
/// reporter is `here`.
fn collect(mail: &Mail, show: &Mutex<Progress>, processes: u32, here: bool) -> (Option<Done>, Vec<Farewell>) {
    let mut reported = None;
    let mut farewells = Vec::<(Process, Farewell)>::new();
    let mut show = Shared(show);
    while farewells.len() + 1 < processes as usize || reported.is_none() && !here {
        let Ok((from, process_message)) = mail.recv() else { break };
        match process_message {
            ProcessMessage::Problem(problem) => show.problem(&problem),
            ProcessMessage::Progress(facts) => show.progress(&facts),
            ProcessMessage::Facts(facts, broken) => reported = Some((*facts, broken)),
            ProcessMessage::Farewell(farewell) => farewells.push((from, farewell)),
            _ => {}
        }
    }
    (reported, farewells.into_iter().map(|(_, farewell)| farewell).collect())
}
