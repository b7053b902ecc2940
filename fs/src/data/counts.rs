//! What is counted of a volume that is open, beside what [`volume::Targets`] counts of its targets.

use crate::mutex::lock;
use crate::{FileSystem, Status};
use plan::repair::time_left;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use volume::counts::{Operation, ReadCounts};
use volume::{Control, Limit, Progress, RebuildReport, StepTotals, TargetHealth};

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
    /// What the last look at the volume found, and when.
    pub(crate) census: Mutex<Option<(i64, Arc<Status>)>>,
    /// Panics in what goes on beside the callers.
    pub(crate) defects: AtomicU64,
}

impl Counts {
    /// How often something panicked that goes on beside the callers. It went on the next time.
    pub fn defects(&self) -> u64 {
        self.defects.load(Ordering::Relaxed)
    }
}

/// The repairs of a volume: what they have done, and those that go on.
#[derive(Debug, Default)]
pub struct Repairs {
    sets: AtomicU64,
    stripes: AtomicU64,
    bytes: AtomicU64,
    by_stores: AtomicU64,
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
    /// The chunk set that was begun last.
    now: AtomicU64,
}

/// How far a repair is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepairProgress {
    /// The chunk set that was begun last; some are made whole at a time.
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

    /// Those that stores made themselves.
    pub fn by_stores(&self) -> u64 {
        self.by_stores.load(Ordering::Relaxed)
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

    pub(crate) fn rebuilt(&self, stripes: usize, report: &RebuildReport) {
        self.stripes.fetch_add(stripes as u64, Ordering::Relaxed);
        self.bytes.fetch_add(report.bytes, Ordering::Relaxed);
        self.by_stores.fetch_add(report.delegated, Ordering::Relaxed);
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

#[cfg(test)]
mod tests {
    use crate::testing::{Lab, make};
    use std::time::{Duration, Instant};
    use volume::target::{Target, TargetFile};
    use volume::{Control, Step};

    #[test]
    fn a_repair_shows_how_far_it_is_and_keeps_to_its_limit() {
        let lab = Lab::new("rs:2+1", 3);
        let fs = lab.open();
        let ino = make(&fs, "film");
        let data: Vec<u8> = (0..16u32 << 20).map(|at| (at / 3) as u8).collect();
        data.chunks(1 << 20).enumerate().for_each(|(n, part)| fs.write(ino, (n as u64) << 20, part).unwrap());
        fs.sync(ino).unwrap();
        let (counts, cost) = (fs.counts(), fs.write_cost());
        assert_eq!((counts.writes.time.now().count(), counts.writes.bytes()), (16, data.len() as u64));
        assert_eq!((cost.writes, cost.bytes, cost.of(Step::Client).count), (16, data.len() as u64, 16));
        let stripes = cost.of(Step::Parity).count;
        assert!(stripes >= 4 && cost.of(Step::Master).count == stripes && cost.of(Step::Slave).count > stripes);
        for (file, _) in lab.disks[1].list().unwrap() {
            if matches!(file, TargetFile::Chunk { .. }) {
                lab.disks[1].remove(file).unwrap();
            }
        }
        assert!(!fs.verify(&Control::default()).unwrap().is_sound());
        // Half of the data is on that target: half a second.
        counts.repairs.set_limit(Some(data.len() as u64));
        let begun = Instant::now();
        let (done, seen) = std::thread::scope(|scope| {
            let repair = scope.spawn(|| fs.repair(&Control::default()).unwrap());
            let mut seen = Vec::new();
            while !repair.is_finished() {
                seen.extend(counts.repairs.running());
                std::thread::sleep(Duration::from_millis(5));
            }
            (repair.join().unwrap(), seen)
        });
        assert!(begun.elapsed() >= Duration::from_millis(300), "{:?}", begun.elapsed());
        assert!(seen.is_sorted_by_key(|progress| (progress.sets_done, progress.bytes_done)), "{seen:?}");
        let middle = seen.iter().find(|progress| (1..progress.bytes).contains(&progress.bytes_done)).unwrap();
        assert_eq!((middle.bytes, middle.sets, middle.sets_failed), (done.bytes, done.chunks, 0));
        assert!(middle.left.is_some() && middle.bytes_per_second() > 0 && middle.set > 0, "{middle:?}");
        let repairs = &counts.repairs;
        assert_eq!((repairs.sets() as usize, repairs.bytes(), repairs.failures()), (done.chunks, done.bytes, 0));
        assert!(repairs.stripes() >= 4 && repairs.running().is_empty());
        assert!(fs.status().unwrap().is_healthy());
    }
}
