//! The port behind which targets stand: a flat set of files that are written once, from front to back in the main,
//! read anywhere, synced, punched and removed.

use crate::set::Master;
use std::fmt;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::time::{Duration, Instant};

/// What a read finds of so many bytes.
///
/// # Errors
/// Those of `read`, which fills what it is given and says how much that was.
pub fn read_to_vec(length: usize, read: impl FnOnce(&mut [u8]) -> io::Result<usize>) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    let found = read(&mut bytes)?;
    bytes.truncate(found);
    Ok(bytes)
}

/// A place for files. Every operation is safe from several threads; none gives up by itself, so a caller that must not wait for a
/// hanging disk calls it on a thread of its own.
pub trait Target: Send + Sync + fmt::Debug {
    /// Writes `parts` one behind the other from `offset` on. Creates the file when it is not there.
    ///
    /// # Errors
    /// When not all of it was written; how much was is unknown.
    fn write(&self, file: TargetFile, offset: u64, parts: &[IoSlice<'_>]) -> io::Result<()>;

    /// As `write`; returns how long the target itself took for it, without the way to it and back.
    ///
    /// # Errors
    /// As `write`.
    fn write_timed(&self, file: TargetFile, offset: u64, parts: &[IoSlice<'_>]) -> io::Result<Duration> {
        let begun = Instant::now();
        self.write(file, offset, parts).map(|()| begun.elapsed())
    }

    /// Writes as `write`, and returns when that is durable with all that was written to the file before.
    ///
    /// # Errors
    /// Those of `write` and `sync`.
    fn write_durably(&self, file: TargetFile, offset: u64, parts: &[IoSlice<'_>]) -> io::Result<()> {
        self.write(file, offset, parts)?;
        self.sync(file)
    }

    /// Fills `into` from `offset` on, and returns how many bytes there were: fewer only where the file ends.
    ///
    /// # Errors
    /// `NotFound` when there is no such file; any other when it cannot be read.
    fn read(&self, file: TargetFile, offset: u64, into: &mut [u8]) -> io::Result<usize>;

    /// As `read`, but only if that needs no device: None when it would, or when the target cannot tell. For callers that must not
    /// wait for a hanging disk and would spare themselves another thread.
    fn read_cached(&self, _file: TargetFile, _offset: u64, _into: &mut [u8]) -> Option<usize> {
        None
    }

    /// As `read`, for no longer than `patience`: `TimedOut` then. None when the target cannot give up, so that who must not wait for it needs
    /// another thread.
    fn read_within(
        &self,
        _file: TargetFile,
        _offset: u64,
        _into: &mut [u8],
        _patience: Duration,
    ) -> Option<io::Result<usize>> {
        None
    }

    /// Reads two ranges of a file, each as `read` does; a remote target is asked once, and waits for no longer than `patience`, if there is one.
    ///
    /// # Errors
    /// Those of `read`.
    fn read_both(
        &self,
        file: TargetFile,
        ranges: [Range<u64>; 2],
        _patience: Option<Duration>,
    ) -> io::Result<[Vec<u8>; 2]> {
        let [first, second] = ranges
            .map(|range| read_to_vec((range.end - range.start) as usize, |into| self.read(file, range.start, into)));
        Ok([first?, second?])
    }

    /// Whether its operations wait for another machine, however short they are.
    fn is_remote(&self) -> bool {
        false
    }

    /// Says that a range will be read soon, so that it can be fetched meanwhile.
    fn prefetch(&self, _file: TargetFile, _range: Range<u64>) {}

    /// Returns when everything that was written to the file, and its name, is durable.
    ///
    /// # Errors
    /// When that is not sure. What was written before must then count as lost.
    fn sync(&self, file: TargetFile) -> io::Result<()>;

    /// As `sync`; returns how long the target itself took for it, without the way to it and back.
    ///
    /// # Errors
    /// As `sync`.
    fn sync_timed(&self, file: TargetFile) -> io::Result<Duration> {
        let begun = Instant::now();
        self.sync(file).map(|()| begun.elapsed())
    }

    /// Sets room aside for the first `bytes` of the file, so that writes to them need not allocate. Its length stays. Does nothing
    /// where the file system cannot.
    ///
    /// # Errors
    /// When there is no room.
    fn reserve(&self, file: TargetFile, bytes: u64) -> io::Result<()>;

    /// Gives room back that was set aside behind the end of the file.
    ///
    /// # Errors
    /// When the file is not there or cannot be changed.
    fn trim(&self, _file: TargetFile) -> io::Result<()> {
        Ok(())
    }

    /// Gives the room of a range back; it then reads as zeroes or as it was. Does nothing where the file system cannot.
    ///
    /// # Errors
    /// When the file is not there or cannot be written.
    fn punch(&self, file: TargetFile, range: Range<u64>) -> io::Result<()>;

    /// Gives `from` the name `to`, replacing what has that name. `from` was synced; the change is durable on return.
    ///
    /// # Errors
    /// When `from` is not there or the change is not sure.
    fn rename(&self, from: TargetFile, to: TargetFile) -> io::Result<()>;

    /// Removes the file. One that is not there is no error.
    ///
    /// # Errors
    /// When it is there and stays.
    fn remove(&self, file: TargetFile) -> io::Result<()>;

    /// All files that Weft knows, with their lengths, in no order. Others are ignored.
    ///
    /// # Errors
    /// When they cannot be listed.
    fn list(&self) -> io::Result<Vec<(TargetFile, u64)>>;

    /// How files are under their names now, in their order, whatever is open of them: for callers that check whether all is well. What somebody else
    /// removed or replaced stays readable for as long as it is open here.
    ///
    /// # Errors
    /// When it cannot be told of one of them.
    fn look(&self, files: &[TargetFile]) -> io::Result<Vec<Presence>> {
        let presence = |&file: &TargetFile| match self.read(file, 0, &mut [0]) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(Presence::Absent),
            read => read.map(|_| Presence::There),
        };
        files.iter().map(presence).collect()
    }

    /// The room on it.
    ///
    /// # Errors
    /// When it cannot be told.
    fn space(&self) -> io::Result<Space>;

    /// How other processes reach it, where they can.
    fn address(&self) -> Option<String> {
        None
    }

    /// The process that has it, where that codes stripes for others.
    fn master(&self) -> Option<&dyn Master> {
        None
    }
}

/// The name of a file on a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TargetFile {
    /// Who the target is: the volume, its code, the other targets.
    Label,
    /// A label that is being written.
    NewLabel,
    /// The blocks of one position of a chunk set.
    Chunk {
        /// The chunk set.
        set: u64,
        /// The position in its stripes.
        position: u16,
    },
    /// A chunk that is being made again.
    NewChunk {
        /// The chunk set.
        set: u64,
        /// The position in its stripes.
        position: u16,
    },
    /// A segment of the metadata journal; the number of its first transaction.
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

/// Whether a file is there under its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It is.
    There,
    /// There is none.
    Absent,
    /// The target has it open, and the name is gone or another file's: it can be read until it is closed.
    Unnamed,
}

/// Room on a target in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// All of it.
    pub total: u64,
    /// What may still be written.
    pub free: u64,
    /// The file system that has it: targets on the same one share their room.
    pub system: u64,
}
