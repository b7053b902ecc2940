//! Openings that take long.

use super::index::Fate;
use super::*;
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
