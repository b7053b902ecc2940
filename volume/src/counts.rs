//! Counting what is done and how long it takes: additions to atomics, which never wait and never allocate. Whoever shows the numbers reads them as they are.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The upper bounds of a histogram's buckets but the last, which has none: from what memory takes to what a deadline is.
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

/// How long something took, each time.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [AtomicU64; BOUNDS.len() + 1],
    nanoseconds: AtomicU64,
}

/// What a histogram had at some moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Distribution {
    /// How often it was within each of [`BOUNDS`] and above the bound before, and how often above all.
    pub buckets: [u64; BOUNDS.len() + 1],
    /// All times together.
    pub sum: Duration,
}

impl Histogram {
    /// It took so long once.
    pub fn note(&self, took: Duration) {
        self.buckets[BOUNDS.partition_point(|bound| *bound < took)].fetch_add(1, Ordering::Relaxed);
        self.nanoseconds.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
    }

    /// What it has now.
    pub fn now(&self) -> Distribution {
        Distribution {
            buckets: self.buckets.each_ref().map(|count| count.load(Ordering::Relaxed)),
            sum: Duration::from_nanos(self.nanoseconds.load(Ordering::Relaxed)),
        }
    }
}

impl Distribution {
    /// How often.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

/// An operation that is asked for again and again.
#[derive(Debug, Default)]
pub struct Operation {
    /// How long it took, whether it succeeded or not.
    pub time: Histogram,
    failures: AtomicU64,
    bytes: AtomicU64,
}

impl Operation {
    /// Does it once, and counts. `bytes` says how much data a success moved.
    pub fn counted<T, E>(&self, bytes: impl FnOnce(&T) -> usize, work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let begun = Instant::now();
        let done = work();
        self.note(begun.elapsed(), done.as_ref().ok().map(bytes));
        done
    }

    /// It took so long once, and moved so many bytes; None: it failed.
    pub fn note(&self, took: Duration, bytes: Option<usize>) {
        self.time.note(took);
        match bytes {
            Some(bytes) => _ = self.bytes.fetch_add(bytes as u64, Ordering::Relaxed),
            None => _ = self.failures.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// How often it failed.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// The data that it moved.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// Reads that were not as simple as they should be.
#[derive(Debug, Default)]
pub struct ReadCounts {
    degraded: AtomicU64,
    hedged: AtomicU64,
    refused: AtomicU64,
}

impl ReadCounts {
    /// A read was made of other blocks than those that have the data.
    pub(crate) fn add_degraded(&self) {
        self.degraded.fetch_add(1, Ordering::Relaxed);
    }

    /// A read did not wait for a block that was late.
    pub(crate) fn add_hedged(&self) {
        self.hedged.fetch_add(1, Ordering::Relaxed);
    }

    /// So many blocks were not what their checksums say.
    pub(crate) fn add_refused(&self, blocks: usize) {
        self.refused.fetch_add(blocks as u64, Ordering::Relaxed);
    }

    /// Reads that were made of other blocks than those that have the data.
    pub fn degraded(&self) -> u64 {
        self.degraded.load(Ordering::Relaxed)
    }

    /// Reads that did not wait for a block that was late.
    pub fn hedged(&self) -> u64 {
        self.hedged.load(Ordering::Relaxed)
    }

    /// Blocks that were not what their checksums say.
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
