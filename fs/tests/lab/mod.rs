//! Volumes on targets in memory that fail, lose power and come back.
#![allow(dead_code, reason = "every test uses some of it")]

pub mod cluster;
pub mod place;

use fs::label::{Label, Member};
use fs::{FileKind, FileSystem, New, OpenOptions, ROOT, Status};
use meta::kv::MemoryIndex;
use plan::{Ino, TargetId};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use volume::Control;
use volume::target::{Crash, Faults, Faulty, Memory, Target, TargetFile};

/// The shortest chunks that a volume may have, so that there are many chunk sets.
pub const CHUNK: u32 = 3 << 20;

/// Disks with a volume, which may be open.
pub struct Lab {
    pub label: Label,
    pub disks: Vec<Arc<Crash>>,
    /// The disks as the open file system sees them. Each opening has its own view, so that what is
    /// left of an old one can be cut off.
    pub seen: Vec<Arc<Faulty>>,
    /// When an operation of a disk has failed; None: as for users.
    pub deadline: Option<Duration>,
    /// The lease of the next opening's claim on the disks; None: it needs none.
    pub lease: Option<Duration>,
}

impl Lab {
    /// A new volume.
    pub fn new(code: &str, targets: usize) -> Self {
        let shape = ec::parse(code).unwrap().shape();
        let member = |number: usize| Member::new(TargetId(number as u16), PathBuf::new());
        let durability = shape.k + usize::from(shape.m > 0);
        let label = Label::new([7; 16], "test", code, CHUNK, durability, (0..targets).map(member).collect());
        let disks: Vec<Arc<Crash>> = (0..targets).map(|_| Arc::new(Crash::new(Arc::new(Memory::default())))).collect();
        let all = disks.iter().enumerate().map(|(n, disk)| (TargetId(n as u16), disk.clone() as Arc<dyn Target>));
        FileSystem::create_on(&label, all.collect()).unwrap();
        Self { label, disks, seen: Vec::new(), deadline: None, lease: None }
    }

    /// Opens the volume, with these targets missing.
    pub fn try_open(&mut self, missing: &[usize]) -> fs::Result<Arc<FileSystem>> {
        self.open_as(missing, false)
    }

    /// Opens the volume for clients.
    pub fn open_to_serve(&mut self) -> Arc<FileSystem> {
        self.open_as(&[], true).unwrap()
    }

    fn open_as(&mut self, missing: &[usize], serve: bool) -> fs::Result<Arc<FileSystem>> {
        self.seen = self.disks.iter().map(|disk| Arc::new(Faulty::new(disk.clone()))).collect();
        let all = self.seen.iter().enumerate().filter(|(number, _)| !missing.contains(number));
        let all = all.map(|(number, disk)| (TargetId(number as u16), disk.clone() as Arc<dyn Target>)).collect();
        let warn = std::env::var_os("WEFT_SOAK_LOUD")
            .map(|_| -> Box<dyn Fn(&str) + Send + Sync> { Box::new(|what| eprintln!("  warning: {what}")) });
        let options = OpenOptions { warn, serve, deadline: self.deadline, lease: self.lease, ..OpenOptions::default() };
        FileSystem::open_on(self.label.clone(), all, Box::new(MemoryIndex::default()), options)
    }

    pub fn open(&mut self) -> Arc<FileSystem> {
        self.try_open(&[]).unwrap()
    }

    /// The process dies: its writes stay, and it writes no more.
    pub fn kill(&self, fs: Arc<FileSystem>) {
        self.fault_all(|| Faults { dead: true, ..Faults::default() });
        fs.abandon();
    }

    /// The machine loses power: unsynced data is complete, torn or lost.
    pub fn lose_power(&self, fs: Arc<FileSystem>, seed: u64) {
        self.kill(fs);
        self.disks.iter().enumerate().for_each(|(number, disk)| disk.crash(seed ^ number as u64).unwrap());
    }

    pub fn fault(&self, number: usize, faults: Faults) {
        self.seen[number].set(faults);
    }

    pub fn fault_all(&self, faults: impl Fn() -> Faults) {
        self.seen.iter().for_each(|disk| disk.set(faults()));
    }

    /// All chunks on all disks, with their lengths.
    pub fn chunks(&self) -> Vec<(usize, TargetFile, u64)> {
        let of = |(number, disk): (usize, &Arc<Crash>)| {
            let files = disk.list().unwrap().into_iter();
            let chunk = |file| matches!(file, TargetFile::Chunk { .. } | TargetFile::NewChunk { .. });
            files.filter(|(file, _)| chunk(*file)).map(|(f, len)| (number, f, len)).collect::<Vec<_>>()
        };
        self.disks.iter().enumerate().flat_map(of).collect()
    }

    /// The length of all chunks together, in bytes.
    pub fn chunk_bytes(&self) -> u64 {
        self.chunks().iter().map(|(.., length)| length).sum()
    }
}

pub fn dead() -> Faults {
    Faults { dead: true, ..Faults::default() }
}

/// A disk that does not answer until it gets other faults.
pub fn hanging() -> Faults {
    Faults { delay: Duration::from_secs(600), ..Faults::default() }
}

pub fn full() -> Faults {
    Faults { full: true, ..Faults::default() }
}

pub fn new(kind: FileKind) -> New {
    New { kind, mode: 0o644, uid: 1, gid: 2, device: 0, link: Vec::new() }
}

/// Creates a file in the root directory.
pub fn make(fs: &FileSystem, name: &str) -> Ino {
    fs.make(ROOT, name.as_bytes(), &new(FileKind::File)).unwrap().ino
}

/// Bytes from which their origin can be recognized.
pub fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    fastrand::Rng::with_seed(seed).fill(&mut bytes);
    bytes
}

/// The content of a file.
pub fn content(fs: &FileSystem, ino: Ino) -> fs::Result<Vec<u8>> {
    let mut bytes = vec![0; fs.attributes(ino)?.size as usize];
    let read = fs.read(ino, 0, &mut bytes)?;
    bytes.truncate(read);
    Ok(bytes)
}

/// Files, references and chunks agree, and every block is as it was written.
#[track_caller]
pub fn assert_sound(fs: &FileSystem) {
    let checked = fs.check().unwrap();
    assert!(checked.problems.is_empty(), "{:#?}", checked.problems);
    let verified = fs.verify(&Control::default()).unwrap();
    assert!(verified.is_sound(), "{:#?}", verified.problems);
}

/// Repairs until all targets answer and nothing is lacking: on a busy machine a target is late for
/// a moment, and lacks what was written meanwhile.
#[track_caller]
pub fn settled(fs: &FileSystem) -> Status {
    let mut settled = None;
    until("all targets have what they should", || {
        let repaired = fs.repair(&Control::default()).is_ok_and(|done| done.failed.is_empty());
        let status = fs.status().unwrap();
        let answer = status.targets.iter().all(|target| target.problem.is_none());
        let metadata = status.metadata_error.is_none() && status.mirrors.0 >= status.mirrors.1;
        let whole = status.to_repair == 0 && status.new_blocks.0 >= status.new_blocks.1;
        settled = (repaired && answer && metadata && whole).then_some(status);
        settled.is_some()
    });
    settled.expect("it was seen")
}

/// Waits for an event.
#[track_caller]
pub fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !happened() {
        assert!(begun.elapsed() < Duration::from_secs(300), "it does not happen: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Runs something that must end in time.
#[track_caller]
pub fn within<T: Send + 'static>(seconds: u64, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, wait) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || _ = done.send(work()));
    match wait.recv_timeout(Duration::from_secs(seconds)) {
        Ok(result) => result,
        Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => {
            std::panic::resume_unwind(thread.join().expect_err("it ended without a result"))
        }
        Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("it hangs"),
    }
}
