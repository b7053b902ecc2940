//! What targets do that have no faster way, and what callers do with any target.

use super::{Presence, Target, TargetFile};
use std::io;
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

/// Carries out an operation of a target that measures its own time, and returns that time.
///
/// # Errors
/// Those of the operation.
pub fn timed(operation: impl FnOnce() -> io::Result<()>) -> io::Result<Duration> {
    let begun = Instant::now();
    operation().map(|()| begun.elapsed())
}

/// [`Target::read_both`] as two reads, without a time limit.
///
/// # Errors
/// Those of [`Target::read`].
pub fn read_each(target: &dyn Target, file: TargetFile, ranges: [Range<u64>; 2]) -> io::Result<[Vec<u8>; 2]> {
    let [first, second] = ranges
        .map(|range| read_to_vec((range.end - range.start) as usize, |into| target.read(file, range.start, into)));
    Ok([first?, second?])
}

/// [`Target::look`] as one read of each file.
///
/// # Errors
/// Those of [`Target::read`], except for a missing file.
pub fn look_by_reading(target: &dyn Target, files: &[TargetFile]) -> io::Result<Vec<Presence>> {
    let presence = |&file: &TargetFile| match target.read(file, 0, &mut [0]) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(Presence::Absent),
        read => read.map(|_| Presence::There),
    };
    files.iter().map(presence).collect()
}

/// For the targets of tests: every method that reads does so by `read`, and nothing is prefetched.
/// Targets for other uses say each method.
#[macro_export]
macro_rules! test_target_with_plain_reads {
    () => {
        fn read_cached(&self, _: $crate::target::TargetFile, _: u64, _: &mut [u8]) -> Option<usize> {
            None
        }

        fn read_within(
            &self,
            _: $crate::target::TargetFile,
            _: u64,
            _: &mut [u8],
            _: std::time::Duration,
        ) -> Option<std::io::Result<usize>> {
            None
        }

        fn read_both(
            &self,
            file: $crate::target::TargetFile,
            ranges: [std::ops::Range<u64>; 2],
            _: Option<std::time::Duration>,
        ) -> std::io::Result<[Vec<u8>; 2]> {
            $crate::target::read_each(self, file, ranges)
        }

        fn prefetch(&self, _: $crate::target::TargetFile, _: std::ops::Range<u64>) {}

        fn look(&self, files: &[$crate::target::TargetFile]) -> std::io::Result<Vec<$crate::target::Presence>> {
            $crate::target::look_by_reading(self, files)
        }
    };
}
