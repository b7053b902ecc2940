//! The messages between the roles of a job.
//!
//! Every message is plain data (`serde`) of bounded size. It names things by number or path, never
//! by pointer or descriptor, so that it means the same in another process on another machine. Paths
//! are bytes.

use crate::report::Sizes;
use fs::{FileKind, Time};
use plan::Ino;
use serde::{Deserialize, Serialize};

/// The most entries of one message.
pub const MAX_ITEMS: usize = 512;
/// The approximate limit for the names in one message, in bytes: with more, the message is full.
pub const NAME_BYTES: usize = 64 << 10;

/// The attributes of a file, as the system call reports them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stat {
    /// The type of the file.
    pub kind: FileKind,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// The number of its names (hard links).
    pub links: u32,
    /// The number of a device, as the kernel writes it in 32 bits.
    pub device: u32,
    /// Bytes of content.
    pub size: u64,
    /// Bytes that are not holes.
    pub allocated: u64,
    /// Last access.
    pub accessed: Time,
    /// Last change of content.
    pub modified: Time,
    /// Last change of anything.
    pub changed: Time,
    /// The file system and the inode number there: two names with the same identity are one file.
    pub identity: (u64, u64),
}

/// A file in a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    /// Its name.
    pub name: Vec<u8>,
    /// Its attributes.
    pub stat: Stat,
}

/// A directory, at both ends of the job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryPair {
    /// Its path at the reading end.
    pub source: Vec<u8>,
    /// The offset in `source` at which its path below the named source begins.
    pub below: usize,
    /// Its path at the writing end, without a slash in front.
    pub target: Vec<u8>,
    /// Its inode number in the volume.
    pub ino: Ino,
    /// Whether it was created at the writing end just now, so that it is empty.
    pub fresh: bool,
    /// The file system that it is on.
    pub system: u64,
    /// Its access time. Work inside the directory must restore it.
    pub accessed: Time,
    /// Its modification time. Work inside the directory must restore it.
    pub modified: Time,
}

/// What an explorer looks at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Walk {
    /// A directory.
    Directory(DirectoryPair),
    /// These files in a directory. Names that exceed one message come in several, one after the
    /// other.
    Names(DirectoryPair, Vec<Vec<u8>>),
    /// The files that a list names, below a directory.
    List(DirectoryPair),
}

/// Files of one directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// The directory.
    pub place: DirectoryPair,
    /// Files in it.
    pub items: Vec<Item>,
}

/// A file that is done in parts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Large {
    /// Its directory.
    pub place: DirectoryPair,
    /// The file.
    pub item: Item,
    /// The length of each part but the last.
    pub part_bytes: u64,
    /// The inode number of the file that the parts go into; 0 if there is nothing to do.
    pub ino: Ino,
}

/// A task for a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Work {
    /// Files, each in one piece.
    Files(Vec<Group>),
    /// Finds out what to do for a file in parts, and prepares it. The answer is `Opened`.
    Open(Large),
    /// One part.
    Part(Large, u32),
    /// Gives a file its name: all its parts are done.
    Close(Large),
}

/// A problem with one file. The job continues with the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// The path of the file.
    pub path: Vec<u8>,
    /// What is wrong.
    pub what: String,
}

/// What was done, in numbers that add up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    /// Files that were done.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Directories, links and special files that were done.
    pub others: u64,
    /// Files that needed no work.
    pub unchanged_files: u64,
    /// Their bytes.
    pub unchanged_bytes: u64,
    /// The sizes of the files that were done.
    pub sizes: Sizes,
    /// Files that were found and must be looked at.
    pub found_files: u64,
    /// Their bytes.
    pub found_bytes: u64,
}

impl Tally {
    /// Adds files that were found.
    pub fn find(&mut self, groups: &[Group]) {
        let files = groups.iter().flat_map(|group| &group.items).filter(|item| item.stat.kind == FileKind::File);
        for item in files {
            self.found_files += 1;
            self.found_bytes = self.found_bytes.saturating_add(item.stat.size);
        }
    }

    /// Counts a file of any type that was done.
    pub fn count(&mut self, stat: &Stat) {
        if stat.kind == FileKind::File {
            self.files += 1;
            self.bytes = self.bytes.saturating_add(stat.size);
            self.sizes.add(stat.size);
        } else {
            self.others += 1;
        }
    }
}

/// A phase of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Phase {
    /// Explorers walk trees.
    Explore,
    /// Workers read and code, or decode and write.
    Work,
    /// Waiting until data is durable.
    Commit,
}

/// A time in which a role worked, in seconds since the job began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// The phase.
    pub phase: Phase,
    /// The beginning.
    pub start: f64,
    /// The end.
    pub end: f64,
    /// Processor time of the thread during it, in seconds.
    pub cpu: f64,
    /// Bytes of user data that were processed.
    pub bytes: u64,
}

/// How a task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// Its number.
    pub task: u64,
    /// Whether all of the task was done.
    pub good: bool,
}

/// A message between roles. `M` is the manager, `E` an explorer, `W` a worker, `R` the reporter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Message {
    /// M to E: walk this. The explorer has reported its previous walk as done.
    Walk(Walk),
    /// M to E: there is space in the queue for more files.
    Continue,
    /// E to M: a piece of a walk. The explorer waits for `Continue` before it sends more, or for
    /// `Walk` if the walk is done.
    Found {
        /// Files.
        groups: Vec<Group>,
        /// Directories that explorers must still walk.
        walks: Vec<Walk>,
        /// Whether the walk is done.
        done: bool,
    },
    /// W to M: the worker wants work.
    Ready,
    /// M to W: do this task; with its number.
    Do(u64, Work),
    /// W to M: the parts to do of a file in parts, by their numbers; with the task's number.
    Opened(u64, Large, Vec<u32>),
    /// W to M: these tasks are done and durable, or have failed. The reporter has the reasons.
    Done(Vec<Ended>),
    /// E or W to M: the role cannot continue, and the job must end.
    Failed(String),
    /// M to all: no work is left. Workers make durable what they have done.
    Finish,
    /// E, W or M to R: a problem with a file.
    Problem(Problem),
    /// E or W to R: a time of work.
    Worked(Span),
    /// E or W to R: work that is done and durable.
    Tally(Box<Tally>),
    /// M to R: everything was found that there is to find.
    Explored,
    /// M to R: the job cannot continue.
    Broken(String),
    /// E or W to R: the last message of this role.
    Bye,
}

impl DirectoryPair {
    /// The path of a file in it, at the reading end.
    pub fn source_of(&self, name: &[u8]) -> Vec<u8> {
        join(&self.source, name)
    }

    /// The path of a file in it, at the writing end.
    pub fn target_of(&self, name: &[u8]) -> Vec<u8> {
        join(&self.target, name)
    }

    /// The path of a file in it, below the named source.
    pub fn below_of(&self, name: &[u8]) -> Vec<u8> {
        let below = self.source.get(self.below..).unwrap_or_default();
        join(below, name)
    }
}

/// The path of a name in a directory.
pub fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    match directory.last() {
        None => name.to_vec(),
        Some(b'/') => [directory, name].concat(),
        Some(_) => [directory, b"/", name].concat(),
    }
}
