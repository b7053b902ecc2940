//! What was synced survives: crashes, lost mirrors, failing mirrors, damaged and foreign files.
#![allow(missing_docs)]

mod common;

use common::{Flaky, Scratch, memory, options, redb, small};
use meta::journal::{JournalLimits, Journaled, Options, Status};
use meta::kv::{Batch, Index, Kv, KvError, RedbIndex};
use meta::{Meta, Time};
use plan::{Ino, TargetId, TxId};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use volume::target::{ClaimRequest, Lease, Target, TargetFile};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn targets(count: usize) -> Vec<Arc<Flaky>> {
    (0..count).map(|_| Flaky::new()).collect()
}

fn contents(kv: &Journaled) -> Model {
    let mut all = Model::new();
    kv.snapshot(&mut |key, value| {
        all.insert(key.to_vec(), value.to_vec());
        Ok(true)
    })
    .unwrap();
    all
}

fn put(kv: &Journaled, number: u64) -> TxId {
    let mut batch = Batch::default();
    batch.put((number % 50).to_be_bytes(), [number.to_be_bytes().to_vec(), vec![7; 100]].concat());
    batch.merge("sum", 1i64.to_le_bytes());
    kv.commit(batch).unwrap().seq
}

fn wait_until(what: &str, kv: &Journaled, reached: impl Fn(&Status) -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !reached(&kv.status()) {
        assert!(Instant::now() < end, "{what}: {:?}", kv.status());
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn quiet() -> JournalLimits {
    JournalLimits { snapshot_bytes: 1 << 30, overlay_bytes: 1 << 30, delay: Duration::from_secs(60), ..small() }
}

/// The states after every transaction, and the last that was synced.
struct History {
    states: Vec<Model>,
    synced: TxId,
}

fn work(kv: &Journaled, history: &mut History, rng: &mut fastrand::Rng) {
    for _ in 0..rng.usize(0..200) {
        let mut model = history.states.last().unwrap().clone();
        let mut batch = Batch::default();
        for _ in 0..rng.usize(1..5) {
            let key = vec![rng.u8(0..40)];
            if rng.u8(0..4) == 0 {
                model.remove(&key);
                batch.delete(key);
            } else {
                let value = vec![rng.u8(..); rng.usize(0..300)];
                model.insert(key.clone(), value.clone());
                batch.put(key, value);
            }
        }
        let seq = kv.commit(batch).unwrap().seq;
        history.states.push(model);
        assert_eq!(seq.0 as usize, history.states.len() - 1);
        match rng.u8(0..20) {
            0..4 => {
                kv.sync(seq).unwrap();
                history.synced = seq;
            }
            4 => std::thread::sleep(Duration::from_millis(rng.u64(0..8))),
            5 if rng.u8(0..4) == 0 => kv.checkpoint().unwrap(),
            _ => {}
        }
    }
}

fn crash_and_reopen(seed: u64, index: &dyn Fn() -> Box<dyn Index>, forget_index: &dyn Fn()) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut targets = targets(5);
    let mut kv = Journaled::create(options(&targets, 3, index(), small())).unwrap();
    let mut history = History { states: vec![Model::new()], synced: TxId(0) };
    for round in 0..6 {
        let lose = rng.bool();
        if lose {
            wait_until("all are whole", &kv, |status| status.whole == 4);
        }
        work(&kv, &mut history, &mut rng);
        let mut mirrors = kv.status().mirrors;
        drop(kv);
        for target in &targets {
            target.crash(&mut rng);
        }
        if lose {
            rng.shuffle(&mut mirrors);
            for TargetId(id) in mirrors.into_iter().take(2) {
                targets[usize::from(id)] = Flaky::new();
            }
        }
        if rng.bool() {
            forget_index();
        }
        kv = Journaled::open(options(&targets, 3, index(), small()))
            .unwrap_or_else(|error| panic!("seed {seed} round {round}: {error}"));
        let last = kv.status().committed;
        assert!(last >= history.synced, "seed {seed} round {round}: {last} of {}", history.synced);
        assert_eq!(contents(&kv), history.states[last.0 as usize], "seed {seed} round {round} at {last}");
        history.states.truncate(last.0 as usize + 1);
        // An opening saw it, and what an opening saw stays.
        history.synced = last;
    }
    kv.close().unwrap();
}

#[test]
fn a_crash_loses_nothing_that_was_synced_and_mixes_nothing() {
    for seed in 0..60 {
        crash_and_reopen(seed, &memory, &|| {});
    }
}

#[test]
fn a_crash_with_an_index_on_disk() {
    for seed in 100..120 {
        let scratch = Scratch::new();
        let path = scratch.0.join("index");
        crash_and_reopen(seed, &|| redb(&path), &|| std::fs::remove_file(&path).unwrap());
    }
}

/// A process ended when it had written the last frame of a snapshot and not synced it. The next
/// opening reads that, and takes the snapshot for complete. `cargo xtask simulate --failovers 1
/// --seed 60040` found it.
#[test]
fn what_an_opening_takes_for_complete_is_durable() {
    let targets = targets(3);
    let kv = Journaled::create(options(&targets, 3, memory(), quiet())).unwrap();
    let last = (0..20).map(|number| put(&kv, number)).last().unwrap();
    kv.sync(last).unwrap();
    kv.checkpoint().unwrap();
    let before = contents(&kv);
    kv.close().unwrap();
    drop(kv);
    for target in &targets {
        let files = target.list().unwrap().into_iter().map(|(file, _)| file);
        let snapshots: Vec<_> = files.filter(|file| matches!(file, TargetFile::Snapshot { .. })).collect();
        assert!(!snapshots.is_empty());
        snapshots.into_iter().for_each(|file| target.unsync(file, 64));
    }
    drop(Journaled::open(options(&targets, 3, memory(), quiet())).unwrap());
    targets.iter().for_each(|target| target.lose_unsynced());
    let kv = Journaled::open(options(&targets, 3, memory(), quiet())).unwrap();
    assert_eq!(contents(&kv), before);
}

/// A request may still be under way in a server that has given the volume away. `cargo xtask
/// simulate --failovers 1 --seed 350018` found it.
#[test]
fn a_closed_engine_answers_nothing_that_may_be_old() {
    for lease in [None, Some(Duration::from_secs(3600))] {
        let targets = targets(3);
        let options = || Options { lease, ..options(&targets, 3, memory(), quiet()) };
        let earlier = Journaled::create(options()).unwrap();
        earlier.sync(put(&earlier, 1)).unwrap();
        earlier.close().unwrap();
        let later = Journaled::open(options()).unwrap();
        later.sync(put(&later, 2)).unwrap();
        assert!(later.get(b"sum").unwrap().is_some());
        assert!(matches!(earlier.get(b"sum"), Err(KvError::Unavailable(_))), "{lease:?}");
        assert!(earlier.snapshot(&mut |_, _| Ok(true)).is_err());
    }
}

#[test]
fn the_local_wal_outlives_an_opening_that_fails_behind_its_barrier() {
    let (scratch, targets) = (Scratch::new(), targets(3));
    let wal = scratch.0.join("wal");
    let options = || Options { local_wal: Some(wal.clone()), ..options(&targets, 2, memory(), quiet()) };
    let all = |dead| targets.iter().for_each(|target| target.dead.store(dead, Ordering::Relaxed));
    let kv = Journaled::create(options()).unwrap();
    kv.keep_local_wal(&wal).unwrap();
    kv.sync(put(&kv, 1)).unwrap();
    wait_until("all have it", &kv, |_| targets.iter().all(|target| target.used() == targets[0].used()));
    put(&kv, 2);
    // As if it were killed.
    all(true);
    drop(kv);
    all(false);
    targets[1..].iter().for_each(|target| target.writes_left.store(0, Ordering::Relaxed));
    assert!(Journaled::open(options()).is_err(), "the barrier is durable on one target");
    all(false);
    targets.iter().for_each(|target| target.writes_left.store(-1, Ordering::Relaxed));
    let kv = Journaled::open(options()).unwrap();
    kv.keep_local_wal(&wal).unwrap();
    assert_eq!(kv.get(b"sum").unwrap(), Some(2i64.to_le_bytes().to_vec()));
}

/// A client may know a number for longer than a crash lets its file exist, and must not find
/// another file under it.
#[test]
fn numbers_of_files_are_not_given_out_again_after_a_crash() {
    let (targets, mut rng, mut last) = (targets(2), fastrand::Rng::with_seed(1), Ino(0));
    for round in 0..3 {
        let options = Options { merge: meta::MERGE, ..options(&targets, 2, memory(), quiet()) };
        let kv = if round == 0 { Journaled::create(options) } else { Journaled::open(options) };
        let meta = Meta::open(Arc::new(kv.unwrap()), (0, 0), Time::default()).unwrap();
        let given = meta.new_inos(3).unwrap();
        assert!(given > last, "{given} after {last}");
        last = given.plus(2);
        targets.iter().for_each(|target| target.dead.store(true, Ordering::Relaxed));
        drop(meta);
        for target in &targets {
            target.dead.store(false, Ordering::Relaxed);
            target.crash(&mut rng);
        }
    }
}

fn filled(targets: &[Arc<Flaky>], index: Box<dyn Index>, limits: JournalLimits) -> (Model, TxId) {
    let kv = Journaled::create(options(targets, 3, index, limits)).unwrap();
    let mut last = TxId(0);
    for number in 0..300 {
        last = put(&kv, number);
        // Later records say then that earlier ones were durable.
        if number % 20 == 0 {
            kv.sync(last).unwrap();
        }
    }
    kv.sync(last).unwrap();
    (contents(&kv), last)
}

#[test]
fn any_mirror_alone_has_everything_with_and_without_the_index() {
    for limits in [small(), quiet()] {
        for keep in 0..3 {
            for forget in [true, false] {
                let scratch = Scratch::new();
                let path = scratch.0.join("index");
                let mut targets = targets(3);
                let (model, last) = filled(&targets, redb(&path), limits);
                let kept = vec![targets.remove(keep)];
                if forget {
                    std::fs::remove_file(&path).unwrap();
                }
                let kv = Journaled::open(options(&kept, 1, redb(&path), limits)).unwrap();
                assert_eq!((contents(&kv), kv.status().committed), (model.clone(), last));
            }
        }
    }
}

#[test]
fn with_all_mirrors_gone_nothing_is_opened_silently() {
    let mut all = targets(4);
    filled(&all, memory(), small());
    all[..3].iter_mut().for_each(|target| *target = Flaky::new());
    let opened = Journaled::open(options(&all, 3, memory(), small()));
    assert!(matches!(&opened, Err(KvError::TooFew(why)) if why.contains("target 1: it is new")), "{opened:?}");
}

#[test]
fn a_mirror_that_fails_is_replaced_and_the_volume_is_whole_again() {
    for failing in 0..3 {
        for after in [0, 1, 7] {
            let targets = targets(5);
            let kv = Journaled::create(options(&targets, 3, memory(), small())).unwrap();
            targets[failing].writes_left.store(after, Ordering::Relaxed);
            for number in 0..300 {
                let seq = put(&kv, number);
                if number % 7 == 0 {
                    kv.sync(seq).unwrap();
                }
            }
            kv.sync(TxId::MAX).unwrap();
            wait_until("the spare target is whole", &kv, |status| {
                status.mirrors.contains(&TargetId(4)) && status.whole == 4
            });
            let status = kv.status();
            assert_eq!((status.mirrors.len(), status.failed.len()), (4, 1), "{status:?}");
            let model = contents(&kv);
            kv.close().unwrap();
            drop(kv);
            let kv = Journaled::open(options(&[targets[4].copy()], 1, memory(), small())).unwrap();
            assert_eq!(contents(&kv), model);
        }
    }
}

#[test]
fn with_fewer_mirrors_than_may_be_lost_and_one_nothing_is_durable() {
    let targets = targets(3);
    let kv = Journaled::create(options(&targets, 2, memory(), small())).unwrap();
    targets[0].dead.store(true, Ordering::Relaxed);
    kv.sync(put(&kv, 1)).unwrap();
    wait_until("it is noticed", &kv, |status| status.whole == 2 && status.last_error.is_some());
    targets[1].dead.store(true, Ordering::Relaxed);
    let seq = put(&kv, 2);
    assert!(matches!(kv.sync(seq), Err(KvError::Unavailable(_))));
    assert!(matches!(kv.commit(Batch::of(vec![])), Err(KvError::Unavailable(_))));
    assert!(kv.sync(seq).is_err());
    assert!(matches!(kv.close(), Err(KvError::Unavailable(_))));
}

/// As a metadata server that could not close the volume and stands by: somebody still holds what
/// was open.
#[test]
fn an_engine_that_could_not_be_closed_releases_its_index() {
    let (scratch, targets) = (Scratch::new(), targets(3));
    let path = scratch.0.join("index");
    let kv = Journaled::create(options(&targets, 2, redb(&path), small())).unwrap();
    targets.iter().for_each(|target| target.dead.store(true, Ordering::Relaxed));
    put(&kv, 1);
    assert!(kv.close().is_err());
    assert!(RedbIndex::open(&path).is_err(), "it is open");
    kv.release();
    let index = RedbIndex::open(&path).unwrap();
    // What no change names is read from the index.
    assert!(kv.get(b"no such key").is_err() && kv.check_fresh().is_err() && kv.commit(Batch::default()).is_err());
    kv.release();
    drop(kv);
    index.clear().unwrap();
}

#[test]
fn a_mirror_that_hangs_delays_nobody() {
    let targets = targets(4);
    let kv = Journaled::create(options(&targets, 3, memory(), small())).unwrap();
    targets[1].hang.store(true, Ordering::Relaxed);
    kv.sync(put(&kv, 1)).unwrap();
    assert!(kv.status().failed.is_empty() || kv.status().whole == 3, "{:?}", kv.status());
    targets[1].hang.store(false, Ordering::Relaxed);
}

/// The next server can open the volume without it.
#[test]
fn a_target_that_hangs_does_not_delay_the_return_of_the_claim() {
    let targets = targets(4);
    let limits = JournalLimits { deadline: Duration::from_secs(3600), ..quiet() };
    let kv = Journaled::create(options(&targets, 2, memory(), limits)).unwrap();
    kv.sync(put(&kv, 1)).unwrap();
    // It is no mirror.
    assert_eq!(kv.status().mirrors, [TargetId(0), TargetId(1), TargetId(2)]);
    targets[3].hang.store(true, Ordering::Relaxed);
    let (closed, closes) = std::sync::mpsc::channel();
    std::thread::spawn(move || closed.send(kv.close()));
    closes.recv_timeout(Duration::from_secs(120)).expect("it waits for the target that hangs").unwrap();
    let is_released = |target: &Flaky| target.claims.claim(&ClaimRequest::Read).unwrap().lease == Lease::Released;
    assert!(targets[..3].iter().all(|target| is_released(target)));
    targets[3].hang.store(false, Ordering::Relaxed);
    let begun = Instant::now();
    while !is_released(&targets[3]) {
        assert!(begun.elapsed() < Duration::from_secs(60), "it is not released later");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Three of four are enough: the fourth has less work, and one that is slow becomes the fourth.
#[test]
fn the_mirror_that_is_slow_gets_many_batches_in_one_write() {
    let targets = targets(4);
    let limits = JournalLimits { segment_bytes: 1 << 20, deadline: Duration::from_secs(60), ..quiet() };
    let kv = Journaled::create(options(&targets, 3, memory(), limits)).unwrap();
    kv.sync(put(&kv, 0)).unwrap();
    for slow in &targets {
        let before = slow.syncs.load(Ordering::Relaxed);
        slow.hang.store(true, Ordering::Relaxed);
        (1..=60).for_each(|number| kv.sync(put(&kv, number)).unwrap());
        slow.hang.store(false, Ordering::Relaxed);
        // The next slow one is not the only one that is behind.
        let caught_up = Instant::now();
        while slow.used() < targets.iter().map(|target| target.used()).max().unwrap() {
            assert!(caught_up.elapsed() < Duration::from_secs(60), "it does not catch up");
            std::thread::sleep(Duration::from_millis(2));
        }
        let syncs = slow.syncs.load(Ordering::Relaxed) - before;
        assert!(syncs < 20, "{syncs} syncs for 60 batches");
    }
    let status = kv.status();
    assert!(status.failed.is_empty() && status.whole == 4, "{status:?}");
    kv.close().unwrap();
    assert!(targets.windows(2).all(|pair| pair[0].used() == pair[1].used()));
}

fn segments(target: &Flaky) -> Vec<TargetFile> {
    target.names().into_iter().filter(|name| matches!(name, TargetFile::Journal { .. })).collect()
}

#[test]
fn damage_in_the_middle_of_two_mirrors_is_read_from_the_third_and_mended() {
    let targets = targets(3);
    let (model, _) = filled(&targets, memory(), quiet());
    for (number, target) in targets[..2].iter().enumerate() {
        for file in segments(target) {
            // Lengths, magics, payloads and heads, at different places on the two.
            target.damage(file, |bytes| {
                let flip = |at: &usize| at % 1000 == 500 * number + 4;
                (0..bytes.len()).filter(flip).for_each(|at| bytes[at] ^= 0x55);
            });
        }
    }
    drop(Journaled::open(options(&targets, 3, memory(), quiet())).unwrap());
    for target in &targets {
        let kv = Journaled::open(options(&[target.copy()], 1, memory(), quiet())).unwrap();
        assert_eq!(contents(&kv), model);
    }
}

#[test]
fn damage_on_all_mirrors_is_refused_unless_accepted() {
    let targets = targets(3);
    let (_, last) = filled(&targets, memory(), quiet());
    for target in &targets {
        let file = segments(target)[1];
        target.damage(file, |bytes| bytes[500] ^= 1);
    }
    let opened = Journaled::open(options(&targets, 3, memory(), quiet()));
    assert!(matches!(opened, Err(KvError::Corrupt(_))), "{opened:?}");
    let mut lossy = options(&targets, 3, memory(), quiet());
    lossy.accept_loss = true;
    let kv = Journaled::open(lossy).unwrap();
    assert!((TxId(1)..last).contains(&kv.status().committed));
}

#[test]
fn an_index_ahead_of_the_journal_is_evidence_of_loss() {
    let scratch = Scratch::new();
    let path = scratch.0.join("index");
    let targets = targets(3);
    let kv = Journaled::create(options(&targets, 3, redb(&path), quiet())).unwrap();
    let old = targets[0].copy();
    kv.sync(put(&kv, 1)).unwrap();
    kv.close().unwrap();
    drop(kv);
    let opened = Journaled::open(options(&[old], 1, redb(&path), quiet()));
    assert!(matches!(opened, Err(KvError::Corrupt(_))), "{opened:?}");
}

#[test]
fn an_interrupted_snapshot_is_not_used() {
    let targets = targets(3);
    let (model, last) = filled(&targets, memory(), quiet());
    for target in &targets {
        let broken = targets[0].copy();
        let mut bytes = vec![0; 300];
        let file = broken.names().into_iter().find(|name| matches!(name, TargetFile::Snapshot { .. })).unwrap();
        volume::target::ReadAt::read_at(&*broken, file, 0, &mut bytes).unwrap();
        let newer = TargetFile::Snapshot { last: last.previous() };
        volume::target::Target::write(
            &**target,
            newer,
            0,
            &[std::io::IoSlice::new(&bytes[..90])],
            volume::target::Durable::Later,
        )
        .unwrap();
    }
    let kv = Journaled::open(options(&targets, 3, memory(), quiet())).unwrap();
    assert_eq!(contents(&kv), model);
}

#[test]
fn a_snapshot_removes_what_it_makes_superfluous() {
    let targets = targets(3);
    let kv = Journaled::create(options(&targets, 3, memory(), quiet())).unwrap();
    for number in 0..500 {
        kv.sync(put(&kv, number)).unwrap();
    }
    assert!(segments(&targets[0]).len() > 5);
    kv.checkpoint().unwrap();
    for target in &targets {
        assert_eq!((segments(target).len(), target.names().len()), (1, 2), "{:?}", target.names());
    }
    let status = kv.status();
    assert_eq!((status.snapshot, status.journal_bytes), (TxId(500), 0), "{status:?}");
}

#[test]
fn another_volumes_targets_are_refused_and_left_alone() {
    let theirs = targets(3);
    filled(&theirs, memory(), small());
    let before: Vec<_> = theirs.iter().map(|target| target.names()).collect();
    let mut ours = targets(3);
    let create = |all: &[Arc<Flaky>]| {
        let mut options = options(all, 2, memory(), small());
        options.volume = *b"the other volume";
        options.voters.truncate(3);
        options
    };
    assert!(Journaled::create(create(&theirs)).is_err());
    assert!(Journaled::open(create(&theirs)).is_err());
    let kv = Journaled::create(create(&ours)).unwrap();
    kv.sync(put(&kv, 1)).unwrap();
    drop(kv);
    ours[0] = theirs[0].clone();
    ours.push(theirs[1].clone());
    let kv = Journaled::open(create(&ours)).unwrap();
    assert_eq!(kv.status().mirrors, [TargetId(1), TargetId(2)]);
    (0..300).for_each(|number| _ = put(&kv, number));
    kv.checkpoint().unwrap();
    kv.close().unwrap();
    assert_eq!(before, theirs.iter().map(|target| target.names()).collect::<Vec<_>>());
}

#[test]
fn a_stale_mirror_that_comes_back_changes_nothing() {
    let targets = targets(3);
    let kv = Journaled::create(options(&targets, 2, memory(), quiet())).unwrap();
    kv.sync(put(&kv, 1)).unwrap();
    // Only one mirror gets the second transaction; the volume goes on without that mirror and with
    // another history.
    let others: Vec<_> = targets[1..].iter().map(|target| target.copy()).collect();
    kv.sync(put(&kv, 2)).unwrap();
    drop(kv);
    let mut without = vec![Flaky::new()];
    without.extend(others);
    let kv = Journaled::open(options(&without, 2, memory(), quiet())).unwrap();
    assert_eq!(kv.status().committed, TxId(1));
    kv.sync(put(&kv, 3)).unwrap();
    let model = contents(&kv);
    drop(kv);
    without[0] = targets[0].clone();
    let kv = Journaled::open(options(&without, 2, memory(), quiet())).unwrap();
    assert_eq!(contents(&kv), model);
}

#[test]
fn nothing_waits_for_a_slow_reader() {
    let scratch = Scratch::new();
    let targets = targets(3);
    let path: &Path = &scratch.0.join("index");
    let kv = Journaled::create(options(&targets, 3, redb(path), small())).unwrap();
    (0..100).for_each(|number| _ = put(&kv, number));
    let mut seen = 0;
    let at = kv
        .snapshot(&mut |_, _| {
            seen += 1;
            (0..20).for_each(|number| _ = put(&kv, number));
            Ok(true)
        })
        .unwrap();
    assert_eq!((at, seen), (TxId(100), 51));
}
