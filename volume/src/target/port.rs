//! The interface of targets: a flat set of files. A file is written once, mostly from front to
//! back; it can be read anywhere, synced, punched and removed.

use super::claim::{ClaimRequest, ClaimState};
use crate::set::Master;
use std::fmt;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::time::{Duration, Instant};

/// Reads up to `length` bytes into a new vector.
///
/// # Errors
/// Those of `read`, which fills the buffer that it gets and returns the number of bytes read.
pub fn read_to_vec(length: usize, read: impl FnOnce(&mut [u8]) -> io::Result<usize>) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    let found = read(&mut bytes)?;
    bytes.truncate(found);
    Ok(bytes)
}

/// A place for files. Every operation is thread-safe. None times out by itself, so a caller that
/// must not wait for a hanging disk calls it on a separate thread.
pub trait Target: Send + Sync + fmt::Debug {
    /// Writes `parts`, one after the other, from `offset` on. Creates the file if it does not
    /// exist.
    ///
    /// # Errors
    /// If not everything was written; how much was written is unknown.
    fn write(&self, file: TargetFile, offset: u64, parts: &[IoSlice<'_>]) -> io::Result<()>;

    /// As `write`; returns the time that the target itself took, without the network.
    ///
    /// # Errors
    /// As `write`.
    fn write_timed(&self, file: TargetFile, offset: u64, parts: &[IoSlice<'_>]) -> io::Result<Duration> {
        let begun = Instant::now();
        self.write(file, offset, parts).map(|()| begun.elapsed())
    }

    /// As `write`; returns when this write and all earlier ones to the file are durable.
    ///
    /// # Errors
    /// Those of `write` and `sync`.
    fn write_durably(&self, file: TargetFile, offset: u64, parts: &[IoSlice<'_>]) -> io::Result<()> {
        self.write(file, offset, parts)?;
        self.sync(file)
    }

    /// As `write_durably`; returns the time that the target itself took, without the network.
    ///
    /// # Errors
    /// As `write_durably`.
    fn write_durably_timed(&self, file: TargetFile, offset: u64, parts: &[IoSlice<'_>]) -> io::Result<Duration> {
        let begun = Instant::now();
        self.write_durably(file, offset, parts).map(|()| begun.elapsed())
    }

    /// Fills `into` from `offset` on. Returns the number of bytes read, which is smaller only at
    /// the end of the file.
    ///
    /// # Errors
    /// `NotFound` if there is no such file; any other kind if it cannot be read.
    fn read(&self, file: TargetFile, offset: u64, into: &mut [u8]) -> io::Result<usize>;

    /// As `read`, but only if no device is needed: None if one is, or if the target cannot tell.
    /// For callers that must not wait for a hanging disk and want to avoid another thread.
    fn read_cached(&self, _file: TargetFile, _offset: u64, _into: &mut [u8]) -> Option<usize> {
        None
    }

    /// As `read`, but fails with `TimedOut` after `timeout`. None if the target cannot time out: a
    /// caller that must not wait then needs another thread.
    fn read_within(
        &self,
        _file: TargetFile,
        _offset: u64,
        _into: &mut [u8],
        _timeout: Duration,
    ) -> Option<io::Result<usize>> {
        None
    }

    /// Reads two ranges of a file, each as `read` does. A remote target gets one request, and the
    /// wait lasts at most `timeout`, if given.
    ///
    /// # Errors
    /// Those of `read`.
    fn read_both(
        &self,
        file: TargetFile,
        ranges: [Range<u64>; 2],
        _timeout: Option<Duration>,
    ) -> io::Result<[Vec<u8>; 2]> {
        let [first, second] = ranges
            .map(|range| read_to_vec((range.end - range.start) as usize, |into| self.read(file, range.start, into)));
        Ok([first?, second?])
    }

    /// Whether its operations wait for another machine, even short ones.
    fn is_remote(&self) -> bool {
        false
    }

    /// Announces that a range will be read soon, so that the target can prefetch it.
    fn prefetch(&self, _file: TargetFile, _range: Range<u64>) {}

    /// Returns when everything written to the file, and its name, is durable.
    ///
    /// # Errors
    /// If durability is not certain. All earlier writes must then count as lost.
    fn sync(&self, file: TargetFile) -> io::Result<()>;

    /// As `sync`; returns the time that the target itself took, without the network.
    ///
    /// # Errors
    /// As `sync`.
    fn sync_timed(&self, file: TargetFile) -> io::Result<Duration> {
        let begun = Instant::now();
        self.sync(file).map(|()| begun.elapsed())
    }

    /// Reserves space for the first `bytes` of the file, so that writes to them need no allocation.
    /// The length of the file does not change. Does nothing where the file system cannot reserve.
    ///
    /// # Errors
    /// If there is not enough space.
    fn reserve(&self, file: TargetFile, bytes: u64) -> io::Result<()>;

    /// Releases space that was reserved beyond the end of the file.
    ///
    /// # Errors
    /// If the file does not exist or cannot be changed.
    fn trim(&self, _file: TargetFile) -> io::Result<()> {
        Ok(())
    }

    /// Releases the space of a range. It then reads as zeroes or as before. Does nothing where the
    /// file system cannot punch holes.
    ///
    /// # Errors
    /// If the file does not exist or cannot be written.
    fn punch(&self, file: TargetFile, range: Range<u64>) -> io::Result<()>;

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
    fn look(&self, files: &[TargetFile]) -> io::Result<Vec<Presence>> {
        let presence = |&file: &TargetFile| match self.read(file, 0, &mut [0]) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(Presence::Absent),
            read => read.map(|_| Presence::There),
        };
        files.iter().map(presence).collect()
    }

    /// The space on the target.
    ///
    /// # Errors
    /// If it cannot be determined.
    fn space(&self) -> io::Result<Space>;

    /// The address under which other processes reach it, if there is one.
    fn address(&self) -> Option<String> {
        None
    }

    /// The process that owns it, if that process codes stripes for others.
    fn master(&self) -> Option<&dyn Master> {
        None
    }
}

/// The name of a file on a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TargetFile {
    /// The identity of the target: the volume, its code, the other targets.
    Label,
    /// A label that is not complete yet.
    NewLabel,
    /// The blocks of one position of a chunk set.
    Chunk {
        /// The chunk set.
        set: u64,
        /// The position in its stripes.
        position: u16,
    },
    /// A chunk during its rebuild.
    NewChunk {
        /// The chunk set.
        set: u64,
        /// The position in its stripes.
        position: u16,
    },
    /// A segment of the metadata journal, numbered by its first transaction.
    Journal {
        /// The first transaction.
        first: u64,
    },
    /// A snapshot of the metadata.
    Snapshot {
        /// The last transaction in it.
        last: u64,
    },
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
