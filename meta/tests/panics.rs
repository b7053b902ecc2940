//! Panics in the threads of the engine: it fails with an error that says so, and no caller keeps
//! waiting.
#![allow(missing_docs)]

mod common;

use common::{Flaky, memory, of_places, small};
use meta::journal::Journaled;
use meta::kv::{Batch, Edit, Index, IndexState, Kv, KvError, MemoryIndex, Order, View, Visit};
use plan::TargetId;
use std::fmt;
use std::io::{self, IoSlice};
use std::ops::Bound;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use volume::target::{
    Allocation, ClaimRequest, ClaimState, Durable, Owner, Presence, ReadPart, Space, Target, TargetFile, Wait,
    look_by_reading,
};

const SOUND: u8 = 0;
/// Writes panic.
const PANICS: u8 = 1;
/// Writes fail with an error whose text panics. The journal thread asks for the text.
const UNSPEAKABLE: u8 = 2;

#[derive(Debug)]
struct Odd(Arc<Flaky>, AtomicU8);

#[derive(Debug)]
struct Unspeakable;

impl fmt::Display for Unspeakable {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("this error has no text")
    }
}

impl std::error::Error for Unspeakable {}

impl Target for Odd {
    fn write(&self, file: TargetFile, offset: u64, parts: &[IoSlice<'_>], durable: Durable) -> io::Result<Duration> {
        match self.1.load(Ordering::Relaxed) {
            PANICS => panic!("this target panics"),
            UNSPEAKABLE => Err(io::Error::other(Unspeakable)),
            _ => self.0.write(file, offset, parts, durable),
        }
    }

    fn read(&self, file: TargetFile, parts: &mut [ReadPart<'_>], wait: Wait) -> io::Result<()> {
        self.0.read(file, parts, wait)
    }

    fn sync(&self, file: TargetFile) -> io::Result<Duration> {
        self.0.sync(file)
    }

    fn allocate(&self, file: TargetFile, change: Allocation) -> io::Result<()> {
        self.0.allocate(file, change)
    }

    fn seal(&self, file: TargetFile) -> io::Result<()> {
        self.0.seal(file)
    }

    fn rename(&self, from: TargetFile, to: TargetFile) -> io::Result<()> {
        self.0.rename(from, to)
    }

    fn remove(&self, file: TargetFile) -> io::Result<()> {
        self.0.remove(file)
    }

    fn list(&self) -> io::Result<Vec<(TargetFile, u64)>> {
        self.0.list()
    }

    fn list_metadata(&self) -> io::Result<Vec<(TargetFile, u64)>> {
        self.0.list_metadata()
    }

    fn claim(&self, ask: &ClaimRequest) -> io::Result<ClaimState> {
        self.0.claim(ask)
    }

    fn space(&self) -> io::Result<Space> {
        self.0.space()
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

/// When an index panics.
const WHEN_APPLIED: u8 = 1;
const WHEN_VISITED: u8 = 2;

struct OddIndex(MemoryIndex, Arc<AtomicU8>);

struct OddView(Box<dyn View + Send>, Arc<AtomicU8>);

impl View for OddView {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        self.0.get(key)
    }

    fn visit(&self, low: Bound<&[u8]>, high: Bound<&[u8]>, order: Order, visit: Visit<'_>) -> Result<(), KvError> {
        assert!(self.1.load(Ordering::Relaxed) != WHEN_VISITED, "this index panics");
        self.0.visit(low, high, order, visit)
    }
}

impl View for OddIndex {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        self.0.get(key)
    }

    fn visit(&self, low: Bound<&[u8]>, high: Bound<&[u8]>, order: Order, visit: Visit<'_>) -> Result<(), KvError> {
        self.0.visit(low, high, order, visit)
    }
}

impl Index for OddIndex {
    fn state(&self) -> Result<IndexState, KvError> {
        self.0.state()
    }

    fn apply<'a>(
        &self,
        edits: &mut dyn Iterator<Item = Edit<'a>>,
        state: IndexState,
        durable: bool,
    ) -> Result<(), KvError> {
        assert!(self.1.load(Ordering::Relaxed) != WHEN_APPLIED, "this index panics");
        self.0.apply(edits, state, durable)
    }

    fn clear(&self) -> Result<(), KvError> {
        self.0.clear()
    }

    fn view(&self) -> Result<Box<dyn View + Send>, KvError> {
        Ok(Box::new(OddView(self.0.view()?, self.1.clone())))
    }
}

fn engine(index: Box<dyn Index>) -> (Vec<Arc<Odd>>, Arc<Journaled>) {
    let targets: Vec<_> = (0..3).map(|_| Arc::new(Odd(Flaky::new(), AtomicU8::new(SOUND)))).collect();
    let place = |(id, target): (usize, &Arc<Odd>)| (TargetId(id as u16), target.clone() as Arc<dyn Target>);
    let places = targets.iter().enumerate().map(place).collect();
    (targets, Arc::new(Journaled::create(of_places(places, 2, index, small())).unwrap()))
}

fn put(kv: &Journaled) -> Result<(), KvError> {
    let mut batch = Batch::default();
    batch.put(b"key", vec![7; 100]);
    kv.sync(kv.commit(batch)?.seq)
}

/// What `work` returns. It must not wait for ever.
fn ends<T: Send + 'static>(kv: &Arc<Journaled>, work: impl FnOnce(&Journaled) -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    let kv = kv.clone();
    std::thread::spawn(move || sender.send(work(&kv)));
    receiver.recv_timeout(Duration::from_secs(60)).expect("nobody waits for ever")
}

fn says(result: Result<(), KvError>, thread: &str) {
    let why = result.unwrap_err().to_string();
    assert!(why.contains("a defect in the thread") && why.contains(thread), "{why}");
}

/// The engine has failed because of a panic in a thread.
fn has_failed(kv: Arc<Journaled>, thread: &str) {
    says(ends(&kv, put), thread);
    says(ends(&kv, Journaled::checkpoint), thread);
    says(ends(&kv, Journaled::close), thread);
    assert!(kv.status().trouble.is_some_and(|why| why.contains(thread)));
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        drop(kv);
        sender.send(())
    });
    receiver.recv_timeout(Duration::from_secs(60)).expect("the threads have ended");
}

#[test]
fn a_target_that_panics_is_replaced_and_others_keep_everything() {
    let (targets, kv) = engine(memory());
    targets[0].1.store(PANICS, Ordering::Relaxed);
    ends(&kv, |kv| {
        put(kv).unwrap();
        while kv.status().failed.is_empty() {
            std::thread::yield_now();
        }
    });
    let status = kv.status();
    assert_eq!(status.mirrors, [TargetId(1), TargetId(2)]);
    assert!(status.failed[0].1.contains("a defect in the thread weft-mirror"), "{status:?}");
    // If too few are left, it is as if none answered: a caller that waits learns why.
    targets[1].1.store(PANICS, Ordering::Relaxed);
    says(ends(&kv, put), "weft-mirror");
    targets.iter().for_each(|target| target.1.store(SOUND, Ordering::Relaxed));
    ends(&kv, |kv| while put(kv).is_err() {});
    ends(&kv, Journaled::close).unwrap();
}

#[test]
fn a_panic_of_the_journal_thread_fails_the_engine() {
    let (targets, kv) = engine(memory());
    targets.iter().for_each(|target| target.1.store(UNSPEAKABLE, Ordering::Relaxed));
    says(ends(&kv, put), "weft-journal");
    has_failed(kv, "weft-journal");
}

#[test]
fn a_panic_of_the_checkpointer_fails_the_engine() {
    let odd = Arc::new(AtomicU8::new(SOUND));
    let (_, kv) = engine(Box::new(OddIndex(MemoryIndex::default(), odd.clone())));
    put(&kv).unwrap();
    odd.store(WHEN_APPLIED, Ordering::Relaxed);
    says(ends(&kv, Journaled::checkpoint), "weft-checkpoint");
    has_failed(kv, "weft-checkpoint");
}

#[test]
fn a_panic_while_a_snapshot_is_written_fails_the_engine() {
    let odd = Arc::new(AtomicU8::new(SOUND));
    let (_, kv) = engine(Box::new(OddIndex(MemoryIndex::default(), odd.clone())));
    put(&kv).unwrap();
    odd.store(WHEN_VISITED, Ordering::Relaxed);
    says(ends(&kv, Journaled::checkpoint), "weft-snapshot");
    has_failed(kv, "weft-snapshot");
}
