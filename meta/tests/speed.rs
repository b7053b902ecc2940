//! How fast the durable engine is on this machine's disk: `cargo test --release -p meta --test
//! speed -- --ignored --nocapture`.
#![allow(missing_docs)]

mod common;

use common::{Scratch, of_places, redb};
use meta::journal::{JournalLimits, Journaled, MirrorTarget};
use meta::kv::{Batch, Kv};
use plan::{TargetId, TxId};
use std::thread;
use std::time::Instant;

fn put(kv: &dyn Kv, key: u64) -> TxId {
    let mut batch = Batch::default();
    batch.put(key.to_be_bytes(), vec![5; 100]);
    kv.commit(batch).unwrap().seq
}

#[test]
#[ignore = "measures"]
fn speed() {
    let scratch = Scratch::new();
    let targets: Vec<MirrorTarget> = (0..3).map(|id| (TargetId(id), scratch.disk(&id.to_string()))).collect();
    let index = redb(&scratch.0.join("index"));
    let options = of_places(targets, 3, index, JournalLimits::default());
    let kv = Journaled::create(options).unwrap();
    let rate = |what: &str, count: u64, run: &dyn Fn()| {
        let started = Instant::now();
        run();
        let time = started.elapsed();
        println!(
            "{what}: {:.0}/s, {:.1} us each",
            count as f64 / time.as_secs_f64(),
            time.as_micros() as f64 / count as f64
        );
    };
    rate("one thread, each synced", 2000, &|| (0..2000).for_each(|n| kv.sync(put(&kv, n << 32)).unwrap()));
    rate("8 threads, each synced", 16000, &|| {
        thread::scope(|scope| {
            for id in 0..8u64 {
                let kv = &kv;
                scope.spawn(move || (0..2000).for_each(|n| kv.sync(put(kv, n << 32 | id << 24)).unwrap()));
            }
        });
    });
    let many = 1_000_000;
    let mixed = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    rate("puts, not synced", many, &|| (0..many).for_each(|n| _ = put(&kv, mixed(n))));
    rate("the last sync", 1, &|| kv.sync(TxId::MAX).unwrap());
    rate("gets", 200_000, &|| (0..200_000).for_each(|n| assert!(kv.get(&mixed(n).to_be_bytes()).unwrap().is_some())));
    rate("scans of 100", 20_000, &|| {
        (0..20_000).for_each(|n| _ = kv.scan(&mixed(n).to_be_bytes()..&[255; 9], 100).unwrap())
    });
    rate("a snapshot", 1, &|| kv.checkpoint().unwrap());
    println!("{:?}", kv.status());
}
