//! Space on the targets, as far as it is known: targets that report late, and work that waits.

use crate::lab;
use crate::lab::{Lab, content, make, pattern};
use fs::{FileSystem, OpenOptions};
use meta::kv::MemoryIndex;
use plan::TargetId;
use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use volume::target::{
    Allocation, ClaimRequest, ClaimState, Durable, Faults, Faulty, Memory, Owner, Presence, ReadPart, Space, Target,
    TargetFile, Wait, look_by_reading,
};

/// A target in memory that reports its space only when it is allowed to.
#[derive(Debug, Default)]
struct Slow {
    inner: Memory,
    waits: AtomicBool,
}

impl Target for Slow {
    fn write(&self, file: TargetFile, offset: u64, parts: &[IoSlice<'_>], durable: Durable) -> io::Result<Duration> {
        self.inner.write(file, offset, parts, durable)
    }

    fn read(&self, file: TargetFile, parts: &mut [ReadPart<'_>], wait: Wait) -> io::Result<()> {
        self.inner.read(file, parts, wait)
    }

    fn sync(&self, file: TargetFile) -> io::Result<Duration> {
        self.inner.sync(file)
    }

    fn allocate(&self, file: TargetFile, change: Allocation) -> io::Result<()> {
        self.inner.allocate(file, change)
    }

    fn seal(&self, file: TargetFile) -> io::Result<()> {
        self.inner.seal(file)
    }

    fn rename(&self, from: TargetFile, to: TargetFile) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn remove(&self, file: TargetFile) -> io::Result<()> {
        self.inner.remove(file)
    }

    fn list(&self) -> io::Result<Vec<(TargetFile, u64)>> {
        self.inner.list()
    }

    fn list_metadata(&self) -> io::Result<Vec<(TargetFile, u64)>> {
        self.inner.list_metadata()
    }

    fn claim(&self, ask: &ClaimRequest) -> io::Result<ClaimState> {
        self.inner.claim(ask)
    }

    fn space(&self) -> io::Result<Space> {
        while self.waits.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.inner.space()
    }

    fn is_remote(&self) -> bool {
        false
    }

    fn owner(&self) -> Option<Owner<'_>> {
        None
    }

    fn look(&self, files: &[TargetFile]) -> io::Result<Vec<Presence>> {
        look_by_reading(self, files)
    }
}

/// As on a busy machine with many targets, where some threads have not run when the space is added
/// up.
#[test]
fn a_target_that_does_not_say_what_space_it_has_is_not_full() {
    let label = lab::Lab::new("rs:4+2", 6).label;
    let disks: Vec<Arc<Slow>> = (0..6).map(|_| Arc::default()).collect();
    let all =
        || disks.iter().enumerate().map(|(n, disk)| (TargetId(n as u16), disk.clone() as Arc<dyn Target>)).collect();
    FileSystem::create_on(&label, all()).unwrap();
    // Half of them, so that the others are too few for a stripe. Not those with the metadata.
    disks[3..].iter().for_each(|disk| disk.waits.store(true, Ordering::SeqCst));
    let fs = FileSystem::open_on(label, all(), Box::new(MemoryIndex::default()), OpenOptions::default()).unwrap();
    let file = make(&fs, "file");
    let data = pattern(1, 5_000_000);
    let written = fs.write(file, 0, &data).and_then(|()| fs.sync_all());
    disks.iter().for_each(|disk| disk.waits.store(false, Ordering::SeqCst));
    written.unwrap();
    assert!(content(&fs, file).unwrap() == data);
}

/// Warnings of the periodic work wait until this is opened.
#[derive(Default)]
struct Gate(Mutex<bool>, Condvar);

impl Gate {
    fn pass(&self) {
        let mut open = self.0.lock().unwrap();
        while !*open {
            open = self.1.wait(open).unwrap();
        }
    }

    fn open(&self) {
        *self.0.lock().unwrap() = true;
        self.1.notify_all();
    }
}

/// A target was full for a moment, and the periodic work waits for another one that hangs: clients
/// are told of the space that there is now.
#[test]
fn space_is_measured_while_other_work_waits() {
    let label = lab::Lab::new("rs:4+2", 6).label;
    let disks: Vec<Arc<Faulty>> = (0..6).map(|_| Arc::new(Faulty::new(Arc::new(Memory::default())))).collect();
    let all =
        || disks.iter().enumerate().map(|(n, disk)| (TargetId(n as u16), disk.clone() as Arc<dyn Target>)).collect();
    FileSystem::create_on(&label, all()).unwrap();
    let gate = Arc::<Gate>::default();
    let (waiting, passes) = (Arc::new(AtomicBool::new(false)), gate.clone());
    let seen = waiting.clone();
    let warn: fs::Warn = Box::new(move |line: &str| {
        if !line.starts_with("target ") {
            seen.store(true, Ordering::SeqCst);
            passes.pass();
        }
    });
    let options = OpenOptions { warn: Some(warn), ..OpenOptions::default() };
    let fs = FileSystem::open_on(label, all(), Box::new(MemoryIndex::default()), options).unwrap();
    let until = |what: &str, reached: &dyn Fn() -> bool| {
        let begun = Instant::now();
        while !reached() {
            assert!(begun.elapsed() < Duration::from_secs(120), "{what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    let file = make(&fs, "file");
    fs.write(file, 0, &pattern(1, 100_000)).unwrap();
    let set = |faults: Faults| disks.iter().for_each(|disk| disk.set(faults.clone()));
    set(Faults { unsynced: true, full: true, ..Faults::default() });
    until("a failed commit is told", &|| waiting.load(Ordering::SeqCst));
    until("the targets are full", &|| fs.usage().unwrap().free == 0);
    set(Faults::default());
    until("the targets have room again", &|| fs.usage().unwrap().free > 0);
    gate.open();
}

/// With one set at a time, six of twelve targets would work for a writer at any moment.
#[test]
fn a_writer_of_much_data_has_several_open_sets_on_different_targets() {
    let mut lab = Lab::new("rs:4+2", 12);
    lab.label.chunk_bytes = 64 << 20;
    let fs = lab.open();
    let small = make(&fs, "small");
    fs.write(small, 0, &pattern(1, 3 << 20)).unwrap();
    fs.sync(small).unwrap();
    assert_eq!(lab.chunks().len(), 6, "a writer of little data has one set");
    // The targets are slow, so that stripes are on their way when others come.
    lab.fault_all(|| Faults { delay: Duration::from_millis(20), ..Faults::default() });
    let (large, part) = (make(&fs, "large"), pattern(2, 4 << 20));
    for number in 0..40 {
        fs.write(large, number * part.len() as u64, &part).unwrap();
    }
    fs.sync(large).unwrap();
    lab.fault_all(Faults::default);
    let chunks = lab.chunks();
    let bytes = |target: usize| chunks.iter().filter(|chunk| chunk.0 == target).map(|chunk| chunk.2).sum::<u64>();
    let least = (0..12).map(bytes).min();
    assert!(chunks.len() <= 18 && least > Some(8 << 20), "{chunks:?}");
    assert_eq!(content(&fs, large).unwrap(), part.repeat(40));
    fs.close_volume().unwrap();
}
