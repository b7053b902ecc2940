//! Counters of an open volume, in addition to those that [`volume::Targets`] keeps for its targets.

use crate::FileSystem;
use plan::SetId;
use plan::repair::time_left;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use volume::counts::{Operation, ReadCounts};
use volume::{Control, Limit, Progress, RebuildReport, StepTotals, TargetHealth, lock};

/// Counters for operations on files and for repairs.
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
    /// The number of panics in background work.
    pub(crate) defects: AtomicU64,
    /// For tests: the background work that panics, and what was begun since this was set.
    #[cfg(test)]
    broken: Mutex<(Option<String>, std::collections::BTreeSet<String>)>,
}

impl Counts {
    /// The number of panics in background work. That work continued with its next run.
    pub fn defects(&self) -> u64 {
        self.defects.load(Ordering::Relaxed)
    }

    /// Background work begins; panics if it is to.
    #[cfg(test)]
    pub(crate) fn begins(&self, what: &str) {
        let mut broken = lock(&self.broken);
        broken.1.insert(what.into());
        let breaks = broken.0.as_deref() == Some(what);
        drop(broken);
        assert!(!breaks, "a defect in {what}, for a test");
    }

    /// From now on this background work panics, and no other.
    #[cfg(test)]
    pub(crate) fn breaks(&self, what: Option<&str>) {
        *lock(&self.broken) = (what.map(String::from), std::collections::BTreeSet::new());
    }

    /// The background work that was begun since then.
    #[cfg(test)]
    pub(crate) fn begun(&self) -> std::collections::BTreeSet<String> {
        lock(&self.broken).1.clone()
    }
}

/// The repairs of a volume: totals, and those in progress.
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

/// A repair in progress.
#[derive(Debug)]
pub(crate) struct Running {
    begun: Instant,
    progress: Arc<Progress>,
    sets: usize,
    done: AtomicUsize,
    failed: AtomicUsize,
    /// The last chunk set that was begun.
    now: AtomicU64,
}

/// The progress of a repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepairProgress {
    /// The last chunk set that was begun; several are repaired at the same time.
    pub set: SetId,
    /// The number of chunk sets at the start.
    pub sets: usize,
    /// Chunk sets that are done or failed.
    pub sets_done: usize,
    /// Chunk sets that failed.
    pub sets_failed: usize,
    /// Bytes of blocks to rebuild; approximate.
    pub bytes: u64,
    /// Bytes of blocks that are rebuilt.
    pub bytes_done: u64,
    /// The time since the start of the repair.
    pub elapsed: Duration,
    /// The estimated time to the end, at the average rate so far.
    pub left: Option<Duration>,
}

impl RepairProgress {
    /// Bytes of blocks that are rebuilt per second.
    pub fn bytes_per_second(&self) -> u64 {
        (self.bytes_done as f64 / self.elapsed.as_secs_f64().max(1e-3)) as u64
    }
}

/// Removes a repair from the list of running ones when it is dropped.
pub(crate) struct Shown<'a> {
    repairs: &'a Repairs,
    running: Arc<Running>,
}

impl Repairs {
    /// Begins a repair of `sets` chunk sets.
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

    /// The repairs in progress.
    pub fn running(&self) -> Vec<RepairProgress> {
        lock(&self.running).iter().map(|running| running.look()).collect()
    }

    /// The number of repaired chunk sets.
    pub fn sets(&self) -> u64 {
        self.sets.load(Ordering::Relaxed)
    }

    /// The number of stripes in repaired chunk sets.
    pub fn stripes(&self) -> u64 {
        self.stripes.load(Ordering::Relaxed)
    }

    /// Bytes of blocks that were rebuilt.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Bytes of blocks that stores rebuilt themselves.
    pub fn by_stores(&self) -> u64 {
        self.by_stores.load(Ordering::Relaxed)
    }

    /// The number of chunk sets that could not be repaired.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// The limit of all repairs together, in bytes of rebuilt blocks per second; None for no limit.
    pub fn limit(&self) -> Option<u64> {
        lock(&self.limit).as_ref().map(|limit| limit.bytes_per_second())
    }

    /// Limits all repairs that begin from now on, together, to this many bytes of rebuilt blocks
    /// per second.
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
    /// A chunk set is begun.
    pub fn next(&self, set: SetId) {
        self.running.now.store(set.0, Ordering::Relaxed);
    }

    /// A chunk set is done; `well` tells success from failure.
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
            set: SetId(self.now.load(Ordering::Relaxed)),
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
    /// The counters since the volume was opened.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The number of stripes that were coded here so far, and by Masters.
    pub fn coded_stripes(&self) -> (u64, u64) {
        self.store.coders.coded()
    }

    /// The time that the steps of writes took since the volume was opened.
    pub fn write_cost(&self) -> StepTotals {
        self.store.targets.steps().totals()
    }

    /// Counters of reads that needed more than the plain path, since the volume was opened.
    pub fn read_counts(&self) -> &ReadCounts {
        self.store.targets.reads()
    }

    /// Bytes of written data that are still in memory.
    pub fn dirty_bytes(&self) -> u64 {
        self.memory.used()
    }

    /// The last known health of the targets; asks none of them.
    pub fn known_health(&self) -> Vec<TargetHealth> {
        self.store.targets.known_health()
    }

    /// The number of targets that a stripe needs at least: k.
    pub fn needed_targets(&self) -> usize {
        self.store.options.code.shape().k
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{Lab, make};
    use plan::SetId;
    use std::time::{Duration, Instant};
    use volume::target::{Target, TargetFile};
    use volume::{Control, WriteStep};

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
        assert_eq!((cost.writes, cost.bytes, cost.of(WriteStep::Client).count), (16, data.len() as u64, 16));
        let stripes = cost.of(WriteStep::Parity).count;
        assert!(
            stripes >= 4 && cost.of(WriteStep::Master).count == stripes && cost.of(WriteStep::Slave).count > stripes
        );
        for (file, _) in lab.disks[1].list().unwrap() {
            if matches!(file, TargetFile::Chunk { .. }) {
                lab.disks[1].remove(file).unwrap();
            }
        }
        assert!(!fs.verify(&Control::default()).unwrap().is_sound());
        // Half of the data is on that target: the repair takes half a second.
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
        assert!(middle.left.is_some() && middle.bytes_per_second() > 0 && middle.set > SetId(0), "{middle:?}");
        let repairs = &counts.repairs;
        assert_eq!((repairs.sets() as usize, repairs.bytes(), repairs.failures()), (done.chunks, done.bytes, 0));
        assert!(repairs.stripes() >= 4 && repairs.running().is_empty());
        assert!(fs.status().unwrap().is_healthy());
    }
}
