//! An archive job: where it puts files, what it starts from, and how it ends.

use crate::clock::{Clock, process_seconds};
use crate::crew::{Roles, live_in_threads};
use crate::encode::{Encoder, Encoding, HIDDEN};
use crate::limit::Limiter;
use crate::lock::DirectoryLock;
use crate::message::{DirectoryPair, Stat, Walk};
use crate::pace::{PACE_ATTRIBUTE, Pace};
use crate::report::{Facts, Written};
use crate::roles::{Manager, Plan, Reporter, Show};
use crate::transport::{Broken, Crew};
use crate::walk::{Filter, List, SourceTree, Walking, open_directory, root_stat, stat_of, sync_directory};
use fs::{Attributes, FileKind, FileSystem, New, ROOT};
use plan::Ino;
use plan::schedule::{Policy, QueueLimits};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use volume::Control;

/// How to run an archive job.
pub struct Options {
    /// The numbers of explorers and workers.
    pub crew: Crew,
    /// How work is assigned to workers.
    pub policy: Policy,
    /// The length in bytes of a part of a large file; None: a suitable one.
    pub part_bytes: Option<u64>,
    /// The memory that the job may use, in bytes.
    pub memory: u64,
    /// Whether files that exist in the archive and differ are replaced.
    pub update: bool,
    /// The most bytes a second that are read.
    pub limit: Option<u64>,
    /// Which files to archive.
    pub filter: Filter,
    /// Whether to stay on the file system of the source.
    pub one_file_system: bool,
    /// The files, if they come from a list.
    pub list: Option<List>,
}

/// What is archived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The directory.
    pub directory: Vec<u8>,
    /// The names in it to archive; None: all.
    pub names: Option<Vec<Vec<u8>>>,
}

impl Source {
    /// Parses a source: `DIR/` and `.` mean the content of the directory, `PATH` means the file or
    /// directory itself, under its name.
    ///
    /// # Errors
    /// If the source has no name.
    pub fn parse(given: &[u8]) -> Result<Self, Broken> {
        let content = matches!(given, b"." | b"/") || given.ends_with(b"/") || given.ends_with(b"/.");
        let trimmed = given.strip_suffix(b"/.").unwrap_or(given);
        let end = trimmed.iter().rposition(|&byte| byte != b'/').map_or(0, |last| last + 1);
        let path = &trimmed[..end];
        if content {
            let directory = if path.is_empty() { b"/".to_vec() } else { path.to_vec() };
            return Ok(Self { directory, names: None });
        }
        let cut = path.iter().rposition(|&byte| byte == b'/');
        let name = &path[cut.map_or(0, |cut| cut + 1)..];
        if matches!(name, b"" | b"..") {
            return Err(Broken(
                "a source that ends in .. has no name; end it with a slash to archive what is in it".into(),
            ));
        }
        let directory = match cut {
            None => b".".to_vec(),
            Some(0) => b"/".to_vec(),
            Some(cut) => path[..cut].to_vec(),
        };
        Ok(Self { directory, names: Some(vec![name.to_vec()]) })
    }
}

/// The limits of a task at this amount of memory.
pub fn limits(stripe_bytes: usize) -> QueueLimits {
    QueueLimits { bytes: (stripe_bytes as u64).clamp(1 << 20, 4 << 20), objects: 512 }
}

/// How many files may wait at this amount of memory: an eighth of it, at half a KiB each.
pub fn most_objects(memory: u64) -> usize {
    usize::try_from(memory / 8 / 512).unwrap_or(usize::MAX).clamp(512, 1 << 17)
}

/// How many workers suit this amount of memory: each fills a stripe while another is written, with
/// its parity.
pub fn most_workers(memory: u64, stripe_bytes: usize, k: usize, m: usize) -> u32 {
    let stripe = (stripe_bytes * (k + m) / k.max(1)) as u64;
    u32::try_from(memory / 2 / (2 * stripe.max(1))).unwrap_or(u32::MAX).clamp(1, 4096)
}

/// Looks up a directory of a path in the volume. Creates it and its parents if they do not exist.
///
/// # Errors
/// If something else has its name, or if it cannot be created.
pub fn make_directories(volume: &FileSystem, path: &[u8], mode: u32) -> Result<Attributes, Broken> {
    let mut at = volume.attributes(ROOT)?;
    for name in path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()) {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let new = New { kind: FileKind::Directory, mode, uid, gid, device: 0, link: Vec::new() };
        let parent = at.ino;
        at = match volume.lookup(parent, name) {
            Err(fs::Error::Meta(meta::Error::NotFound)) => match volume.make(parent, name, &new) {
                // Another process was faster.
                Err(fs::Error::Meta(meta::Error::Exists)) => volume.lookup(parent, name)?,
                made => made?,
            },
            found => found?,
        };
        if at.kind != FileKind::Directory {
            let shown = volume::shown(path);
            return Err(Broken(format!("{shown}: there is a file in the place of a directory")));
        }
    }
    Ok(at)
}

/// The identities (device and inode) of those of these directories that exist. The volume's own
/// directories are not archived.
pub fn identities(directories: &[PathBuf]) -> Vec<(u64, u64)> {
    let identity = |path: &PathBuf| Some(stat_of(open_directory(path.as_os_str().as_bytes()).ok()?).ok()?.identity);
    directories.iter().filter_map(identity).collect()
}

/// The attributes of a source.
fn stat_of_source(path: &[u8]) -> Result<Stat, Broken> {
    root_stat(path).map_err(|why| Broken(format!("{}: {why}", volume::shown(path))))
}

/// The offset at which paths below a directory begin.
pub(crate) fn below(directory: &[u8]) -> usize {
    directory.len() + usize::from(!directory.ends_with(b"/"))
}

/// The first walks of a job, and the identities of the volume's own directories. `root` has the
/// attributes for the archive's directory if the source's directory becomes it.
#[allow(clippy::type_complexity, reason = "walks and identities")]
pub(crate) fn places(
    volume: &FileSystem,
    sources: &[Source],
    target: &[u8],
    directory: Option<&Attributes>,
    root: Option<&Stat>,
    listed: bool,
) -> Result<(Vec<Walk>, Vec<(u64, u64)>), Broken> {
    let mut walks = Vec::new();
    for source in sources {
        let stat = stat_of_source(&source.directory)?;
        let times = root.map(|root| (root.accessed, root.modified));
        let times = times.or(directory.map(|directory| (directory.accessed, directory.modified)));
        let (accessed, modified) = times.unwrap_or_default();
        let place = DirectoryPair {
            source: source.directory.clone(),
            below: below(&source.directory),
            target: target.to_vec(),
            ino: directory.map_or(Ino(0), |directory| directory.ino),
            fresh: false,
            system: stat.identity.0,
            accessed,
            modified,
        };
        walks.push(match &source.names {
            _ if listed => Walk::List(place),
            None => Walk::Directory(place),
            Some(names) => Walk::Names(place, names.clone()),
        });
    }
    Ok((walks, identities(&volume.places())))
}

/// An archive job, ready to run.
pub struct Job {
    /// The directory of the volume that the files go to.
    pub target: Vec<u8>,
    /// The first walks, for the manager and the explorers.
    pub walks: Vec<Walk>,
    /// What all explorers share.
    pub walking: Arc<Walking>,
    /// What all workers share.
    pub encoding: Encoding,
    /// The manager's settings.
    pub plan: Plan,
    crew: Crew,
    /// The attributes for the archive's own directory, if a source's directory becomes it.
    root: Option<Stat>,
    directory: Ino,
    lock: Option<DirectoryLock>,
}

impl Job {
    /// Prepares the volume for a job.
    ///
    /// # Errors
    /// If a source does not exist, if the volume cannot be written, or if another job writes to
    /// that directory.
    pub fn begin(
        volume: &Arc<FileSystem>,
        sources: &[Source],
        target: &[u8],
        options: Options,
        control: &Arc<Control>,
    ) -> Result<Self, Broken> {
        let root = match sources {
            [Source { names: None, directory }] => Some(stat_of_source(directory)?),
            _ => None,
        };
        let directory = make_directories(volume, target, 0o755)?;
        let lock = DirectoryLock::take(volume, directory.ino, target, control)?;
        let hidden = make_directories(volume, &crate::message::join(target, HIDDEN), 0o700)?.ino;
        if let Some(root) = &root {
            sync_directory(volume, &volume.attributes(directory.ino)?, root)?;
        }
        let directory = volume.attributes(directory.ino)?;
        let listed = options.list.is_some();
        let (walks, avoid) = places(volume, sources, target, Some(&directory), root.as_ref(), listed)?;
        Ok(Self {
            target: target.to_vec(),
            walks,
            walking: Arc::new(Walking {
                volume: volume.clone(),
                filter: options.filter,
                one_file_system: options.one_file_system,
                dry: false,
                avoid,
                list: Mutex::new(options.list),
            }),
            encoding: Encoding {
                volume: volume.clone(),
                hidden,
                update: options.update,
                limiter: Limiter::new(options.limit),
                control: control.clone(),
            },
            plan: Plan {
                policy: options.policy,
                limits: limits(volume.stripe_bytes()),
                part_bytes: options.part_bytes,
                most_objects: most_objects(options.memory),
            },
            crew: options.crew,
            root,
            directory: directory.ino,
            lock,
        })
    }

    /// Runs the job in threads of this process. `facts` has what is already known of the job.
    /// Returns the completed facts and, if the job had to stop, the reason.
    ///
    /// # Errors
    /// If the end of the job cannot be written to the volume.
    pub fn run<S: Show + Send>(&self, facts: Facts, show: S) -> Result<(Facts, Option<String>), Broken> {
        let clock = Clock::now();
        let volume = &self.encoding.volume;
        let control = &self.encoding.control;
        let before = volume.written();
        let cpu = process_seconds();
        let facts = Facts {
            start_unix_seconds: clock.beginning().as_secs(),
            schedule: self.plan.policy.word().into(),
            transport: "threads".into(),
            ..facts
        };
        let manager = Manager::new(self.crew, self.plan, self.walks.clone(), control.clone());
        let roles = Roles { tree: || SourceTree::new(self.walking.clone()), craft: || Encoder::new(&self.encoding) };
        let reporter = live_in_threads(self.crew, clock, manager, Reporter::new(self.crew, facts, show), &roles);
        let (mut facts, broken) = reporter.into_facts(control);
        if broken.is_none() && control.go_on().is_ok() {
            self.clean_up()?;
        }
        let now = volume.written();
        let sets = now.sets - before.sets;
        facts.written = Written {
            chunk_sets: sets,
            data_chunks: sets * facts.k as u64,
            code_chunks: sets * facts.m as u64,
            bytes: now.bytes - before.bytes,
        };
        facts.wall_seconds = clock.seconds();
        facts.cpu_seconds = process_seconds() - cpu;
        if broken.is_none() {
            self.keep_pace(&facts)?;
        }
        Ok((facts, broken))
    }

    /// Stores the pace of the job, for the estimates of later dry runs.
    ///
    /// # Errors
    /// If the volume cannot be written.
    pub fn keep_pace(&self, facts: &Facts) -> Result<(), Broken> {
        if facts.files == 0 || facts.wall_seconds <= 0.0 {
            return Ok(());
        }
        let per_second = |amount: u64| amount as f64 / facts.wall_seconds;
        let pace = Pace { bytes_per_second: per_second(facts.bytes), files_per_second: per_second(facts.files) };
        let pace = postcard::to_stdvec(&pace).map_err(|why| Broken(why.to_string()))?;
        Ok(self.encoding.volume.set_attribute(self.directory, PACE_ATTRIBUTE, &pace, None)?)
    }

    /// Removes what only the job needed, once nothing is left to do.
    ///
    /// # Errors
    /// If the volume cannot be written, or if another job may write to the directory.
    pub fn clean_up(&self) -> Result<(), Broken> {
        self.lock.as_ref().map_or(Ok(()), DirectoryLock::check)?;
        let volume = &self.encoding.volume;
        loop {
            let listed = volume.list(self.encoding.hidden, 0, 1000)?;
            if listed.is_empty() {
                break;
            }
            for entry in listed {
                match volume.unlink(self.encoding.hidden, &entry.name) {
                    Ok(()) | Err(fs::Error::Meta(meta::Error::NotFound)) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        volume.remove_directory(self.directory, HIDDEN)?;
        if let Some(root) = &self.root {
            sync_directory(volume, &volume.attributes(self.directory)?, root)?;
        }
        Ok(volume.sync(ROOT)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slash_at_the_end_means_what_is_in_it() {
        let parsed = |given: &str| {
            let source = Source::parse(given.as_bytes()).unwrap();
            let names = source.names.map(|names| String::from_utf8(names[0].clone()).unwrap());
            (String::from_utf8(source.directory).unwrap(), names)
        };
        let some = |name: &str| Some(name.to_string());
        assert_eq!(parsed("a/b"), ("a".into(), some("b")));
        assert_eq!(parsed("/a"), ("/".into(), some("a")));
        assert_eq!(parsed("a"), (".".into(), some("a")));
        assert_eq!(parsed("a/b//"), ("a/b".into(), None));
        assert_eq!(parsed("a/b/."), ("a/b".into(), None));
        assert_eq!(parsed("."), (".".into(), None));
        assert_eq!(parsed("/"), ("/".into(), None));
        assert_eq!(parsed("../"), ("..".into(), None));
        assert!(Source::parse(b"..").is_err() && Source::parse(b"a/..").is_err());
    }
}
