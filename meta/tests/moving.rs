//! The volume's targets change while the metadata is in use.
#![allow(missing_docs)]

mod common;

use common::{Flaky, Scratch, memory, of_places, options, places, small};
use meta::journal::{JournalLimits, Journaled, MirrorTarget};
use meta::kv::{Batch, Kv, KvError};
use plan::{TargetId, TxId};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use volume::target::{ClaimRequest, Faulty, Target};

fn targets(count: usize) -> Vec<Arc<Flaky>> {
    (0..count).map(|_| Flaky::new()).collect()
}

fn put(kv: &Journaled, number: u64) -> TxId {
    let mut batch = Batch::default();
    batch.put((number % 50).to_be_bytes(), [number.to_be_bytes().to_vec(), vec![7; 100]].concat());
    batch.merge("sum", 1i64.to_le_bytes());
    kv.commit(batch).unwrap().seq
}

fn until(what: &str, reached: impl Fn() -> bool) {
    let begun = Instant::now();
    while !reached() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// How many transactions there are, by the sum of them.
fn sum(kv: &Journaled) -> u64 {
    kv.get(b"sum").unwrap().map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().unwrap()))
}

fn ids(kv: &Journaled) -> Vec<u16> {
    let mut ids: Vec<u16> = kv.status().mirrors.iter().map(|id| id.0).collect();
    ids.sort_unstable();
    ids
}

/// Ends the load, also when what is done under it fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Commits, syncing now and then, while something else is done. Returns how many.
fn under_load(kv: &Journaled, action: impl FnOnce()) -> u64 {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let writers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let mut count = 0;
                    while !stop.load(Ordering::Relaxed) || count < 200 {
                        let seq = put(kv, count);
                        count += 1;
                        if count % 5 == 0 {
                            kv.sync(seq).unwrap();
                        }
                    }
                    count
                })
            })
            .collect();
        let ends = Stop(&stop);
        action();
        drop(ends);
        writers.into_iter().map(|writer| writer.join().unwrap()).sum()
    })
}

fn without(targets: &[Arc<Flaky>], gone: &[usize]) -> Vec<MirrorTarget> {
    places(targets).into_iter().filter(|(id, _)| !gone.contains(&usize::from(id.0))).collect()
}

fn pick(targets: &[Arc<Flaky>], picked: &[usize]) -> Vec<Arc<Flaky>> {
    picked.iter().map(|&number| targets[number].clone()).collect()
}

#[test]
fn mirrors_are_emptied_under_load_and_each_new_one_has_everything() {
    for gone in [vec![0], vec![2, 1], vec![0, 1, 2]] {
        let targets = targets(6);
        let kv = Journaled::create(options(&targets, 3, memory(), small())).unwrap();
        let count = under_load(&kv, || kv.set_targets(without(&targets, &gone)).unwrap());
        assert!(!kv.status().degraded && kv.status().failed.is_empty(), "{:?}", kv.status());
        gone.iter().for_each(|&number| assert_eq!(targets[number].names(), [], "{gone:?}"));
        until("all are whole", || kv.status().whole == 4.min(6 - gone.len()));
        kv.close().unwrap();
        let mirrors = ids(&kv);
        drop(kv);
        for mirror in mirrors {
            let alone = pick(&targets, &[usize::from(mirror)]);
            let kv = Journaled::open(options(&[alone[0].copy()], 1, memory(), small())).unwrap();
            assert_eq!(sum(&kv), count, "{gone:?}, {mirror} alone");
        }
    }
}

#[test]
fn a_mirror_stays_while_too_few_others_have_everything() {
    let targets = targets(4);
    let patient = JournalLimits { retry: Duration::from_millis(50), deadline: Duration::from_secs(20), ..small() };
    let kv = Journaled::create(options(&targets, 2, memory(), patient)).unwrap();
    let dead = |dead| targets[1..3].iter().for_each(|target| target.dead.store(dead, Ordering::Relaxed));
    dead(true);
    kv.sync(put(&kv, 1)).unwrap();
    until("the spare target takes over", || ids(&kv) == [0, 3] && kv.status().whole == 2);
    kv.set_targets(without(&targets, &[3])).unwrap_err();
    kv.sync(put(&kv, 2)).unwrap();
    assert_ne!(targets[3].names(), []);
    dead(false);
    until("the others are back", || kv.set_targets(without(&targets, &[3])).is_ok());
    assert_eq!(targets[3].names(), []);
    kv.close().unwrap();
    drop(kv);
    let kv = Journaled::open(options(&targets[..3], 2, memory(), small())).unwrap();
    assert_eq!(sum(&kv), 2);
}

#[test]
fn back_and_forth_loses_nothing() {
    let targets = targets(4);
    let kv = Journaled::create(options(&targets, 2, memory(), small())).unwrap();
    let count = under_load(&kv, || {
        for round in 0..12 {
            kv.set_targets(without(&targets, &[round % 4, (round / 2) % 4])).unwrap();
            kv.set_targets(places(&targets)).unwrap();
        }
    });
    until("all are whole", || kv.status().whole == 3);
    kv.close().unwrap();
    drop(kv);
    // Whichever target is lost.
    for lost in 0..4 {
        let left: Vec<Arc<Flaky>> =
            (0..4).filter(|number| *number != lost).map(|number| targets[number].copy()).collect();
        let mut options = options(&left, 2, memory(), small());
        let numbers = (0..4).filter(|number| *number != lost).map(|number| TargetId(number as u16));
        options.targets = numbers.zip(options.targets.into_iter().map(|(_, target)| target)).collect();
        options.voters = (0..4).map(TargetId).collect();
        assert_eq!(sum(&Journaled::open(options).unwrap()), count, "without {lost}");
    }
}

#[test]
fn a_crash_in_a_move_loses_nothing_that_was_synced() {
    for seed in 0..40 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let targets = targets(4);
        let kv = Journaled::create(options(&targets[..2], 2, memory(), small())).unwrap();
        let (mut synced, mut crashed) = (TxId(0), Vec::new());
        under_load(&kv, || {
            thread::scope(|scope| {
                let moving = scope.spawn(|| kv.set_targets(without(&targets, &[0])).unwrap());
                thread::sleep(std::time::Duration::from_micros(rng.u64(0..8000)));
                synced = kv.status().durable;
                // The one that stays has everything at any time; the others may be caught at
                // different times.
                crashed = targets.iter().map(|target| target.copy()).collect();
                moving.join().unwrap();
            });
        });
        crashed.iter().for_each(|target| target.crash(&mut rng));
        // The volume has the targets that counted before the journal moved.
        let mut options = options(&crashed, 2, memory(), small());
        let counted =
            |id: &TargetId| crashed[usize::from(id.0)].claims.claim(&ClaimRequest::Read).unwrap().proof().is_some();
        options.voters.retain(counted);
        let kv = Journaled::open(options).unwrap_or_else(|e| panic!("{seed}: {e}"));
        assert!(kv.status().committed >= synced && sum(&kv) == kv.status().committed.0, "{seed}: {:?}", kv.status());
    }
}

#[test]
fn a_dead_mirror_is_left() {
    let targets = targets(4);
    let kv = Journaled::create(options(&targets[..3], 2, memory(), small())).unwrap();
    targets[1].dead.store(true, Ordering::Relaxed);
    kv.sync(put(&kv, 1)).unwrap();
    kv.set_targets(without(&targets, &[1])).unwrap();
    until("the new one is whole", || kv.status().whole == 3);
    assert_eq!((ids(&kv), kv.status().degraded), (vec![0, 2, 3], false));
    assert_eq!(kv.status().failed, []);
}

#[test]
fn a_new_target_is_used_when_mirrors_are_lacking() {
    let targets = targets(3);
    let kv = Journaled::create(options(&targets[..2], 2, memory(), small())).unwrap();
    let mut count = under_load(&kv, || {});
    assert_eq!(kv.status().whole, 2);
    count += under_load(&kv, || kv.set_targets(places(&targets)).unwrap());
    until("the new one is whole", || kv.status().whole == 3);
    kv.close().unwrap();
    drop(kv);
    let kv = Journaled::open(options(&[targets[2].copy()], 1, memory(), small())).unwrap();
    assert_eq!(sum(&kv), count);
}

#[test]
fn a_failed_target_that_comes_back_is_new_only_when_it_is_opened_anew() {
    let mut targets = targets(3);
    let kv = Journaled::create(options(&targets, 2, memory(), small())).unwrap();
    targets[0].dead.store(true, Ordering::Relaxed);
    kv.sync(put(&kv, 1)).unwrap();
    until("it is noticed", || ids(&kv) == [1, 2]);
    targets[0].dead.store(false, Ordering::Relaxed);
    kv.set_targets(places(&targets)).unwrap();
    assert_eq!((ids(&kv), kv.status().whole), (vec![1, 2], 2));
    targets[0] = targets[0].copy();
    kv.set_targets(places(&targets)).unwrap();
    until("the new one is whole", || kv.status().whole == 3);
    assert_eq!((ids(&kv), kv.status().failed), (vec![0, 1, 2], vec![]));
    kv.close().unwrap();
    drop(kv);
    let kv = Journaled::open(options(&targets[..1], 1, memory(), small())).unwrap();
    assert_eq!(sum(&kv), 1);
}

#[test]
fn the_same_directories_opened_anew_keep_everything() {
    let scratch = Scratch::new();
    for mirrors in [1, 2] {
        let name = |id: u16| format!("{mirrors}.{id}");
        let disks: Vec<MirrorTarget> = (0..2).map(|id| (TargetId(id), scratch.disk(&name(id)))).collect();
        let again = || -> Vec<MirrorTarget> {
            let open = |(id, disk): &MirrorTarget| (*id, Arc::new(Faulty::new(disk.clone())) as Arc<dyn Target>);
            disks.iter().map(open).collect()
        };
        let limits = JournalLimits { deadline: JournalLimits::default().deadline, ..small() };
        let kv = Journaled::create(of_places(disks.clone(), mirrors, memory(), limits)).unwrap();
        let count = under_load(&kv, || (0..5).for_each(|_| kv.set_targets(again()).unwrap()));
        kv.set_targets(again()).unwrap();
        kv.close().unwrap();
        drop(kv);
        let second = of_places(again(), mirrors, memory(), small());
        assert_eq!(sum(&Journaled::open(second).unwrap()), count);
    }
}

#[test]
fn targets_that_do_not_take_it_change_nothing() {
    let targets = targets(4);
    let kv = Journaled::create(options(&targets[..2], 2, memory(), small())).unwrap();
    targets[2].dead.store(true, Ordering::Relaxed);
    targets[3].writes_left.store(2, Ordering::Relaxed);
    for gone in [[0, 3], [1, 2]] {
        let moved = kv.set_targets(without(&targets, &gone));
        assert!(matches!(moved, Err(KvError::Unavailable(_))), "{moved:?}");
        kv.sync(put(&kv, 1)).unwrap();
        assert_eq!((ids(&kv), kv.status().degraded, kv.status().failed), (vec![0, 1], false, vec![]));
    }
    assert!(matches!(kv.set_targets(Vec::new()), Err(KvError::Invalid(_))));
    assert!(matches!(kv.set_targets([places(&targets), places(&targets)].concat()), Err(KvError::Invalid(_))));
    drop(kv);
    for number in 0..2 {
        let kv = Journaled::open(options(&pick(&targets, &[number])[..], 1, memory(), small())).unwrap();
        assert_eq!(sum(&kv), 2);
        drop(kv);
    }
}

#[test]
fn a_new_target_that_fails_is_passed_over() {
    for after in 0..6 {
        let targets = targets(4);
        let kv = Journaled::create(options(&targets[..2], 2, memory(), small())).unwrap();
        targets[2].writes_left.store(after, Ordering::Relaxed);
        let count = under_load(&kv, || kv.set_targets(without(&targets, &[0])).unwrap());
        until("a sound one is whole", || ids(&kv).contains(&3) && kv.status().whole >= 2);
        assert!(ids(&kv).contains(&1) && !ids(&kv).contains(&0) && sum(&kv) == count, "{:?}", kv.status());
    }
}

#[test]
fn with_all_mirrors_failing_at_once_the_spare_targets_take_over() {
    let targets = targets(4);
    let kv = Journaled::create(options(&targets, 2, memory(), small())).unwrap();
    targets[..2].iter().for_each(|target| target.dead.store(true, Ordering::Relaxed));
    let count = under_load(&kv, || {});
    until("the spare one is whole", || ids(&kv) == [2, 3] && !kv.status().degraded);
    kv.close().unwrap();
    drop(kv);
    let kv = Journaled::open(options(&[targets[3].copy()], 1, memory(), small())).unwrap();
    assert_eq!(sum(&kv), count);
}

#[test]
fn a_closed_engine_can_be_closed_again_and_neither_reads_nor_commits() {
    let targets = targets(3);
    let kv = Arc::new(Journaled::create(options(&targets, 2, memory(), small())).unwrap());
    put(&kv, 1);
    kv.close().unwrap();
    kv.close().unwrap();
    assert_eq!(kv.status().durable, TxId(1));
    assert!(matches!(kv.get(b"sum"), Err(KvError::Unavailable(_))));
    let mut batch = Batch::default();
    assert!(matches!(kv.commit(batch.put("a", "b").clone()), Err(KvError::Unavailable(_))));
    assert!(matches!(kv.set_targets(places(&targets)), Err(KvError::Unavailable(_))));
}
