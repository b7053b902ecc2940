//! Mirrors that fail and come back while the engine runs.
#![allow(missing_docs)]

mod common;

use common::{Flaky, memory, options, small};
use meta::journal::{JournalLimits, Journaled};
use meta::kv::{Batch, Kv, KvError};
use plan::TxId;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

fn targets(count: usize) -> Vec<Arc<Flaky>> {
    (0..count).map(|_| Flaky::new()).collect()
}

fn soon() -> JournalLimits {
    JournalLimits { retry: Duration::from_millis(20), ..small() }
}

fn add(kv: &Journaled) {
    let mut batch = Batch::default();
    batch.put(b"padding", vec![7; 100]);
    batch.merge("sum", 1i64.to_le_bytes());
    kv.sync(kv.commit(batch).unwrap().seq).unwrap();
}

fn sum(kv: &Journaled) -> u64 {
    kv.get(b"sum").unwrap().map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().unwrap()))
}

/// A target alone has everything.
fn assert_alone(target: &Flaky, count: u64) {
    let kv = Journaled::open(options(&[target.copy()], 1, memory(), small())).unwrap();
    assert_eq!(sum(&kv), count);
}

fn until(what: &str, reached: impl Fn() -> bool) {
    let begun = Instant::now();
    while !reached() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_mirror_that_comes_back_has_everything_again() {
    let targets = targets(3);
    let kv = Journaled::create(options(&targets, 2, memory(), soon())).unwrap();
    add(&kv);
    targets[0].dead.store(true, Ordering::Relaxed);
    (0..50).for_each(|_| add(&kv));
    until("it is noticed", || kv.status().mirrors.len() == 2);
    let status = kv.status();
    assert_eq!((status.whole, status.degraded, status.failed.len()), (2, false, 1));
    targets[0].dead.store(false, Ordering::Relaxed);
    // Nobody writes meanwhile.
    until("it comes back", || kv.status().whole == 3);
    assert_eq!(kv.status().failed, []);
    (0..50).for_each(|_| add(&kv));
    kv.close().unwrap();
    targets.iter().for_each(|target| assert_alone(target, 101));
}

/// What went wrong is trouble as long as it matters, and remains known as the last error.
#[test]
fn trouble_that_was_mended_is_not_listed() {
    let targets = targets(3);
    let kv = Journaled::create(options(&targets, 2, memory(), soon())).unwrap();
    add(&kv);
    assert_eq!((kv.status().trouble, kv.status().last_error), (None, None));
    targets[..2].iter().for_each(|target| target.dead.store(true, Ordering::Relaxed));
    let mut batch = Batch::default();
    batch.merge("sum", 1i64.to_le_bytes());
    let seq = kv.commit(batch).unwrap().seq;
    kv.sync(seq).unwrap_err();
    until("it is trouble", || kv.status().trouble.is_some() && kv.status().degraded);
    targets[..2].iter().for_each(|target| target.dead.store(false, Ordering::Relaxed));
    until("all have it again", || kv.status().whole == 3 && kv.sync(seq).is_ok());
    let status = kv.status();
    assert_eq!((status.trouble, status.degraded), (None, false));
    assert!(status.last_error.is_some());
    assert_eq!(sum(&kv), 2);
}

#[test]
fn one_after_the_other_may_fail() {
    let targets = targets(4);
    let kv = Journaled::create(options(&targets, 2, memory(), soon())).unwrap();
    let mut count = 0;
    for round in 0..12 {
        let bad = &targets[round % 4];
        bad.dead.store(true, Ordering::Relaxed);
        (0..10).for_each(|_| add(&kv));
        count += 10;
        bad.dead.store(false, Ordering::Relaxed);
        until("three are whole", || kv.status().whole == 3);
    }
    drop(kv);
    let kv = Journaled::open(options(&targets, 2, memory(), small())).unwrap();
    assert_eq!(sum(&kv), count);
}

#[test]
fn one_that_goes_on_failing_does_no_harm() {
    let targets = targets(3);
    let kv = Journaled::create(options(&targets, 2, memory(), soon())).unwrap();
    let added = Cell::new(0);
    for _ in 0..5 {
        // It answers, and then takes no journal or no snapshot.
        targets[1].writes_left.store(fastrand::i64(0..5), Ordering::Relaxed);
        until("it fails", || {
            add(&kv);
            added.set(added.get() + 1);
            targets[1].dead.load(Ordering::Relaxed)
        });
        targets[1].dead.store(false, Ordering::Relaxed);
        kv.retry();
    }
    targets[1].writes_left.store(-1, Ordering::Relaxed);
    targets[1].dead.store(false, Ordering::Relaxed);
    kv.retry();
    until("it comes back", || kv.status().whole == 3);
    kv.close().unwrap();
    targets.iter().for_each(|target| assert_alone(target, added.get()));
}

#[test]
fn one_that_hangs_comes_back_when_it_is_done_and_holds_up_nobody() {
    let targets = targets(3);
    let kv = Journaled::create(options(&targets, 2, memory(), soon())).unwrap();
    targets[0].hang.store(true, Ordering::Relaxed);
    let added = Cell::new(0);
    until("it is dropped", || {
        add(&kv);
        added.set(added.get() + 1);
        kv.status().mirrors.len() == 2
    });
    targets[0].hang.store(false, Ordering::Relaxed);
    until("it comes back", || kv.status().whole == 3);
    (0..10).for_each(|_| add(&kv));
    kv.close().unwrap();
    targets.iter().for_each(|target| assert_alone(target, added.get() + 10));
}

#[test]
fn it_is_tried_at_once_when_somebody_asks() {
    let targets = targets(3);
    let kv = Journaled::create(options(&targets, 2, memory(), small())).unwrap();
    targets[0].dead.store(true, Ordering::Relaxed);
    add(&kv);
    until("it is noticed", || kv.status().mirrors.len() == 2);
    targets[0].dead.store(false, Ordering::Relaxed);
    thread::sleep(Duration::from_millis(700));
    assert_eq!(kv.status().whole, 2);
    kv.retry();
    until("it comes back", || kv.status().whole == 3);
}

#[test]
fn it_goes_on_when_all_were_away_and_enough_are_back() {
    for away in 0..3 {
        let targets = targets(3);
        let kv = Journaled::create(options(&targets, 2, memory(), soon())).unwrap();
        (0..20).for_each(|_| add(&kv));
        targets.iter().for_each(|target| target.dead.store(true, Ordering::Relaxed));
        let mut batch = Batch::default();
        batch.merge("sum", 1i64.to_le_bytes());
        let seq = kv.commit(batch).unwrap().seq;
        assert!(matches!(kv.sync(seq), Err(KvError::Unavailable(_))));
        let back = |number: usize| targets[number].dead.store(false, Ordering::Relaxed);
        back((away + 1) % 3);
        thread::sleep(Duration::from_millis(300));
        assert!(kv.status().durable < seq && kv.sync(seq).is_err(), "one mirror is not enough");
        back((away + 2) % 3);
        until("it goes on", || kv.sync(seq).is_ok());
        (0..20).for_each(|_| add(&kv));
        back(away);
        until("the last is back", || kv.status().whole == 3);
        kv.close().unwrap();
        drop(kv);
        targets.iter().for_each(|target| assert_alone(target, 41));
    }
}

/// While all are away, commits are refused in the end; no accepted one is lost.
#[test]
fn what_was_committed_when_all_went_away_is_there_when_they_are_back() {
    let targets = targets(2);
    let kv = Journaled::create(options(&targets, 2, memory(), soon())).unwrap();
    targets.iter().for_each(|target| target.dead.store(true, Ordering::Relaxed));
    let (begun, mut count) = (Instant::now(), 0);
    loop {
        let mut batch = Batch::default();
        batch.put(b"padding", vec![7; 1000]);
        batch.merge("sum", 1i64.to_le_bytes());
        match kv.commit(batch) {
            Ok(_) => count += 1,
            Err(why) => break assert!(matches!(why, KvError::Unavailable(_)), "{why}"),
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{count} transactions wait");
    }
    targets.iter().for_each(|target| target.dead.store(false, Ordering::Relaxed));
    until("it goes on", || kv.sync(TxId::MAX).is_ok());
    add(&kv);
    until("it is whole", || !kv.status().degraded);
    kv.close().unwrap();
    drop(kv);
    targets.iter().for_each(|target| assert_alone(target, count + 1));
}

#[test]
fn all_fail_in_the_middle_of_writes_and_come_back_and_then_the_power_fails() {
    for seed in 0..6 {
        let mut random = fastrand::Rng::with_seed(seed);
        let targets = targets(3);
        let kv = Journaled::create(options(&targets, 2, memory(), soon())).unwrap();
        let (mut committed, mut synced) = (0, 0);
        let mut one_more = |synced: &mut u64| {
            let mut batch = Batch::default();
            batch.put(b"padding", vec![7; 500]);
            batch.merge("sum", 1i64.to_le_bytes());
            let Ok(done) = kv.commit(batch) else { return false };
            committed += 1;
            let durable = kv.sync(done.seq).is_ok();
            if durable {
                *synced = committed;
            }
            durable
        };
        for _ in 0..6 {
            targets.iter().for_each(|target| target.writes_left.store(random.i64(0..8), Ordering::Relaxed));
            (0..10).for_each(|_| _ = one_more(&mut synced));
            targets.iter().for_each(|target| target.dead.store(true, Ordering::Relaxed));
            _ = one_more(&mut synced);
            targets.iter().for_each(|target| target.writes_left.store(-1, Ordering::Relaxed));
            // In any order, and not all of them before it goes on.
            let away = random.usize(..3);
            (0..3).filter(|&n| n != away).for_each(|n| targets[n].dead.store(false, Ordering::Relaxed));
            let begun = Instant::now();
            while !one_more(&mut synced) {
                assert!(begun.elapsed() < Duration::from_secs(20), "seed {seed}: it does not go on: {:?}", kv.status());
                thread::sleep(Duration::from_millis(50));
            }
            targets.iter().for_each(|target| target.dead.store(false, Ordering::Relaxed));
            if random.bool() {
                until("it is whole", || !kv.status().degraded);
            }
        }
        drop(kv);
        targets.iter().for_each(|target| target.crash(&mut random));
        let kv =
            Journaled::open(options(&targets, 2, memory(), small())).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        assert!((synced..=committed).contains(&sum(&kv)), "seed {seed}: {synced}, {}, {committed}", sum(&kv));
    }
}
