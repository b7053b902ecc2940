//! Counts operations and measures their time. Counting only adds to atomics: it never waits and
//! never allocates. A reader of the numbers takes no lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Upper bounds of a histogram's buckets, from the time of a memory access to that of a deadline.
/// The last bucket has no bound.
pub const BOUNDS: [Duration; 18] = {
    let us = Duration::from_micros;
    let ms = Duration::from_millis;
    [
        us(50),
        us(100),
        us(250),
        us(500),
        ms(1),
        us(2500),
        ms(5),
        ms(10),
        ms(25),
        ms(50),
        ms(100),
        ms(250),
        ms(500),
        ms(1000),
        ms(2500),
        ms(5000),
        ms(10_000),
        ms(30_000),
    ]
};

/// A histogram of durations.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [AtomicU64; BOUNDS.len() + 1],
    nanoseconds: AtomicU64,
}

/// The content of a histogram at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Distribution {
    /// The number of values in each bucket: at most the bound in [`BOUNDS`] and above the bound
    /// before. The last bucket counts the values above all bounds.
    pub buckets: [u64; BOUNDS.len() + 1],
    /// The sum of all durations.
    pub sum: Duration,
}

impl Histogram {
    /// Adds one duration.
    pub fn note(&self, took: Duration) {
        self.buckets[BOUNDS.partition_point(|bound| *bound < took)].fetch_add(1, Ordering::Relaxed);
        self.nanoseconds.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
    }

    /// The current content.
    pub fn now(&self) -> Distribution {
        Distribution {
            buckets: self.buckets.each_ref().map(|count| count.load(Ordering::Relaxed)),
            sum: Duration::from_nanos(self.nanoseconds.load(Ordering::Relaxed)),
        }
    }
}

impl Distribution {
    /// The number of values.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

/// Counters of an operation that is called repeatedly.
#[derive(Debug, Default)]
pub struct Operation {
    /// The duration of each call, successful or not.
    pub time: Histogram,
    failures: AtomicU64,
    bytes: AtomicU64,
}

impl Operation {
    /// Runs the operation once and counts it. `bytes` returns how much data a successful call
    /// moved.
    pub fn counted<T, E>(&self, bytes: impl FnOnce(&T) -> usize, work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let begun = Instant::now();
        let done = work();
        self.note(begun.elapsed(), done.as_ref().ok().map(bytes));
        done
    }

    /// Counts one call that took `took`. `bytes` is the data that it moved, or None if it failed.
    pub fn note(&self, took: Duration, bytes: Option<usize>) {
        self.time.note(took);
        match bytes {
            Some(bytes) => _ = self.bytes.fetch_add(bytes as u64, Ordering::Relaxed),
            None => _ = self.failures.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// The number of failed calls.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// The data moved by successful calls, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// Counts reads that were not plain reads of sound data blocks.
#[derive(Debug, Default)]
pub struct ReadCounts {
    degraded: AtomicU64,
    hedged: AtomicU64,
    refused: AtomicU64,
}

impl ReadCounts {
    /// Counts a degraded read: one that decoded the data from other blocks.
    pub(crate) fn add_degraded(&self) {
        self.degraded.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a hedged read: one that did not wait for a late block.
    pub(crate) fn add_hedged(&self) {
        self.hedged.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts blocks that did not match their checksums.
    pub(crate) fn add_refused(&self, blocks: usize) {
        self.refused.fetch_add(blocks as u64, Ordering::Relaxed);
    }

    /// The number of degraded reads: those that decoded the data from other blocks.
    pub fn degraded(&self) -> u64 {
        self.degraded.load(Ordering::Relaxed)
    }

    /// The number of hedged reads: those that did not wait for a late block.
    pub fn hedged(&self) -> u64 {
        self.hedged.load(Ordering::Relaxed)
    }

    /// The number of blocks that did not match their checksums.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_in_the_first_bucket_whose_bound_it_does_not_exceed() {
        let histogram = Histogram::default();
        let times =
            [Duration::ZERO, BOUNDS[0], BOUNDS[0] + Duration::from_nanos(1), BOUNDS[17], Duration::from_secs(31)];
        times.iter().for_each(|&time| histogram.note(time));
        let now = histogram.now();
        let filled: Vec<(usize, u64)> =
            now.buckets.iter().copied().enumerate().filter(|(_, count)| *count > 0).collect();
        assert_eq!(filled, [(0, 2), (1, 1), (17, 1), (18, 1)]);
        assert_eq!((now.count(), now.sum), (5, times.iter().sum()));
        assert!(BOUNDS.is_sorted());
    }

    #[test]
    fn a_failure_moves_no_bytes() {
        let operation = Operation::default();
        let read = |result: Result<usize, ()>| operation.counted(|bytes| *bytes, || result);
        assert_eq!((read(Ok(7)), read(Ok(5)), read(Err(()))), (Ok(7), Ok(5), Err(())));
        assert_eq!((operation.time.now().count(), operation.failures(), operation.bytes()), (3, 1, 12));
    }
}
