//! What others do between the reads of a transaction and its commit.
#![allow(missing_docs)]

use meta::kv::{Batch, Committed, Kv, KvError, Memory, Pair, Visit};
use meta::{Error, FileKind, Meta, New, ROOT, Time};
use plan::TxId;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

type Meddle = Box<dyn FnOnce() + Send>;

/// An engine in which something else happens behind one of the next reads.
struct Meddled {
    inner: Arc<Memory>,
    /// How many reads come before that.
    next: Mutex<Option<(usize, Meddle)>>,
}

impl Meddled {
    fn new() -> (Arc<Self>, Meta, Arc<Meta>) {
        let inner = Arc::new(Memory::new(meta::MERGE));
        let kv = Arc::new(Self { inner: inner.clone(), next: Mutex::new(None) });
        let meta = Meta::open(kv.clone(), (0, 0), Time::default()).unwrap();
        (kv, meta, Arc::new(Meta::open(inner, (0, 0), Time::default()).unwrap()))
    }

    /// Does something behind so many reads; returns what is true when it was done.
    fn meddle(&self, reads: usize, work: impl FnOnce() -> bool + Send + 'static) -> Arc<AtomicBool> {
        let done = Arc::new(AtomicBool::new(false));
        let told = done.clone();
        *self.next.lock().unwrap() = Some((reads, Box::new(move || told.store(work(), Ordering::SeqCst))));
        done
    }

    /// Counts a read, and does what is to happen behind it.
    fn read<T>(&self, found: T) -> T {
        self.due().into_iter().for_each(|meddle| meddle());
        found
    }

    fn due(&self) -> Option<Meddle> {
        let mut next = self.next.lock().unwrap();
        match next.take()? {
            (0, meddle) => Some(meddle),
            (left, meddle) => {
                *next = Some((left - 1, meddle));
                None
            }
        }
    }
}

impl Kv for Meddled {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        self.read(self.inner.get(key))
    }
    fn scan(&self, range: Range<&[u8]>, limit: usize) -> Result<Vec<Pair>, KvError> {
        self.read(self.inner.scan(range, limit))
    }
    fn scan_back(&self, range: Range<&[u8]>, limit: usize) -> Result<Vec<Pair>, KvError> {
        self.inner.scan_back(range, limit)
    }
    fn scan_with_previous(&self, floor: &[u8], range: Range<&[u8]>, limit: usize) -> Result<Vec<Pair>, KvError> {
        self.inner.scan_with_previous(floor, range, limit)
    }
    fn snapshot(&self, visit: Visit<'_>) -> Result<TxId, KvError> {
        self.inner.snapshot(visit)
    }
    fn commit(&self, batch: Batch) -> Result<Committed, KvError> {
        self.inner.commit(batch)
    }
    fn sync(&self, seq: TxId) -> Result<(), KvError> {
        self.inner.sync(seq)
    }
}

fn keys(kv: &Memory) -> BTreeSet<Vec<u8>> {
    let mut keys = BTreeSet::new();
    kv.snapshot(&mut |key, _| {
        keys.insert(key.to_vec());
        Ok(true)
    })
    .unwrap();
    keys
}

/// An attribute that is set on a directory while that is removed goes with it, or is refused.
#[test]
fn attributes_go_with_their_directory() {
    let (kv, meta, other) = Meddled::new();
    let new = New { kind: FileKind::Directory, mode: 0o755, uid: 0, gid: 0, device: 0, link: Vec::new() };
    let make = |name: &[u8]| meta.make(ROOT, name, &new, Time::default()).unwrap().0.ino;
    // The first one makes keys that stay.
    let first = make(b"first");
    meta.remove_directory(ROOT, b"first", first, false, Time::default()).unwrap();
    let before = keys(&kv.inner);
    let mut meddled = 0;
    for attributes in [0, 1, 20, 600] {
        for (keep, small) in [(false, false), (true, false), (true, true)] {
            for reads in 0..30 {
                let ino = make(b"d");
                for number in 0..attributes {
                    meta.set_attribute(ino, format!("user.{number}").as_bytes(), b"x", None, Time::default()).unwrap();
                }
                let other = other.clone();
                let set = move || other.set_attribute(ino, b"user.late", b"x", None, Time::default()).is_ok();
                let done = kv.meddle(reads, set);
                if meta.remove_directory(ROOT, b"d", ino, keep, Time::default()).unwrap().orphan {
                    let large = match small {
                        true => meta.drop_small_orphans(&[ino]).unwrap().0,
                        false => vec![ino],
                    };
                    large.into_iter().for_each(|ino| meta.drop_orphan(ino, |_, _| ()).unwrap());
                }
                meddled += u32::from(done.load(Ordering::SeqCst));
                *kv.next.lock().unwrap() = None;
                assert_eq!(keys(&kv.inner), before, "{attributes} attributes, behind {reads} reads, {keep} {small}");
            }
        }
    }
    assert!(meddled >= 12, "{meddled} were set");
}

/// A name is removed while others remove all names of its file, which stays open.
#[test]
fn a_file_loses_all_its_names_at_once() {
    let (kv, meta, other) = Meddled::new();
    let new = New { kind: FileKind::File, mode: 0o644, uid: 0, gid: 0, device: 0, link: Vec::new() };
    let mut meddled = 0;
    for reads in 0..20 {
        let ino = meta.make(ROOT, b"a", &new, Time::default()).unwrap().0.ino;
        meta.link(ino, ROOT, b"b", Time::default()).unwrap();
        let other = other.clone();
        let remove = move || {
            let removed = [b"a", b"b"].map(|name| other.unlink(ROOT, name, ino, true, Time::default()).is_ok());
            removed == [true; 2]
        };
        let done = kv.meddle(reads, remove);
        let removed = meta.unlink(ROOT, b"a", ino, true, Time::default());
        *kv.next.lock().unwrap() = None;
        if done.load(Ordering::SeqCst) {
            assert_eq!(removed.map(drop), Err(Error::NotFound), "behind {reads} reads");
            meddled += 1;
        } else {
            assert!(!removed.unwrap().last);
            meta.unlink(ROOT, b"b", ino, true, Time::default()).unwrap();
        }
        meta.drop_orphan(ino, |_, _| ()).unwrap();
    }
    assert!(meddled >= 2, "{meddled} times");
}
