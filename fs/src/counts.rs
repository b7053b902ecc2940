//! What is counted of a volume that is open, beside what [`volume::Targets`] counts of its targets.

use crate::FileSystem;
use crate::mutex::lock;
use plan::repair::time_left;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use volume::counts::{Operation, ReadCounts};
use volume::{Control, Limit, Progress, StepTotals, TargetHealth};

/// Operations on files, and repairs.
#[derive(Debug, Default)]
pub struct Counts {
    /// Reads of files.
    pub reads: Operation,
    /// Writes to files.
    pub writes: Operation,
    /// Syncs of files.
    pub syncs: Operation,
    /// Repairs.
    pub repairs: Repairs,
}

/// The repairs of a volume: what they have done, and those that go on.
#[derive(Debug, Default)]
pub struct Repairs {
    sets: AtomicU64,
    stripes: AtomicU64,
    bytes: AtomicU64,
    failures: AtomicU64,
    running: Mutex<Vec<Arc<Running>>>,
    limit: Mutex<Option<Arc<Limit>>>,
}

/// A repair that goes on.
#[derive(Debug)]
pub(crate) struct Running {
    begun: Instant,
    progress: Arc<Progress>,
    sets: usize,
    done: AtomicUsize,
    failed: AtomicUsize,
    /// The chunk set that is made whole now.
    now: AtomicU64,
}

/// How far a repair is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepairProgress {
    /// The chunk set that is made whole now.
    pub set: u64,
    /// Chunk sets that it began with.
    pub sets: usize,
    /// Those that are done, or failed.
    pub sets_done: usize,
    /// Those that failed.
    pub sets_failed: usize,
    /// Bytes of blocks that are to be made, about.
    pub bytes: u64,
    /// Those that are made.
    pub bytes_done: u64,
    /// Since when it goes on.
    pub elapsed: Duration,
    /// How long it will still take, at the rate of until now.
    pub left: Option<Duration>,
}

impl RepairProgress {
    /// Bytes of blocks that were made in a second.
    pub fn bytes_per_second(&self) -> u64 {
        (self.bytes_done as f64 / self.elapsed.as_secs_f64().max(1e-3)) as u64
    }
}

/// Ends what is shown of a repair with it.
pub(crate) struct Shown<'a> {
    repairs: &'a Repairs,
    running: Arc<Running>,
}

impl Repairs {
    /// A repair of so many sets begins.
    pub(crate) fn begin(&self, sets: usize, control: &Control) -> Shown<'_> {
        let running = Arc::new(Running {
            begun: Instant::now(),
            progress: control.progress().clone(),
            sets,
            done: AtomicUsize::new(0),
            failed: AtomicUsize::new(0),
            now: AtomicU64::new(0),
        });
        if let Some(limit) = lock(&self.limit).clone() {
            control.limit(limit);
        }
        lock(&self.running).push(running.clone());
        Shown { repairs: self, running }
    }

    /// Those that go on.
    pub fn running(&self) -> Vec<RepairProgress> {
        lock(&self.running).iter().map(|running| running.look()).collect()
    }

    /// Chunk sets that were made whole.
    pub fn sets(&self) -> u64 {
        self.sets.load(Ordering::Relaxed)
    }

    /// Stripes of them.
    pub fn stripes(&self) -> u64 {
        self.stripes.load(Ordering::Relaxed)
    }

    /// Bytes of blocks that were made again.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Chunk sets that could not be made whole.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Bytes of blocks that repairs together may make in a second; None for as many as they can.
    pub fn limit(&self) -> Option<u64> {
        lock(&self.limit).as_ref().map(|limit| limit.bytes_per_second())
    }

    /// Holds the repairs that begin from now on, together, to so many bytes of blocks made in a second.
    pub fn set_limit(&self, bytes_per_second: Option<u64>) {
        *lock(&self.limit) = bytes_per_second.map(|rate| Arc::new(Limit::new(rate)));
    }

    pub(crate) fn rebuilt(&self, stripes: usize, bytes: u64) {
        self.stripes.fetch_add(stripes as u64, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Shown<'_> {
    /// A set is begun.
    pub fn next(&self, set: u64) {
        self.running.now.store(set, Ordering::Relaxed);
    }

    /// It is done.
    pub fn done(&self, well: bool) {
        self.running.done.fetch_add(1, Ordering::Relaxed);
        if well {
            self.repairs.sets.fetch_add(1, Ordering::Relaxed);
        } else {
            self.running.failed.fetch_add(1, Ordering::Relaxed);
            self.repairs.failures.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        lock(&self.repairs.running).retain(|other| !Arc::ptr_eq(other, &self.running));
    }
}

impl Running {
    fn look(&self) -> RepairProgress {
        let (bytes, bytes_done) = (self.progress.total_bytes(), self.progress.done_bytes());
        let elapsed = self.begun.elapsed();
        RepairProgress {
            set: self.now.load(Ordering::Relaxed),
            sets: self.sets,
            sets_done: self.done.load(Ordering::Relaxed),
            sets_failed: self.failed.load(Ordering::Relaxed),
            bytes,
            bytes_done,
            elapsed,
            left: time_left(bytes_done, bytes, elapsed),
        }
    }
}

impl FileSystem {
    /// What was counted since it was opened.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Stripes that were coded here so far, and those that Masters coded.
    pub fn coded_stripes(&self) -> (u64, u64) {
        self.store.coders.coded()
    }

    /// Where the time of writes went since it was opened.
    pub fn write_cost(&self) -> StepTotals {
        self.store.targets.steps().totals()
    }

    /// Reads that were not as simple as they should be, since it was opened.
    pub fn read_counts(&self) -> &ReadCounts {
        self.store.targets.reads()
    }

    /// Bytes that were written and are not yet where they belong.
    pub fn dirty_bytes(&self) -> u64 {
        self.memory.used()
    }

    /// What is known of the targets without asking them.
    pub fn known_health(&self) -> Vec<TargetHealth> {
        self.store.targets.known_health()
    }

    /// The targets that stripes need at least.
    pub fn needed_targets(&self) -> usize {
        self.store.options.code.shape().k
    }
}
