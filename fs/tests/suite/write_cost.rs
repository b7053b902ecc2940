//! Where the time of a synced write goes: every part of it is one step's.

use crate::lab::cluster::{Cluster, lock};
use crate::lab::{Lab, make, pattern};
use fs::FileSystem;
use plan::Ino;
use std::time::{Duration, Instant};
use volume::steps::{Taken, WriteStep};
use volume::target::Faults;

/// Each write and each sync of a target takes at least this long.
const TARGET_DELAY: Duration = Duration::from_millis(20);

fn slow() -> Faults {
    Faults { delay: TARGET_DELAY, ..Faults::default() }
}

/// What one synced write cost, and how long it took.
struct Cost {
    steps: [Taken; WriteStep::ALL.len()],
    took: Duration,
}

impl Cost {
    fn of(&self, step: WriteStep) -> Taken {
        self.steps[step as usize]
    }

    fn counts(&self) -> [u64; 4] {
        [WriteStep::Client, WriteStep::Parity, WriteStep::Distribution, WriteStep::Slave]
            .map(|step| self.of(step).count)
    }
}

fn write(fs: &FileSystem, ino: Ino, length: usize) -> Cost {
    let before = fs.write_cost();
    let begun = Instant::now();
    fs.write(ino, 0, &pattern(length as u64, length)).unwrap();
    fs.sync(ino).unwrap();
    let took = begun.elapsed();
    let after = fs.write_cost();
    let of = |step| {
        let (before, after): (Taken, Taken) = (before.of(step), after.of(step));
        Taken { count: after.count - before.count, time: after.time - before.time }
    };
    Cost { steps: WriteStep::ALL.map(of), took }
}

/// What a write cost during which this happened: CT, PC, DD and SP so many times. The journal may
/// have written before the sync asks for it, and the background may move what is in the metadata.
#[track_caller]
fn write_with(fs: &FileSystem, ino: Ino, length: usize, counts: [u64; 4]) -> Cost {
    let mut seen = Vec::new();
    for _ in 0..20 {
        let cost = write(fs, ino, length);
        if cost.counts() == counts {
            let all: Duration = cost.steps.iter().map(|taken| taken.time).sum();
            assert!(all <= cost.took, "nothing is counted twice: {all:?} of {:?}", cost.took);
            return cost;
        }
        seen.push(cost.counts());
    }
    panic!("no write was {counts:?}: {seen:?}");
}

/// A short synced write: the journal's mirrors do most of it.
fn of_the_metadata(fs: &FileSystem, ino: Ino) {
    let cost = write_with(fs, ino, 4096, [1, 0, 1, 1]);
    assert!(cost.of(WriteStep::Slave).time >= TARGET_DELAY, "{:?}", cost.steps);
    assert!(cost.of(WriteStep::Distribution).time > Duration::ZERO && cost.of(WriteStep::Client).time > Duration::ZERO);
    assert!(
        cost.of(WriteStep::Metadata).time > Duration::ZERO
            && cost.of(WriteStep::Metadata).time <= cost.took - TARGET_DELAY
    );
    assert_eq!((cost.of(WriteStep::Master).count, cost.of(WriteStep::Transfer).count), (0, 0));
}

/// A longer one: a stripe, the sync of its chunks, and the journal.
fn of_a_stripe(fs: &FileSystem, ino: Ino) {
    let cost = write_with(fs, ino, 256 << 10, [1, 1, 3, 3]);
    // At least the journal's: a mirror writes and syncs. The client's own disks may be fast.
    assert!(cost.of(WriteStep::Slave).time >= 2 * TARGET_DELAY, "{:?}", cost.steps);
    assert_eq!((cost.of(WriteStep::Master).count, cost.of(WriteStep::Transfer).count), (1, 0));
}

#[test]
fn the_journal_of_a_volume_on_directories_is_distribution_and_slaves() {
    let mut lab = Lab::new("rs:2+1", 4);
    let fs = lab.open();
    let ino = make(&fs, "file");
    write(&fs, ino, 256 << 10);
    lab.fault_all(slow);
    of_the_metadata(&fs, ino);
    of_a_stripe(&fs, ino);
}

/// The server's answer carries what its journal took.
#[test]
fn the_journal_of_a_server_is_distribution_and_slaves() {
    let cluster = Cluster::new("rs:2+1", 4);
    let fs = cluster.client("a");
    let ino = make(&fs, "file");
    write(&fs, ino, 256 << 10);
    lock(&cluster.lab).fault_all(slow);
    of_the_metadata(&fs, ino);
    of_a_stripe(&fs, ino);
}
