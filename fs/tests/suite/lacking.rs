//! What chunk sets lack is known before what is in them counts: it is queued for repair.

use crate::lab::{Lab, assert_sound, content, full, make, pattern, until};
use fs::FileSystem;
use plan::Ino;
use std::collections::{BTreeMap, BTreeSet};
use volume::Control;
use volume::target::{Faults, TargetFile};

/// The mirrors of the journal are the first targets; their disks stay sound.
const FIRST_FREE: usize = 4;

fn unsynced() -> Faults {
    Faults { unsynced: true, ..Faults::default() }
}

/// The targets of each set.
fn sets(lab: &Lab) -> BTreeMap<u64, BTreeSet<usize>> {
    let mut sets = BTreeMap::<u64, BTreeSet<usize>>::new();
    for (target, file, _) in lab.chunks() {
        if let TargetFile::Chunk { set, .. } = file {
            sets.entry(set.0).or_default().insert(target);
        }
    }
    sets
}

fn write(fs: &FileSystem, name: &str, bytes: &[u8]) -> Ino {
    let ino = make(fs, name);
    fs.write(ino, 0, bytes).unwrap();
    ino
}

/// A sync of several sets: of one the data is lost, others lack a chunk. They are repaired whatever
/// happens to that one.
#[test]
fn what_a_set_lacks_is_queued_though_the_sync_of_another_fails() {
    let mut lab = Lab::new("rs:2+1", 12);
    let fs = lab.open();
    let large = write(&fs, "large", &pattern(1, 60 << 20));
    until("the stripes are written", || sets(&lab).len() >= 8);
    let all = sets(&lab);
    // Two targets of one set.
    let both = all.values().find_map(|targets| {
        let mut free = targets.iter().copied().filter(|&target| target >= FIRST_FREE);
        Some([free.next()?, free.next()?])
    });
    let both = both.expect("a set with two targets without a journal");
    both.iter().for_each(|&target| lab.fault(target, unsynced()));
    fs.sync(large).unwrap_err();
    let lacking = all.values().filter(|targets| both.iter().any(|target| targets.contains(target))).count();
    let queued = fs.count_queued().unwrap();
    assert!(lacking > 1 && queued >= lacking, "{queued} of {lacking}: {all:?}, {both:?}");
    fs.abandon();
}

/// A write that fails makes a set give up two targets. What the set got before is synced there: it
/// lacks nothing.
#[test]
fn what_was_written_before_a_write_failed_is_synced_everywhere() {
    // Too few for several open sets: another one is begun when writing to the first fails.
    let mut lab = Lab::new("rs:4+2", 7);
    let fs = lab.open();
    let (first, second) = (pattern(1, 6 << 20), pattern(2, 4 << 20));
    let early = write(&fs, "early", &first);
    until("a stripe is written", || fs.coded_stripes().0 > 0);
    let (set, targets) = sets(&lab).pop_first().unwrap();
    let both: Vec<usize> = targets.into_iter().filter(|&target| target >= FIRST_FREE).take(2).collect();
    both.iter().for_each(|&target| lab.fault(target, full()));
    let late = write(&fs, "late", &second);
    until("another set is begun", || sets(&lab).len() > 1);
    lab.fault_all(Faults::default);
    fs.sync(early).unwrap();
    fs.sync(late).unwrap();
    lab.kill(fs);
    let fs = lab.open();
    let problems = fs.verify(&Control::default()).unwrap().problems;
    assert!(problems.iter().all(|problem| problem.set.0 != set), "set {set}: {problems:?}");
    // The other set has what there were targets for. That both were full is remembered for a while.
    until("all is repaired", || {
        fs.repair_queued(&Control::default()).unwrap();
        fs.count_queued().unwrap() == 0
    });
    assert_sound(&fs);
    assert!(content(&fs, early).unwrap() == first && content(&fs, late).unwrap() == second);
    fs.close_volume().unwrap();
}
