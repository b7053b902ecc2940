//! What every engine does, against a map.
#![allow(missing_docs)]

mod common;

use common::{Flaky, Scratch, add, memory, of_places, options, redb, small};
use meta::journal::{JournalLimits, Journaled, MirrorTarget};
use meta::kv::{Batch, Guard, Kv, KvChange, KvError, Memory, Redb};
use plan::{TargetId, TxId};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use volume::target::Target;

/// Calls with one of each engine, empty.
fn each(check: impl Fn(&str, Arc<dyn Kv>)) {
    let scratch = Scratch::new();
    let targets: Vec<_> = (0..6).map(|_| Flaky::new()).collect();
    check("memory", Arc::new(Memory::new(add)));
    check("redb", Arc::new(Redb::open(&scratch.0.join("alone"), add).unwrap()));
    check("journal over memory", Arc::new(Journaled::create(options(&targets[..3], 3, memory(), small())).unwrap()));
    let index = redb(&scratch.0.join("index"));
    check("journal over redb", Arc::new(Journaled::create(options(&targets[3..], 3, index, small())).unwrap()));
    let disks: Vec<MirrorTarget> = (0..3).map(|id| (TargetId(id), scratch.disk(&id.to_string()))).collect();
    // A real disk may take its time.
    let on_disks =
        of_places(disks, 3, memory(), JournalLimits { deadline: JournalLimits::default().deadline, ..small() });
    check("journal on disks", Arc::new(Journaled::create(on_disks).unwrap()));
    let all = (0..3).map(|id| (TargetId(id), Arc::new(volume::target::Memory::default()) as Arc<dyn Target>)).collect();
    let in_memory = of_places(all, 3, memory(), small());
    check("journal in memory", Arc::new(Journaled::create(in_memory).unwrap()));
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn key() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(0u8..4, 0..4)
}

fn change() -> impl Strategy<Value = KvChange> {
    prop_oneof![
        3 => (key(), proptest::collection::vec(any::<u8>(), 0..40)).prop_map(|(key, value)| KvChange::Put(key, value)),
        1 => key().prop_map(KvChange::Delete),
        2 => (key(), -2i64..3).prop_map(|(key, by)| KvChange::Merge(key, by.to_le_bytes().to_vec())),
    ]
}

#[derive(Clone, Debug)]
enum Step {
    Commit(Vec<KvChange>, Option<Vec<u8>>),
    Stale(Vec<KvChange>, Vec<u8>),
    Empty(Vec<KvChange>, Vec<u8>, Vec<u8>),
    Scan(Vec<u8>, Vec<u8>, usize),
    Sync,
}

fn step() -> impl Strategy<Value = Step> {
    let changes = || proptest::collection::vec(change(), 0..6);
    prop_oneof![
        6 => (changes(), proptest::option::of(key())).prop_map(|(c, k)| Step::Commit(c, k)),
        1 => (changes(), key()).prop_map(|(c, k)| Step::Stale(c, k)),
        1 => (changes(), key(), key()).prop_map(|(c, a, b)| Step::Empty(c, a, b)),
        3 => (key(), key(), 0usize..9).prop_map(|(a, b, n)| Step::Scan(a, b, n)),
        1 => Just(Step::Sync),
    ]
}

fn play(model: &mut Model, changes: &[KvChange]) -> Vec<Option<Vec<u8>>> {
    let mut merged = Vec::new();
    for change in changes {
        let (key, value) = match change {
            KvChange::Put(key, value) => (key, Some(value.clone())),
            KvChange::Delete(key) => (key, None),
            KvChange::Merge(key, operand) => {
                let value = add(key, model.get(key).map(Vec::as_slice), operand).unwrap();
                merged.push(value.clone());
                (key, value)
            }
        };
        match value {
            Some(value) => drop(model.insert(key.clone(), value)),
            None => drop(model.remove(key)),
        }
    }
    merged
}

fn run(name: &str, kv: &dyn Kv, steps: &[Step]) {
    let (mut model, mut last) = (Model::new(), TxId(0));
    for step in steps {
        match step {
            Step::Commit(changes, guard) => {
                let guards = guard.iter().map(|key| Guard::Value(key.clone(), model.get(key).cloned())).collect();
                let done = kv.commit(Batch { guards, changes: changes.clone() }).unwrap();
                assert_eq!(done.merged, play(&mut model, changes), "{name}");
                assert_eq!(done.seq, if changes.is_empty() { last } else { last.next() }, "{name}");
                last = done.seq;
            }
            Step::Stale(changes, key) => {
                let wrong = if model.contains_key(key) { None } else { Some(vec![1]) };
                let guards = vec![Guard::Value(key.clone(), wrong)];
                assert_eq!(kv.commit(Batch { guards, changes: changes.clone() }), Err(KvError::Conflict), "{name}");
            }
            Step::Empty(changes, a, b) => {
                let empty = a >= b || model.range(a.clone()..b.clone()).next().is_none();
                let guards = vec![Guard::Empty(a.clone()..b.clone())];
                match kv.commit(Batch { guards, changes: changes.clone() }) {
                    Ok(done) => {
                        assert!(empty, "{name}");
                        play(&mut model, changes);
                        last = done.seq;
                    }
                    Err(error) => assert_eq!((error, empty), (KvError::Conflict, false), "{name}"),
                }
            }
            Step::Scan(a, b, limit) => {
                let range = || if a < b { Some(model.range(a.clone()..b.clone())) } else { None }.into_iter().flatten();
                let pairs = |pair: (&Vec<u8>, &Vec<u8>)| (pair.0.clone(), pair.1.clone());
                let up: Vec<_> = range().take(*limit).map(pairs).collect();
                assert_eq!(kv.scan(a..b, *limit).unwrap(), up, "{name}");
                let mut down: Vec<_> = range().map(pairs).collect();
                down.reverse();
                down.truncate(*limit);
                assert_eq!(kv.scan_back(a..b, *limit).unwrap(), down, "{name}");
                assert_eq!(kv.get(a).unwrap(), model.get(a).cloned(), "{name}");
            }
            Step::Sync => kv.sync(last).unwrap(),
        }
    }
    let mut all = Model::new();
    let seq = kv.snapshot(&mut |key, value| {
        all.insert(key.to_vec(), value.to_vec());
        Ok(true)
    });
    assert_eq!((seq.unwrap(), all), (last, model), "{name}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn every_engine_does_what_a_map_does(steps in proptest::collection::vec(step(), 1..300)) {
        each(|name, kv| run(name, &*kv, &steps));
    }
}

#[test]
fn concurrent_increments_lose_nothing() {
    each(|name, kv| {
        let workers: Vec<_> = (0..4)
            .map(|_| {
                let kv = kv.clone();
                thread::spawn(move || {
                    for _ in 0..100 {
                        loop {
                            let old = kv.get(b"n").unwrap();
                            let n = old.as_deref().map_or(0, |n| i64::from_le_bytes(n.try_into().unwrap()));
                            let mut batch = Batch::default();
                            batch.expect("n", old).put("n", (n + 1).to_le_bytes()).merge("m", 1i64.to_le_bytes());
                            match kv.commit(batch) {
                                Ok(done) if n % 10 == 0 => break kv.sync(done.seq).unwrap(),
                                Ok(_) => break,
                                Err(KvError::Conflict) => {}
                                Err(error) => panic!("{error}"),
                            }
                        }
                    }
                })
            })
            .collect();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        for key in [b"n", b"m"] {
            assert_eq!(kv.get(key).unwrap().unwrap(), 400i64.to_le_bytes(), "{name}");
        }
    });
}

#[test]
fn readers_see_whole_transactions() {
    each(|name, kv| {
        let writer = {
            let kv = kv.clone();
            thread::spawn(move || {
                for n in 0..600u64 {
                    let mut batch = Batch::default();
                    for key in 0..8u8 {
                        batch.put([key], [n.to_le_bytes().to_vec(), vec![0; 50]].concat());
                    }
                    kv.commit(batch).unwrap();
                }
            })
        };
        while !writer.is_finished() {
            let pairs = kv.scan(&[0]..&[9], 100).unwrap();
            assert!(pairs.windows(2).all(|two| two[0].1 == two[1].1) && [0, 8].contains(&pairs.len()), "{name}");
            let mut all = Vec::new();
            kv.snapshot(&mut |_, value| {
                all.push(value.to_vec());
                Ok(true)
            })
            .unwrap();
            assert!(all.windows(2).all(|two| two[0] == two[1]), "{name}");
        }
        writer.join().unwrap();
    });
}

#[test]
fn what_breaks_a_limit_changes_nothing() {
    each(|name, kv| {
        let long = vec![0; meta::kv::MAX_KEY_BYTES + 1];
        let mut batch = Batch::default();
        batch.put("a", "b").put(long, "c");
        assert!(matches!(kv.commit(batch), Err(KvError::Invalid(_))), "{name}");
        assert_eq!(kv.get(b"a").unwrap(), None, "{name}");
    });
}
