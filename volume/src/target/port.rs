//! The interface of targets: a flat set of files. A file is written once, mostly from front to
//! back; it can be read anywhere, synced, punched and removed.

use super::claim::{ClaimRequest, ClaimState};
use super::file::TargetFile;
use crate::set::Master;
use std::fmt;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::time::Duration;

/// A place for files. Every operation is thread-safe. None times out by itself, so a caller that
/// must not wait for a hanging disk calls it on a separate thread.
///
/// Eleven operations and two properties. None has a default body: a decorator that forgets one
/// would lose what the target below can do, such as one request instead of two, and nobody would
/// notice.
pub trait Target: Send + Sync + fmt::Debug {
    /// Writes `parts`, one after the other, from `offset` on. Creates the file if it does not
    /// exist. With [`Durable::Now`], this write and all earlier ones to the file are durable on
    /// return. Returns the time that the target itself took, without the network.
    ///
    /// # Errors
    /// If not everything was written; how much was written is unknown. With [`Durable::Now`], also
    /// those of `sync`.
    fn write(&self, file: TargetFile, offset: u64, parts: &[IoSlice<'_>], durable: Durable) -> io::Result<Duration>;

    /// Fills each part from its offset on, and sets how many bytes were read: fewer only at the end
    /// of the file. A remote target gets one request for all parts.
    ///
    /// # Errors
    /// `NotFound` if there is no such file. With [`Wait::Within`], `TimedOut` after that time, or
    /// `Unsupported` if the target cannot give up: a caller that must not wait then needs another
    /// thread. With [`Wait::Never`], `WouldBlock` if a device is needed or the target cannot tell.
    /// Any other kind if it cannot be read.
    fn read(&self, file: TargetFile, parts: &mut [ReadPart<'_>], wait: Wait) -> io::Result<()>;

    /// Whether its operations wait for another machine, even short ones.
    fn is_remote(&self) -> bool;

    /// Returns when everything written to the file, and its name, is durable: the time that the
    /// target itself took, without the network.
    ///
    /// # Errors
    /// If durability is not certain. All earlier writes must then count as lost.
    fn sync(&self, file: TargetFile) -> io::Result<Duration>;

    /// Reserves or releases space of the file.
    ///
    /// # Errors
    /// If there is not enough space to reserve; if the file with space to release does not exist or
    /// cannot be changed.
    fn allocate(&self, file: TargetFile, change: Allocation) -> io::Result<()>;

    /// Describes a chunk that gets no more records, in extended attributes of its file, where the
    /// target has these. Nothing depends on it, and a later write is no error.
    ///
    /// # Errors
    /// `NotFound` if there is no such file. `Unsupported` if the target is a store that is too old.
    fn seal(&self, file: TargetFile) -> io::Result<()>;

    /// Renames `from` to `to`, replacing an existing file. `from` must be synced; the change is
    /// durable on return.
    ///
    /// # Errors
    /// If `from` does not exist or the change is not certain.
    fn rename(&self, from: TargetFile, to: TargetFile) -> io::Result<()>;

    /// Removes the file. A missing file is no error.
    ///
    /// # Errors
    /// If the file exists and cannot be removed.
    fn remove(&self, file: TargetFile) -> io::Result<()>;

    /// All of Weft's files with their lengths, in no particular order. Other files are ignored.
    ///
    /// # Errors
    /// If they cannot be listed.
    fn list(&self) -> io::Result<Vec<(TargetFile, u64)>>;

    /// The segments of the journal and the snapshots among them. A target with many chunks answers
    /// this much sooner than `list`: servers that open a volume wait for it.
    ///
    /// # Errors
    /// If they cannot be listed.
    fn list_metadata(&self) -> io::Result<Vec<(TargetFile, u64)>>;

    /// Reads, takes, renews or releases the claim, which says who may change the volume on this
    /// target. When this returns, a new claim is durable, also on a target that is full.
    ///
    /// After a claim was taken through this value, it makes every change of the volume as a whole
    /// under that epoch, until the claim is released: writes of journal, snapshots and labels, and
    /// renames, removals and punches of those and of chunks. Each of them fails with a
    /// [`super::Refusal`] if the target no longer holds that epoch. Through a value that took no
    /// claim, they fail once the target has a claim. Appends to chunks need no claim.
    ///
    /// # Errors
    /// A [`super::Refusal`] inside: `Fenced` if the target holds an epoch whose number is not
    /// lower, or had this one and it was released; `Held` while the lease of another holder runs;
    /// `Unclaimed` for the release of an epoch that the target never had. `InvalidInput` for a
    /// claim of another volume. Any other if the claim cannot be read or made durable.
    fn claim(&self, ask: &ClaimRequest) -> io::Result<ClaimState>;

    /// The current state of the names of files, in the order of `files`, regardless of open
    /// handles: for callers that verify the stored data. A file that another process removed or
    /// replaced stays readable here while it is open.
    ///
    /// # Errors
    /// If the state of one of them cannot be determined.
    fn look(&self, files: &[TargetFile]) -> io::Result<Vec<Presence>>;

    /// The space on the target.
    ///
    /// # Errors
    /// If it cannot be determined.
    fn space(&self) -> io::Result<Space>;

    /// The process that serves it to others, if that process also codes stripes for them.
    fn owner(&self) -> Option<Owner<'_>>;
}

/// A range of a file that is read.
#[derive(Debug)]
pub struct ReadPart<'a> {
    /// Where it begins in the file.
    pub offset: u64,
    /// Gets the bytes.
    pub into: &'a mut [u8],
    /// The number of bytes read.
    pub read: usize,
}

impl<'a> ReadPart<'a> {
    /// A part of which nothing is read yet.
    pub fn new(offset: u64, into: &'a mut [u8]) -> Self {
        Self { offset, into, read: 0 }
    }
}

/// How long a read may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Without a limit.
    Always,
    /// For this time.
    Within(Duration),
    /// Not at all: it reads only what is in memory. For callers that must not wait for a hanging
    /// disk and want to avoid another thread.
    Never,
}

impl Wait {
    /// The answer of targets that only read without a limit.
    ///
    /// # Errors
    /// `Unsupported` and `WouldBlock`, as [`Target::read`] says.
    pub fn refuse_limit(self) -> io::Result<()> {
        match self {
            Self::Always => Ok(()),
            Self::Within(_) => Err(io::ErrorKind::Unsupported.into()),
            Self::Never => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

/// Whether a write waits until its data is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durable {
    /// The next sync makes the data durable.
    Later,
    /// The data is durable when the write returns.
    Now,
}

/// A change of the space that a file occupies. Its length stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// Reserves space for the first bytes of the file, up to this number, so that writes to them
    /// need no allocation. Does nothing where the file system cannot reserve.
    Reserve(u64),
    /// Releases space that was reserved beyond the end of the file.
    Trim,
    /// Releases the space of a range. It then reads as zeroes or as before. Does nothing where the
    /// file system cannot punch holes.
    Punch(Range<u64>),
}

/// The process that serves a target to others.
#[derive(Clone, Copy)]
pub struct Owner<'a> {
    /// The address under which others reach the target.
    pub address: &'a dyn fmt::Display,
    /// Codes stripes and rebuilds blocks in that process.
    pub master: &'a dyn Master,
}

/// Whether a file exists under its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It exists.
    There,
    /// It does not exist.
    Absent,
    /// The target has the file open, but its name is gone or belongs to another file. It can be
    /// read until it is closed.
    Unnamed,
}

/// Space on a target in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// The capacity.
    pub total: u64,
    /// The free space.
    pub free: u64,
    /// Identifies the file system: targets on the same one share their space.
    pub system: u64,
}
