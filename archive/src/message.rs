//! What the roles of a job tell each other.
//!
//! Every message is plain data (`serde`), of bounded size, and names things by number or path, never by pointer or descriptor, so that it means the same
//! in another process on another machine. Paths are bytes.

use crate::report::Sizes;
use fs::{Kind, Time};
use serde::{Deserialize, Serialize};

/// Entries that one message has, at most.
pub const MOST_ITEMS: usize = 512;
/// Bytes that the names of the entries of one message have, about: it is full when there are more.
pub const NAME_BYTES: usize = 64 << 10;

/// What a file is like, as the system call says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stat {
    /// What it is.
    pub kind: Kind,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names.
    pub links: u32,
    /// Of a device, its number as the kernel writes it in 32 bits.
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
    /// The file system that has it, and its number there: two names of both the same are one file.
    pub identity: (u64, u64),
}

/// A file in a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    /// Its name.
    pub name: Vec<u8>,
    /// What it is like.
    pub stat: Stat,
}

/// A directory, at both ends of the job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Its path where files are read.
    pub source: Vec<u8>,
    /// Where its path below the source that was named begins, in `source`.
    pub below: usize,
    /// Its path where files are written, without a slash in front.
    pub target: Vec<u8>,
    /// Its number in the volume.
    pub ino: u64,
    /// It was made just now where files are written: nothing is in it.
    pub fresh: bool,
    /// The file system that has it.
    pub system: u64,
    /// Its times: what is put into it must leave them so.
    pub accessed: Time,
    /// Likewise.
    pub modified: Time,
}

/// What an explorer is asked to look at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Walk {
    /// A directory.
    Directory(Place),
    /// These files in a directory. More of them than one message has come one message after the other.
    Names(Place, Vec<Vec<u8>>),
    /// The files that a list names, below a directory.
    List(Place),
}

/// Files of one directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// The directory.
    pub place: Place,
    /// Files in it.
    pub items: Vec<Item>,
}

/// A file that is done in parts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Large {
    /// Its directory.
    pub place: Place,
    /// The file.
    pub item: Item,
    /// The length of each part but the last.
    pub part_bytes: u64,
    /// Of the file that the parts are put into; 0 when it need not be done.
    pub ino: u64,
}

/// What a worker is asked to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Work {
    /// Files, each in one piece.
    Files(Vec<Group>),
    /// Find out what is to be done of a file that is done in parts, and prepare it. Answered with `Opened`.
    Open(Large),
    /// One part.
    Part(Large, u32),
    /// All parts are there: put it under its name.
    Close(Large),
}

/// Something that went wrong with one file; the others go on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// Which file.
    pub path: Vec<u8>,
    /// What went wrong.
    pub what: String,
}

/// What was done of something, in numbers that add up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    /// Files that are done.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Directories, links and special files that are done.
    pub others: u64,
    /// Files that needed nothing.
    pub unchanged_files: u64,
    /// Their bytes.
    pub unchanged_bytes: u64,
    /// The sizes of the files that are done.
    pub sizes: Sizes,
}

impl Tally {
    /// Adds what is done, whatever it is.
    pub fn count(&mut self, stat: &Stat) {
        if stat.kind == Kind::File {
            self.files += 1;
            self.bytes += stat.size;
            self.sizes.add(stat.size);
        } else {
            self.others += 1;
        }
    }
}

/// What a phase of a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Phase {
    /// Walking trees.
    Explore,
    /// Reading and coding, or decoding and writing.
    Work,
    /// Waiting until it is durable.
    Commit,
}

/// A time in which somebody was at work, in seconds since the job began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// At what.
    pub phase: Phase,
    /// From.
    pub start: f64,
    /// Until.
    pub end: f64,
    /// Processor time of the thread in it.
    pub cpu: f64,
    /// Bytes of user data that went through.
    pub bytes: u64,
}

/// How a task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// Its number.
    pub task: u64,
    /// Whether all of it was done.
    pub good: bool,
}

/// What the roles tell each other. `M` is the manager, `E` an explorer, `W` a worker, `R` the reporter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Message {
    /// M to E: look at this. It had said that it was done with what it had before.
    Walk(Walk),
    /// M to E: there is room for more of what it finds.
    Continue,
    /// E to M: what it found. It waits for `Continue` before it says more, or for `Walk` when it is done.
    Found {
        /// Files.
        groups: Vec<Group>,
        /// Directories that somebody has to look at.
        walks: Vec<Walk>,
        /// Whether that was all.
        done: bool,
    },
    /// W to M: it asks for work.
    Ready,
    /// M to W: a task, by number.
    Do(u64, Work),
    /// W to M: what there is to do of a file in parts, by the numbers of the parts.
    Opened(u64, Large, Vec<u32>),
    /// W to M: these tasks are done and durable, or failed. The reporter was told why.
    Done(Vec<Ended>),
    /// E or W to M: it cannot go on, nor should anybody.
    Failed(String),
    /// M to all: there is nothing more. Workers make durable what they have done.
    Finish,
    /// E, W or M to R: something went wrong.
    Problem(Problem),
    /// E or W to R: it was at work.
    Worked(Span),
    /// E or W to R: what is done and durable.
    Tally(Box<Tally>),
    /// M to R: the job cannot go on.
    Broken(String),
    /// E or W to R: this was its last word.
    Bye,
}

impl Place {
    /// The path of a file in it, where it is read.
    pub fn source_of(&self, name: &[u8]) -> Vec<u8> {
        join(&self.source, name)
    }

    /// The path of a file in it, where it is written.
    pub fn target_of(&self, name: &[u8]) -> Vec<u8> {
        join(&self.target, name)
    }

    /// The path of a file in it below the source that was named.
    pub fn below_of(&self, name: &[u8]) -> Vec<u8> {
        let below = self.source.get(self.below..).unwrap_or_default();
        join(below, name)
    }
}

/// A name in a directory.
pub fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    match directory.last() {
        None => name.to_vec(),
        Some(b'/') => [directory, name].concat(),
        Some(_) => [directory, b"/", name].concat(),
    }
}
