//! The roles of one process, in threads.

use crate::command::Arguments;
use crate::layout::LEADER;
use crate::metadata::{Line, connect};
use crate::process_message::{Farewell, ProcessMessage, Setup};
use crate::router::{Router, Way};
use archive::clock::{Clock, process_seconds};
use archive::crew::{Roles, give_up, live_as, manage};
use archive::encode::{Encoder, Encoding};
use archive::job::{Options, identities};
use archive::limit::Limiter;
use archive::message::Problem;
use archive::report::Facts;
use archive::roles::{Manager, Reporter, Show};
use archive::transport::{Crew, MANAGER, REPORTER, Rank, live};
use archive::walk::{SourceTree, Walking};
use cli::archiving::{Failure, client_name, options, server_of};
use fs::FileSystem;
use std::sync::{Arc, Mutex};

/// Shows at the leader how far the job is.
pub struct Relay<'a>(pub &'a Router);

impl Show for Relay<'_> {
    fn problem(&mut self, problem: &Problem) {
        self.0.send(LEADER, &ProcessMessage::Problem(problem.clone()));
    }

    fn progress(&mut self, facts: &Facts) {
        let &Facts { files, bytes, others, unchanged_files, unchanged_bytes, .. } = facts;
        let &Facts { found_files, found_bytes, explored, .. } = facts;
        let shown = Facts {
            files,
            bytes,
            others,
            unchanged_files,
            unchanged_bytes,
            found_files,
            found_bytes,
            explored,
            throughput: facts.throughput.clone(),
            errors: facts.errors.clone(),
            ..Facts::default()
        };
        self.0.send(LEADER, &ProcessMessage::Progress(Box::new(shown)));
    }
}

/// What the explorers and workers of a process work with.
pub struct RoleContext {
    walking: Arc<Walking>,
    encoding: Encoding,
}

impl RoleContext {
    /// For an open volume, by the setup and the options.
    pub fn new(volume: &Arc<FileSystem>, router: &Router, setup: &Setup, options: Options) -> Self {
        // Each process has its share of what may be read.
        let share = f64::from(setup.layout.workers_of(router.me())) / f64::from(setup.layout.crew().workers.max(1));
        let limit = options.limit.map(|limit| ((limit as f64 * share) as u64).max(1));
        Self {
            walking: Arc::new(Walking {
                volume: volume.clone(),
                filter: options.filter,
                one_file_system: options.one_file_system,
                dry: false,
                avoid: identities(&setup.places),
                list: Mutex::new(options.list),
            }),
            encoding: Encoding {
                volume: volume.clone(),
                hidden: setup.hidden,
                update: options.update,
                limiter: Limiter::new(limit),
                control: router.control().clone(),
            },
        }
    }
}

/// Runs the roles of this process until the job ends. Without a context, explorers and workers give
/// up and say why. Returns the reporter, if it was here.
pub fn run<S: Show + Send>(
    router: &Arc<Router>,
    setup: &Setup,
    context: &Result<RoleContext, String>,
    mut manager: Option<Manager>,
    mut reporter: Option<Reporter<S>>,
) -> Option<Reporter<S>> {
    let (crew, clock) = (setup.layout.crew(), Clock::began(setup.began));
    let mut reporting = reporter.as_mut();
    std::thread::scope(|scope| {
        for role in setup.layout.roles_of(router.me()) {
            let way = router.way(role);
            match role {
                MANAGER => {
                    let manager = manager.take();
                    scope.spawn(move || manager.into_iter().for_each(|mut manager| manage(&mut manager, crew, &way)));
                }
                REPORTER => {
                    let reporter = reporting.take();
                    scope.spawn(move || reporter.into_iter().for_each(|reporter| _ = live(reporter, REPORTER, &way)));
                }
                _ => _ = scope.spawn(move || run_role(role, &way, crew, clock, context)),
            }
        }
    });
    reporter
}

fn run_role(role: Rank, way: &Way, crew: Crew, clock: Clock, context: &Result<RoleContext, String>) {
    match context {
        Ok(RoleContext { walking, encoding }) => {
            let roles = Roles { tree: || SourceTree::new(walking.clone()), craft: || Encoder::new(encoding) };
            live_as(role, crew, clock, &roles, way);
        }
        Err(why) => give_up(way, why.clone()),
    }
}

/// Takes the identity that the arguments give this process, and checks all that must be checked
/// before anything is opened.
///
/// # Errors
/// When the identity, or the kernel that was asked for, cannot be used.
pub fn introduce(arguments: &Arguments) -> Result<(), Failure> {
    gf::select::chosen().map_err(|why| Failure::Usage(why.to_string()))?;
    Ok(arguments.identity.as_deref().map_or(Ok(()), |place| cluster::use_identity(&cluster::Identity::at(place)))?)
}

/// Opens the volume as one of many: through its server, if it has one, or else through the leader.
///
/// # Errors
/// When it cannot be opened.
pub fn open_here(line: &Line, setup: &Setup) -> Result<Arc<FileSystem>, Failure> {
    Ok(match server_of(&setup.volume)? {
        Some(address) => cluster::connect(&address, &client_name(), options(false))?,
        None => connect(line, &client_name(), &setup.absent, options(false))?,
    })
}

/// Closes the volume of this process, and says what was written to it.
pub fn close(volume: Option<Arc<FileSystem>>, cpu_before: f64) -> Farewell {
    let mut farewell = Farewell::default();
    if let Some(volume) = volume {
        farewell.trouble = volume.close_volume().err().map(|error| error.to_string());
        let written = volume.written();
        (farewell.sets, farewell.bytes) = (written.sets, written.bytes);
    }
    farewell.cpu_seconds = process_seconds() - cpu_before;
    farewell
}
