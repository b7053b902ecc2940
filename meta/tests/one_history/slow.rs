//! Openings that take long, and engines that fail.

use super::index::Fate;
use super::*;
use meta::journal::Standing;
use std::time::Instant;
use volume::target::Lease;

/// Waits for something that happens.
fn until(what: &str, reached: &dyn Fn() -> bool) {
    let begun = Instant::now();
    while !reached() {
        assert!(begun.elapsed() < Duration::from_secs(120), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Otherwise two servers take a volume from one another, again and again, when it takes long to
/// open. `cargo xtask simulate --failovers` found it.
#[test]
fn an_opening_that_reads_for_longer_than_a_lease_keeps_its_claims() {
    let (disks, time) = leased(4);
    let kv = Journaled::create(Options { lease: LEASE, ..named("a", &disks.see(), 1) }).unwrap();
    (1..3).for_each(|number| add_durably(&kv, number).unwrap());
    kv.close().unwrap();
    drop(kv);
    let fate = Fate::new();
    fate.stop_readers(true);
    let slow = Options { lease: LEASE, index: fate.index(), ..named("b", &disks.see(), 1) };
    let slow = std::thread::spawn(move || Journaled::open(slow));
    until("it reads", &|| fate.is_read());
    let most = Duration::from_secs(29);
    for _ in 0..2 {
        *time.lock().unwrap() += most;
        let renewed = |disk: &Memory| matches!(claim_of(disk).lease, Lease::Runs(left) if left > most / 2);
        until("it renews its claims", &|| disks.0.iter().all(renewed));
    }
    let other = Journaled::open(Options { lease: LEASE, ..named("c", &disks.see(), 1) });
    assert!(matches!(&other, Err(KvError::Held(whose)) if whose.contains('b')), "{other:?}");
    fate.stop_readers(false);
    let kv = slow.join().unwrap().unwrap();
    add_durably(&kv, 3).unwrap();
    assert_eq!(numbers(&kv), [1, 2, 3].into());
}

/// A server has to leave it to others, or to open the volume once more: it would say for ever that
/// its lease is late. `cargo xtask simulate --takeovers --seed 278` found it.
#[test]
fn an_engine_whose_index_is_full_does_not_go_on_and_says_so() {
    let (disks, time) = leased(3);
    let (fate, lease) = (Fate::new(), Some(Duration::from_millis(200)));
    let kv = Journaled::create(Options { lease, index: fate.index(), ..named("a", &disks.see(), 1) }).unwrap();
    add_durably(&kv, 1).unwrap();
    fate.set_full(true);
    add_durably(&kv, 2).unwrap();
    assert!(kv.checkpoint().is_err());
    until("it has failed", &|| kv.standing() == Standing::Failed);
    assert!(add_durably(&kv, 3).is_err() && kv.get(b"sum").is_err());
    fate.set_full(false);
    assert_eq!(kv.standing(), Standing::Failed, "for ever");
    *time.lock().unwrap() += Duration::from_secs(1);
    let other = Journaled::open(named("b", &disks.see(), 1)).unwrap();
    assert_eq!(numbers(&other), [1, 2].into());
}
