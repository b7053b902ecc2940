//! Reads a file of the machine into stripes: only its data, not its holes. It hashes the data on
//! the way.

use super::hash::add_zeroes;
use crate::limit::Limiter;
use crate::message::Stat;
use crate::walk::stat_of;
use blake3::Hasher;
use fs::BulkLoad;
use rustix::fd::OwnedFd;
use rustix::fs::{SeekFrom, seek};
use rustix::io::{Errno, pread};
use std::ops::Range;
use volume::Control;

/// How many bytes are read at a time: few enough that they are hashed while they are in the cache.
const COPY_PIECE_BYTES: u64 = 256 << 10;

/// Why a file could not be read.
#[derive(Debug)]
pub enum Trouble {
    /// The system call failed.
    Source(Errno),
    /// The file changed while it was read, so that the data belongs to no single version of it.
    Changed,
    /// Something else has got its name meanwhile.
    Taken,
    /// The job was stopped.
    Stopped,
    /// The volume cannot store the data, so that the job cannot continue.
    Volume(fs::Error),
}

impl From<fs::Error> for Trouble {
    fn from(error: fs::Error) -> Self {
        Self::Volume(error)
    }
}

impl From<Errno> for Trouble {
    fn from(error: Errno) -> Self {
        Self::Source(error)
    }
}

/// What stops and slows a copy.
pub struct Copying<'a> {
    /// Stops the copy.
    pub control: &'a Control,
    /// Limits the rate of the copy.
    pub limiter: &'a Limiter,
}

impl Copying<'_> {
    /// Reads a range of a file that looked like `stat` when it was opened. Returns how many bytes
    /// of the range were data.
    pub fn copy(
        &self,
        file: &OwnedFd,
        stat: &Stat,
        range: Range<u64>,
        bulk_load: &mut BulkLoad,
        hasher: &mut Hasher,
    ) -> Result<u64, Trouble> {
        let (mut at, mut read) = (range.start, 0);
        while at < range.end {
            let data = if is_sparse(stat) { next_data(file, at, &range)? } else { range.clone() };
            add_zeroes(hasher, data.start - at);
            at = data.start;
            while at < data.end {
                if self.control.go_on().is_err() {
                    return Err(Trouble::Stopped);
                }
                let most = (data.end - at).min(COPY_PIECE_BYTES) as usize;
                let bytes = bulk_load.add(at, most, |into| {
                    loop {
                        match pread(file, &mut *into, at) {
                            Err(Errno::INTR) => {}
                            read => break Ok::<usize, Trouble>(read?),
                        }
                    }
                })?;
                if bytes.is_empty() {
                    return Err(Trouble::Changed);
                }
                hasher.update(bytes);
                let bytes = bytes.len() as u64;
                (at, read) = (at + bytes, read + bytes);
                self.limiter.pass(bytes);
            }
        }
        let now = stat_of(file)?;
        if (now.size, now.modified) != (stat.size, stat.modified) { Err(Trouble::Changed) } else { Ok(read) }
    }
}

/// Whether a file may have holes.
fn is_sparse(stat: &Stat) -> bool {
    stat.allocated < stat.size
}

/// The next data of a file at or after `at`, within a range. If only a hole follows, the result is
/// empty and lies at the end of the range.
fn next_data(file: &OwnedFd, at: u64, range: &Range<u64>) -> Result<Range<u64>, Errno> {
    let start = match seek(file, SeekFrom::Data(at)) {
        Ok(start) => start.clamp(at, range.end),
        Err(Errno::NXIO) => range.end,
        // The file system does not support the question: take everything as data.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(at..range.end),
        Err(error) => return Err(error),
    };
    if start >= range.end {
        return Ok(range.end..range.end);
    }
    let end = seek(file, SeekFrom::Hole(start))?;
    Ok(start..end.clamp(start + 1, range.end))
}
