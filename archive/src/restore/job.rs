//! A restore job: it restores files first, then the attributes of their directories.

use super::attributes::Keeps;
use super::restorer::HIDDEN;
use super::{Restorer, Restoring, Root, VolumeTree, Walked, stat};
use crate::clock::{Clock, process_seconds};
use crate::crew::{Roles, live_in_threads};
use crate::job::{limits, most_objects};
use crate::limit::Limiter;
use crate::message::{DirectoryPair, Walk};
use crate::report::Facts;
use crate::roles::{Manager, Plan, Reporter, Show};
use crate::transport::{Broken, Crew};
use crate::walk::Filter;
use fs::{Attributes, FileKind, FileSystem, ROOT};
use plan::schedule::Policy;
use rustix::fs::{AtFlags, Dir, FlockOperation, flock, fstat, unlinkat};
use rustix::io::Errno;
use std::sync::Arc;
use volume::Control;

/// How to run a restore.
pub struct Options {
    /// The numbers of explorers and workers.
    pub crew: Crew,
    /// How work is assigned to workers.
    pub policy: Policy,
    /// The memory that the job may use, in bytes.
    pub memory: u64,
    /// Whether files that exist and differ are replaced.
    pub force: bool,
    /// The most bytes a second that are written.
    pub limit: Option<u64>,
    /// Which files to restore.
    pub filter: Filter,
}

/// The walk for a path of a volume that a job reads: of the content of a directory, or of one file.
///
/// # Errors
/// If the path does not exist.
pub fn walk_of(volume: &FileSystem, path: &[u8]) -> Result<(Walk, Attributes), Broken> {
    let (mut at, mut parent) = (volume.attributes(ROOT)?, None);
    for name in path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()) {
        let shown = || String::from_utf8_lossy(path).into_owned();
        let found = volume.lookup(at.ino, name).map_err(|error| Broken(format!("/{}: {error}", shown())))?;
        (parent, at) = (Some((at.ino, name)), found);
    }
    let place = |source: &[u8], ino| DirectoryPair {
        source: source.to_vec(),
        below: source.len() + usize::from(!source.is_empty()),
        ino,
        ..DirectoryPair::default()
    };
    let walk = match parent {
        Some((ino, name)) if at.kind != FileKind::Directory => {
            let above = path.strip_suffix(name).unwrap_or_default();
            Walk::Names(place(above.strip_suffix(b"/").unwrap_or(above), ino), vec![name.to_vec()])
        }
        _ => Walk::Directory(place(path, at.ino)),
    };
    Ok((walk, at))
}

/// A restore that can begin: what it walks, and what its workers share.
pub struct Restore {
    walk: Walk,
    top: Attributes,
    work: Restoring,
    filter: Filter,
    plan: Plan,
}

impl Restoring {
    /// What workers of one process share, in a directory that is created if it does not exist. The
    /// workers of a job may be in several processes.
    ///
    /// # Errors
    /// If the directory cannot be created or opened.
    pub fn begin(
        volume: &Arc<FileSystem>,
        to: &[u8],
        force: bool,
        limit: Option<u64>,
        control: &Arc<Control>,
    ) -> Result<Self, Broken> {
        let root = Arc::new(Root::open(to).map_err(|error| system(to, error))?);
        let hidden = root.make(HIDDEN).map_err(|error| system(to, error))?;
        let limiter = Limiter::new(limit);
        let keeps = Keeps::probe(&hidden);
        Ok(Self { volume: volume.clone(), root, hidden, force, keeps, limiter, control: control.clone() })
    }

    /// Makes this the only restore into the directory: others would take its incomplete files for
    /// their own. Returns false if another one has just removed the job's directory.
    fn alone(&self, to: &[u8]) -> Result<bool, Broken> {
        match flock(&self.hidden, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => {
                let to = String::from_utf8_lossy(to);
                Err(Broken(format!("{to}: another restore into this directory is running")))
            }
            // Some file systems have no such locks.
            _ => Ok(fstat(&self.hidden).map_err(|error| system(to, error))?.st_nlink > 0),
        }
    }

    /// Returns when all that this machine wrote is durable.
    ///
    /// # Errors
    /// When the system says that it is not.
    pub fn sync(&self) -> Result<(), Broken> {
        let synced = self.root.directory(b"").and_then(rustix::fs::syncfs);
        synced.map_err(|error| Broken(format!("what was restored may not be durable: {}", std::io::Error::from(error))))
    }

    /// What the explorers of this process share. With `directories`, they pass on only directories,
    /// for the second step.
    pub fn walked(&self, filter: Filter, directories: bool) -> Arc<Walked> {
        let root = Some(self.root.clone());
        Arc::new(Walked { volume: self.volume.clone(), filter, root, directories })
    }
}

impl Restore {
    /// Prepares it.
    ///
    /// # Errors
    /// If the path does not exist, or the directory cannot be created.
    pub fn begin(
        volume: &Arc<FileSystem>,
        path: &[u8],
        to: &[u8],
        options: &Options,
        control: &Arc<Control>,
    ) -> Result<Self, Broken> {
        let (walk, top) = walk_of(volume, path)?;
        let plan = Plan {
            policy: options.policy,
            limits: limits(volume.stripe_bytes()),
            part_bytes: None,
            most_objects: most_objects(options.memory),
        };
        let work = loop {
            let work = Restoring::begin(volume, to, options.force, options.limit, control)?;
            if work.alone(to)? {
                break work;
            }
        };
        Ok(Self { walk, top, work, filter: options.filter.clone(), plan })
    }

    /// What the manager begins with.
    pub fn begins(&self) -> (Plan, Vec<Walk>) {
        (self.plan, vec![self.walk.clone()])
    }

    /// One of the two steps in threads of this process: the files, then the attributes of their
    /// directories.
    pub fn step<S: Show + Send>(
        &self,
        directories: bool,
        crew: Crew,
        clock: Clock,
        mut reporter: Reporter<S>,
    ) -> Reporter<S> {
        let walked = self.work.walked(self.filter.clone(), directories);
        let craft = || Ok::<_, Broken>(Restorer::new(&self.work));
        let roles = Roles { tree: || VolumeTree::new(walked.clone()), craft };
        let manager = Manager::new(crew, self.plan, vec![self.walk.clone()], self.work.control.clone());
        reporter.begin();
        live_in_threads(crew, clock, manager, reporter, &roles)
    }

    /// Ends a restore that did everything: removes what only the job needed, and returns when all
    /// is durable.
    ///
    /// # Errors
    /// If that cannot be done.
    pub fn complete(&self, to: &[u8], facts: &mut Facts) -> Result<(), Broken> {
        clean_up(&self.work).map_err(|error| system(to, error))?;
        if self.top.kind == FileKind::Directory {
            let given = self.work.root.directory(b"").map_err(|error| system(to, error))?;
            if let Err(what) = super::attributes::give(&given, &stat(&self.top), &self.work.volume, self.top.ino) {
                facts.errors.add(format!("{}: it was restored without {what}", String::from_utf8_lossy(to)));
            }
        }
        Ok(())
    }
}

fn system(to: &[u8], error: rustix::io::Errno) -> Broken {
    Broken(format!("{}: {}", String::from_utf8_lossy(to), std::io::Error::from(error)))
}

/// Restores a tree or a file into a directory, in threads of this process. `facts` has what is
/// already known of the job. Returns the completed facts and, if the job had to stop, the reason.
///
/// # Errors
/// If the job cannot begin, or if its end cannot be written.
pub fn restore<S: Show + Send>(
    volume: &Arc<FileSystem>,
    path: &[u8],
    to: &[u8],
    options: Options,
    facts: Facts,
    show: S,
    control: &Arc<Control>,
) -> Result<(Facts, Option<String>), Broken> {
    let job = Restore::begin(volume, path, to, &options, control)?;
    let (clock, cpu) = (Clock::now(), process_seconds());
    let facts = Facts {
        start_unix_seconds: clock.beginning().as_secs(),
        schedule: options.policy.word().into(),
        transport: "threads".into(),
        ..facts
    };
    let mut reporter = Reporter::new(options.crew, facts, show);
    for directories in [false, true] {
        reporter = job.step(directories, options.crew, clock, reporter);
        if reporter.is_broken() || control.go_on().is_err() {
            break;
        }
    }
    let (mut facts, broken) = reporter.into_facts(control);
    if broken.is_none() && control.go_on().is_ok() {
        job.complete(to, &mut facts)?;
    }
    facts.wall_seconds = clock.seconds();
    facts.cpu_seconds = process_seconds() - cpu;
    Ok((facts, broken))
}

/// Removes what only the job needed, and returns when everything restored is durable.
fn clean_up(job: &Restoring) -> Result<(), rustix::io::Errno> {
    for entry in Dir::read_from(&job.hidden)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            unlinkat(&job.hidden, entry.file_name(), AtFlags::empty())?;
        }
    }
    let root = job.root.directory(b"")?;
    unlinkat(&root, HIDDEN, AtFlags::REMOVEDIR)?;
    rustix::fs::syncfs(&root)
}
