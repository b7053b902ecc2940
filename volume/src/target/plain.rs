//! What targets do that have no faster way, and what callers do with any target.

use super::{Presence, ReadPart, Target, TargetFile, Wait};
use crate::steps::WriteStep;
use std::io;
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

/// Carries out an operation of a target that measures its own time, and returns that time.
///
/// # Errors
/// Those of the operation.
pub fn timed(operation: impl FnOnce() -> io::Result<()>) -> io::Result<Duration> {
    let begun = Instant::now();
    WriteStep::Slave.span().in_scope(operation).map(|()| begun.elapsed())
}

/// Reads of one part.
pub trait ReadAt: Target {
    /// Fills `into` from `offset` on, without a time limit. Returns the number of bytes read, which
    /// is smaller only at the end of the file.
    ///
    /// # Errors
    /// Those of [`Target::read`].
    fn read_at(&self, file: TargetFile, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.read_part(file, offset, into, Wait::Always)
    }

    /// As `read_at`, but waits only so long.
    ///
    /// # Errors
    /// Those of [`Target::read`].
    fn read_part(&self, file: TargetFile, offset: u64, into: &mut [u8], wait: Wait) -> io::Result<usize> {
        let mut part = [ReadPart::new(offset, into)];
        self.read(file, &mut part, wait)?;
        Ok(part[0].read)
    }
}

impl<T: Target + ?Sized> ReadAt for T {}

/// [`Target::read`] of a target that reads a part at a time, and without a limit.
///
/// # Errors
/// Those of `read`, which fills the buffer from the offset on and returns the number of bytes read.
pub fn read_each(
    parts: &mut [ReadPart<'_>],
    wait: Wait,
    mut read: impl FnMut(u64, &mut [u8]) -> io::Result<usize>,
) -> io::Result<()> {
    wait.refuse_limit()?;
    for part in parts {
        part.read = read(part.offset, part.into)?;
    }
    Ok(())
}

/// [`Target::look`] as one read of each file.
///
/// # Errors
/// Those of [`Target::read`], except for a missing file.
pub fn look_by_reading(target: &dyn Target, files: &[TargetFile]) -> io::Result<Vec<Presence>> {
    let presence = |&file: &TargetFile| match target.read_at(file, 0, &mut [0]) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(Presence::Absent),
        read => read.map(|_| Presence::There),
    };
    files.iter().map(presence).collect()
}
