//! The roles of one process, in threads.

use crate::command::{Arguments, RestoreArguments, Task};
use crate::layout::LEADER;
use crate::metadata::{Line, connect};
use crate::process_message::{Farewell, ProcessMessage, Setup};
use crate::router::{Router, Way};
use archive::check::{Against, Checker, Checking};
use archive::clock::{Clock, process_seconds};
use archive::crew::{Roles, give_up, live_as, manage};
use archive::encode::{Encoder, Encoding};
use archive::job::{Options, identities};
use archive::limit::Limiter;
use archive::message::Problem;
use archive::report::Facts;
use archive::restore::{Restorer, Restoring, VolumeTree, Walked};
use archive::roles::{Manager, Reporter, Show};
use archive::transport::{Broken, Crew, MANAGER, REPORTER, Rank, live};
use archive::walk::{Filter, List, SourceTree, Walking};
use cli::archiving::{Failure, options, server_of};
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
pub enum RoleContext {
    /// Of an archive.
    Archive {
        /// The explorers.
        walking: Arc<Walking>,
        /// The workers.
        encoding: Box<Encoding>,
    },
    /// Of a restore.
    Restore {
        /// The explorers.
        walked: Arc<Walked>,
        /// The workers.
        restoring: Box<Restoring>,
    },
    /// Of a verification.
    Verify {
        /// The explorers.
        walked: Arc<Walked>,
        /// The workers.
        checking: Checking,
    },
}

impl RoleContext {
    /// For an open volume, by the setup and the options.
    pub fn archive(volume: &Arc<FileSystem>, router: &Router, setup: &Setup, options: Options) -> Self {
        let limit = share(options.limit, router, setup);
        Self::Archive {
            walking: Arc::new(Walking {
                volume: volume.clone(),
                filter: options.filter,
                one_file_system: options.one_file_system,
                dry: false,
                avoid: identities(&setup.places),
                list: Mutex::new(options.list),
            }),
            encoding: Box::new(Encoding {
                volume: volume.clone(),
                hidden: setup.hidden,
                update: options.update,
                limiter: Limiter::new(limit),
                control: router.control().clone(),
            }),
        }
    }

    /// For an open volume and what is to be restored from it.
    ///
    /// # Errors
    /// When the directory cannot be opened here.
    pub fn restore(
        volume: &Arc<FileSystem>,
        router: &Router,
        setup: &Setup,
        arguments: &RestoreArguments,
    ) -> Result<Self, Failure> {
        let (to, limit) = (setup.place.as_deref().unwrap_or_default(), share(arguments.limit, router, setup));
        let restoring = Restoring::begin(volume, to, arguments.force, limit, router.control())
            .map_err(|why| Failure::Other(why.0))?;
        let walked = restoring.walked(arguments.filter()?, false);
        Ok(Self::Restore { walked, restoring: Box::new(restoring) })
    }

    /// For an open volume whose archive is compared.
    pub fn verify(volume: &Arc<FileSystem>, router: &Router, setup: &Setup) -> Self {
        let (filter, volume) = (Filter::default(), volume.clone());
        let against = setup.place.clone().map_or(Against::Hashes, Against::Source);
        Self::Verify {
            walked: Arc::new(Walked { volume: volume.clone(), filter, root: None, directories: false }),
            checking: Checking { volume, against, control: router.control().clone() },
        }
    }
}

/// What the roles of this process work with, for what the arguments ask for; `list` has the files
/// of an archive where they are listed.
///
/// # Errors
/// When a pattern is not valid, or a directory cannot be opened here.
pub fn context(
    volume: &Arc<FileSystem>,
    router: &Router,
    setup: &Setup,
    arguments: &Arguments,
    list: Option<List>,
) -> Result<RoleContext, Failure> {
    Ok(match arguments.task() {
        Task::Archive(archive) => {
            let options = Options { list, ..archive.options(setup.layout.crew(), setup.update)? };
            RoleContext::archive(volume, router, setup, options)
        }
        Task::Restore(restore) => RoleContext::restore(volume, router, setup, restore)?,
        Task::Verify(_) => RoleContext::verify(volume, router, setup),
    })
}

/// Each process has its share of what may be read or written.
fn share(limit: Option<u64>, router: &Router, setup: &Setup) -> Option<u64> {
    let share = f64::from(setup.layout.workers_of(router.me())) / f64::from(setup.layout.crew().workers.max(1));
    limit.map(|limit| ((limit as f64 * share) as u64).max(1))
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
        Ok(RoleContext::Archive { walking, encoding }) => {
            let roles = Roles { tree: || SourceTree::new(walking.clone()), craft: || Encoder::new(encoding) };
            live_as(role, crew, clock, &roles, way);
        }
        Ok(RoleContext::Restore { walked, restoring }) => {
            let craft = || Ok::<_, Broken>(Restorer::new(restoring));
            live_as(role, crew, clock, &Roles { tree: || VolumeTree::new(walked.clone()), craft }, way);
        }
        Ok(RoleContext::Verify { walked, checking }) => {
            let craft = || Ok::<_, Broken>(Checker::new(checking));
            live_as(role, crew, clock, &Roles { tree: || VolumeTree::new(walked.clone()), craft }, way);
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
        Some(address) => cluster::connect(&address, &cluster::client_name(), options(false))?,
        None => connect(line, &cluster::client_name(), &setup.absent, options(false))?,
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
