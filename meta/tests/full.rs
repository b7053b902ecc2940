//! Targets without space: what is there can be read, what was removed gives space back, and nothing
//! hangs.
#![allow(missing_docs)]

mod common;

use common::{Flaky, memory, options, small};
use meta::journal::{JournalLimits, Journaled};
use meta::kv::{Batch, Kv, KvError};
use plan::TxId;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};
use volume::target::{Durable, ReadAt, Target, TargetFile};

fn targets(count: usize) -> Vec<Arc<Flaky>> {
    (0..count).map(|_| Flaky::new()).collect()
}

fn put(kv: &Journaled, number: u32, bytes: usize) -> Result<(), KvError> {
    let mut batch = Batch::default();
    batch.put(number.to_be_bytes(), vec![7; bytes]);
    kv.sync(kv.commit(batch)?.seq)
}

fn delete(kv: &Journaled, number: u32) -> Result<(), KvError> {
    let mut batch = Batch::default();
    batch.delete(number.to_be_bytes());
    kv.sync(kv.commit(batch)?.seq)
}

fn until(what: &str, reached: impl Fn() -> bool) {
    let begun = Instant::now();
    while !reached() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Somebody else takes all space.
fn fill(targets: &[Arc<Flaky>]) {
    targets.iter().for_each(|target| target.capacity.store(target.used().max(1), Ordering::Relaxed));
}

fn empty(targets: &[Arc<Flaky>]) {
    targets.iter().for_each(|target| target.capacity.store(0, Ordering::Relaxed));
}

fn snapshots(target: &Flaky) -> usize {
    target.names().iter().filter(|file| matches!(file, TargetFile::Snapshot { .. })).count()
}

#[test]
fn full_targets_can_be_opened_and_go_on_when_there_is_space() {
    let targets = targets(3);
    let kv = Journaled::create(options(&targets, 2, memory(), small())).unwrap();
    (0..100).for_each(|n| put(&kv, n, 100).unwrap());
    drop(kv);
    fill(&targets);
    // Opening hangs without the fix. A snapshot may be under way while one target after the other
    // gets space, and drops those that had none: they are tried again.
    let (done, opened) = std::sync::mpsc::channel();
    let retried = JournalLimits { retry: Duration::from_millis(50), ..small() };
    let again = options(&targets, 2, memory(), retried);
    thread::spawn(move || done.send(Journaled::open(again)));
    let kv = opened.recv_timeout(Duration::from_secs(10)).expect("it hangs").unwrap();
    assert_eq!(kv.get(&99u32.to_be_bytes()).unwrap(), Some(vec![7; 100]));
    assert_eq!(put(&kv, 100, 100), Err(KvError::NoSpace));
    until("it notices", || !kv.takes_more(0));
    empty(&targets);
    until("there is space", || put(&kv, 101, 100).is_ok());
    drop(kv);
    let kv = Journaled::open(options(&targets, 2, memory(), small())).unwrap();
    assert!((0..=101).all(|n: u32| kv.get(&n.to_be_bytes()).unwrap().is_some()));
}

#[test]
fn a_snapshot_without_space_leaves_nothing_and_loses_no_mirror() {
    let targets = targets(3);
    let limits = JournalLimits { segment_bytes: 1 << 20, snapshot_bytes: 1 << 20, ..small() };
    let kv = Journaled::create(options(&targets, 2, memory(), limits)).unwrap();
    (0..100).for_each(|n| put(&kv, n, 1000).unwrap());
    // One of the mirrors may be behind: it would get less space than its journal needs.
    until("all have it", || targets.iter().all(|target| target.used() == targets[0].used()));
    // The journal goes on, a snapshot does not fit.
    targets.iter().for_each(|target| target.capacity.store(target.used() + 50_000, Ordering::Relaxed));
    for _ in 0..3 {
        kv.checkpoint().unwrap();
        put(&kv, 200, 100).unwrap();
    }
    let status = kv.status();
    assert_eq!((status.mirrors.len(), status.whole, status.failed.len()), (3, 3, 0), "{status:?}");
    assert_eq!(targets.iter().map(|target| snapshots(target)).collect::<Vec<_>>(), [1, 1, 1]);
    empty(&targets);
    kv.checkpoint().unwrap();
    assert_eq!(kv.status().journal_bytes, 0);
}

/// Those that have no space for it have everything, and take what is committed.
#[test]
fn a_snapshot_that_too_few_have_space_for_loses_no_mirror_either() {
    let targets = targets(3);
    let limits = JournalLimits { segment_bytes: 1 << 20, snapshot_bytes: 1 << 20, ..small() };
    let kv = Journaled::create(options(&targets, 2, memory(), limits)).unwrap();
    (0..100).for_each(|n| put(&kv, n, 1000).unwrap());
    until("all have it", || targets.iter().all(|target| target.used() == targets[0].used()));
    targets[1..].iter().for_each(|target| target.capacity.store(target.used() + 50_000, Ordering::Relaxed));
    for round in 0..3 {
        kv.checkpoint().unwrap();
        put(&kv, 200 + round, 100).unwrap();
    }
    let status = kv.status();
    assert_eq!((status.mirrors.len(), status.whole, status.failed.len()), (3, 3, 0), "{status:?}");
    assert_eq!(targets.iter().map(|target| snapshots(target)).collect::<Vec<_>>(), [1, 1, 1]);
    kv.close().unwrap();
    drop(kv);
    // The one that had space is lost.
    empty(&targets);
    targets[0].dead.store(true, Ordering::Relaxed);
    let kv = Journaled::open(options(&targets, 2, memory(), small())).unwrap();
    assert!((0..100).chain(200..203).all(|n: u32| kv.get(&n.to_be_bytes()).unwrap().is_some()));
}

/// Fills the targets with metadata as far as they take it; everything can be removed then, and
/// gives its space back.
#[test]
fn what_fills_the_targets_can_be_removed() {
    let targets = targets(4);
    targets.iter().for_each(|target| target.capacity.store(600_000, Ordering::Relaxed));
    let kv = Journaled::create(options(&targets, 3, memory(), small())).unwrap();
    for round in 0..3 {
        let mut count = 0;
        until("there is space", || kv.takes_more(0));
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(4) {
            match kv.takes_more(0) {
                true => {
                    put(&kv, count, 1000).unwrap_or_else(|error| panic!("round {round}, {count}: {error}"));
                    count += 1;
                }
                false => thread::sleep(Duration::from_millis(20)),
            }
        }
        assert!(count > 100, "round {round}: {count}");
        assert_eq!(kv.status().mirrors.len(), 4);
        (0..count).for_each(|n| delete(&kv, n).unwrap_or_else(|error| panic!("round {round}, {n}: {error}")));
    }
    drop(kv);
    let kv = Journaled::open(options(&targets, 3, memory(), small())).unwrap();
    assert!(!kv.status().degraded, "{:?}", kv.status());
    until("it takes more", || kv.takes_more(0));
}

#[test]
fn partial_snapshots_are_removed_at_the_opening() {
    let targets = targets(2);
    let kv = Journaled::create(options(&targets, 2, memory(), small())).unwrap();
    (0..20).for_each(|n| put(&kv, n, 100).unwrap());
    drop(kv);
    let whole = targets[0].names().into_iter().find(|file| matches!(file, TargetFile::Snapshot { .. })).unwrap();
    let mut bytes = vec![0; 200];
    let have = targets[0].read_at(whole, 0, &mut bytes).unwrap();
    let partial = [TargetFile::Snapshot { last: TxId(1000) }, TargetFile::Snapshot { last: TxId(1001) }];
    for target in &targets {
        target.write(partial[0], 0, &[std::io::IoSlice::new(&bytes[..have])], Durable::Later).unwrap();
        target.write(partial[1], 0, &[], Durable::Later).unwrap();
    }
    drop(Journaled::open(options(&targets, 2, memory(), small())).unwrap());
    assert!(targets.iter().all(|target| target.names().iter().all(|file| !partial.contains(file))));
}

/// A mirror that is full is replaced by a target with space, and gives back what it had.
#[test]
fn a_full_target_that_is_left_keeps_nothing() {
    let targets = targets(4);
    let kv = Journaled::create(options(&targets, 2, memory(), small())).unwrap();
    (0..20).for_each(|n| put(&kv, n, 100).unwrap());
    fill(&targets[..1]);
    put(&kv, 20, 1000).unwrap();
    put(&kv, 20, 1000).unwrap();
    until("another one takes it", || kv.status().mirrors.iter().any(|id| id.0 == 3) && kv.status().whole == 3);
    // The segment in which it failed has the same number as the next on the others, until there is
    // another one.
    (21..30).for_each(|n| put(&kv, n, 1000).unwrap());
    kv.checkpoint().unwrap();
    assert_eq!(targets[0].names(), []);
    // One without space is not even tried.
    assert_eq!(kv.status().mirrors.len(), 3);
}

/// One mirror more than needed has no space left: a target with space takes its place, though
/// nothing is written, as the metadata may not grow meanwhile.
#[test]
fn a_full_mirror_more_than_needed_is_replaced_before_anything_is_written() {
    let targets = targets(5);
    let kv = Journaled::create(options(&targets, 2, memory(), small())).unwrap();
    (0..20).for_each(|n| put(&kv, n, 100).unwrap());
    until("all have it", || kv.status().whole == 3);
    let first = kv.status().mirrors[0];
    fill(&targets[usize::from(first.0)..][..1]);
    until("another target has the journal", || !kv.status().mirrors.contains(&first) && kv.status().whole == 3);
    until("it takes more", || kv.takes_more(0));
    (20..40).for_each(|n| put(&kv, n, 1000).unwrap());
    // All are full: enough of those that have the journal keep it.
    targets.iter().for_each(|target| target.capacity.store(target.used() + 10_000, Ordering::Relaxed));
    until("it takes no more", || !kv.takes_more(0));
    delete(&kv, 0).unwrap();
    assert!(kv.status().whole >= 2, "{:?}", kv.status());
    drop(kv);
    targets[usize::from(first.0)].dead.store(true, Ordering::Relaxed);
    let kv = Journaled::open(options(&targets, 2, memory(), small())).unwrap();
    assert!((1..40).all(|n: u32| kv.get(&n.to_be_bytes()).unwrap().is_some()));
}
