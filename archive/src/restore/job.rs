//! A restore job: it restores files first, then the attributes of their directories.

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
use rustix::fs::{AtFlags, Dir, unlinkat};
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
    let system =
        |error: rustix::io::Errno| Broken(format!("{}: {}", String::from_utf8_lossy(to), std::io::Error::from(error)));
    let (walk, top) = walk_of(volume, path)?;
    let root = Arc::new(Root::open(to).map_err(system)?);
    let hidden = root.make(HIDDEN).map_err(system)?;
    let limiter = Limiter::new(options.limit);
    let job = Restoring {
        volume: volume.clone(),
        root: root.clone(),
        hidden,
        force: options.force,
        limiter,
        control: control.clone(),
    };
    let (clock, cpu) = (Clock::now(), process_seconds());
    let plan = Plan {
        policy: options.policy,
        limits: limits(volume.stripe_bytes()),
        part_bytes: None,
        most_objects: most_objects(options.memory),
    };
    let facts = Facts {
        start_unix_seconds: clock.beginning().as_secs(),
        schedule: options.policy.word().into(),
        transport: "threads".into(),
        ..facts
    };
    let mut reporter = Reporter::new(options.crew, facts, show);
    for directories in [false, true] {
        let walked = Arc::new(Walked {
            volume: volume.clone(),
            filter: options.filter.clone(),
            root: Some(root.clone()),
            directories,
        });
        let roles = Roles { tree: || VolumeTree::new(walked.clone()), craft: || Ok::<_, Broken>(Restorer::new(&job)) };
        let manager = Manager::new(options.crew, plan, vec![walk.clone()], control.clone());
        reporter.begin();
        reporter = live_in_threads(options.crew, clock, manager, reporter, &roles);
        if reporter.is_broken() || control.go_on().is_err() {
            break;
        }
    }
    let (mut facts, broken) = reporter.into_facts(control);
    if broken.is_none() && control.go_on().is_ok() {
        clean_up(&job).map_err(system)?;
        if top.kind == FileKind::Directory {
            let given = root.directory(b"").map_err(system)?;
            if let Err(what) = super::attributes::give(&given, &stat(&top), volume, top.ino) {
                facts.errors.add(format!("{}: it was restored without {what}", String::from_utf8_lossy(to)));
            }
        }
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
