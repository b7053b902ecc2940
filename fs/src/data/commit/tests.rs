use super::{Due, Packer, Taken, Wait};
use crate::testing::{Lab, Way, make};
use session::transport::Call;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use volume::target::{Faults, Target, TargetFile};
use volume::{Control, lock};

/// A thread in the background fails, or leaves a short rest, while a sync waits for it. It
/// gives back its data later than the sync took what was dirty, at least in some of the rounds.
#[test]
fn a_sync_stores_what_others_give_back_meanwhile() {
    let lab = Lab::new("rs:2+1", 3);
    let fs = lab.open();
    let bytes = vec![7; 300_000];
    let mut inos = Vec::new();
    for round in 0..20 {
        let ino = make(&fs, &format!("file{round}"));
        fs.open(ino, true).unwrap();
        fs.write(ino, 0, &bytes).unwrap();
        let file = fs.table.enter(ino);
        let taken = fs.take_all(&mut file.state(), false);
        std::thread::scope(|scope| {
            let sync = scope.spawn(|| fs.sync(ino));
            std::thread::sleep(Duration::from_millis(20));
            taken.iter().for_each(|piece| fs.landed(&file, piece, None));
            sync.join().unwrap().unwrap();
        });
        drop(file);
        inos.push(ino);
    }
    fs.abandon();
    drop(fs);
    let fs = lab.open();
    for ino in inos {
        let mut read = vec![0; bytes.len()];
        assert_eq!(fs.read(ino, 0, &mut read).unwrap(), bytes.len());
        assert!(read == bytes);
    }
}

/// A connection that panics once when one of these requests is sent.
struct Panics(Way, Arc<Mutex<Vec<u16>>>);

impl Call for Panics {
    fn call(&self, operation: u16, arguments: &[u8]) -> meta::Result<Vec<u8>> {
        let mut at = lock(&self.1);
        let panics = at.contains(&operation);
        if panics {
            at.clear();
        }
        drop(at);
        assert!(!panics, "a defect");
        self.0.call(operation, arguments)
    }
}

#[test]
fn a_sync_after_a_panic_in_another_stores_everything() {
    let lab = Lab::new("rs:2+1", 3);
    let panics = Arc::new(Mutex::new(Vec::new()));
    let fs = lab.client_over(|way| Panics(way, panics.clone()));
    let (commits, describes) = (vec![19, 29], vec![4]);
    for (number, (length, at)) in
        [(1000, commits.clone()), (100_000, commits), (100_000, describes)].into_iter().enumerate()
    {
        let ino = make(&fs, &format!("file{number}"));
        fs.open(ino, true).unwrap();
        let bytes = vec![7; length];
        fs.write(ino, 0, &bytes).unwrap();
        *lock(&panics) = at;
        catch_unwind(AssertUnwindSafe(|| fs.sync(ino))).unwrap_err();
        assert_eq!(fs.uncommitted().0, 1);
        fs.sync(ino).unwrap();
        assert_eq!(fs.uncommitted().0, 0);
        let mut read = vec![0; length];
        assert_eq!(fs.read(ino, 0, &mut read).unwrap(), length);
        assert!(read == bytes);
    }
}

#[test]
fn a_sync_of_everything_tells_once_of_data_that_it_dropped() {
    let lab = Lab::new("rs:2+1", 3);
    let (fs, disks) = lab.open_faulty(3);
    let ino = make(&fs, "file");
    fs.open(ino, true).unwrap();
    fs.write(ino, 0, &[7; 300_000]).unwrap();
    fs.flush(&[(*fs.table.enter(ino)).clone()], false).unwrap();
    for disk in &disks[..2] {
        let chunk = disk.list().unwrap().into_iter().map(|(file, _)| file);
        let chunk = chunk.clone().find(|file| matches!(file, TargetFile::Chunk { .. })).unwrap();
        disk.set(Faults { removed_after: Some((chunk, 0)), ..Faults::default() });
    }
    fs.sync_all().unwrap_err();
    fs.sync_all().unwrap();
    fs.sync(ino).unwrap_err();
    fs.sync(ino).unwrap();
}

/// A sync waits for what was written before it, and not for what other threads write meanwhile:
/// in a round in which it begins before they do.
#[test]
fn a_sync_does_not_wait_for_what_is_written_after_it() {
    let lab = Lab::new("rs:2+1", 3);
    let fs = lab.open();
    let piece = |file: &super::File, number: u64| {
        fs.write(file.ino, number * 300_000, &[number as u8 + 1; 300_000]).unwrap();
        fs.take_all(&mut file.state(), false)
    };
    let land = |file: &super::File, taken: &[Taken]| taken.iter().for_each(|piece| fs.landed(file, piece, None));
    let size = |ino| fs.meta.content(ino, 0..u64::MAX).unwrap().0;
    let did_not_wait = (0..20).any(|round| {
        let ino = make(&fs, &format!("file{round}"));
        fs.open(ino, true).unwrap();
        let file = fs.table.enter(ino);
        let first = piece(&file, 0);
        let ended = std::thread::scope(|scope| {
            let sync = scope.spawn(|| fs.sync(ino));
            std::thread::sleep(Duration::from_millis(20));
            let (second, third) = (piece(&file, 1), piece(&file, 2));
            // The third one is in a stripe before the second: it would leave a hole.
            let mut packer = Packer::new(&fs);
            packer.add_all(&file, third).unwrap();
            packer.finish().unwrap();
            assert!(!sync.is_finished());
            land(&file, &first);
            let begun = Instant::now();
            while !sync.is_finished() && begun.elapsed() < Duration::from_secs(5) {
                std::thread::sleep(Duration::from_millis(1));
            }
            let ended = sync.is_finished();
            if ended {
                assert_eq!(size(ino), 300_000);
            }
            land(&file, &second);
            sync.join().unwrap().unwrap();
            ended
        });
        fs.sync(ino).unwrap();
        assert_eq!((size(ino), fs.uncommitted().0), (900_000, 0));
        // What is overwritten on its way was written before the sync all the same.
        let (old, new) = (piece(&file, 1), piece(&file, 1));
        std::thread::scope(|scope| {
            let sync = scope.spawn(|| fs.sync(ino));
            land(&file, &old);
            std::thread::sleep(Duration::from_millis(20));
            assert!(!sync.is_finished());
            land(&file, &new);
            sync.join().unwrap().unwrap();
        });
        assert_eq!(fs.uncommitted().0, 0);
        ended
    });
    assert!(did_not_wait);
}

/// What a thread in the background gives back while a sync writes the rest was written before the
/// sync, and newer data before it in the file is on its way meanwhile.
#[test]
fn a_sync_commits_what_is_given_back_while_it_begins() {
    let lab = Lab::new("rs:2+1", 3);
    let fs = lab.open();
    let ino = make(&fs, "file");
    fs.open(ino, true).unwrap();
    let file = fs.table.enter(ino);
    let piece = |at: u64| {
        fs.write(ino, at, &[7; 300_000]).unwrap();
        fs.take_all(&mut file.state(), false)
    };
    let old = piece(1_000_000);
    let due = Due::of(&file);
    old.iter().for_each(|piece| fs.landed(&file, piece, None));
    // Only the commit takes what is due to it.
    let newer = piece(0);
    assert_eq!(newer.iter().map(|piece| piece.offset).collect::<Vec<_>>(), [0]);
    let done = {
        let _content = file.content();
        fs.commit_held(&[due], Wait::No, true)
    };
    assert!(done.failed.is_none() && done.left == 0);
    let (size, extents) = fs.meta.content(ino, 0..u64::MAX).unwrap();
    assert_eq!((size, extents[0].range()), (1_300_000, 1_000_000..1_300_000));
    newer.iter().for_each(|piece| fs.landed(&file, piece, None));
    fs.sync(ino).unwrap();
    assert_eq!(fs.uncommitted().0, 0);
}

/// What is overwritten in memory counts once, and is counted down again.
#[test]
fn a_page_that_is_written_twice_takes_no_memory_after_its_sync() {
    let lab = Lab::new("rs:2+1", 3);
    let fs = lab.open();
    for length in [100, 4096, 300_000] {
        let ino = make(&fs, &format!("file{length}"));
        fs.open(ino, true).unwrap();
        for _ in 0..3 {
            fs.write(ino, 0, &vec![7; length]).unwrap();
        }
        assert!(fs.memory.used() > 0);
        fs.sync(ino).unwrap();
        assert_eq!((fs.memory.used(), fs.memory.inline()), (0, 0), "{length}");
    }
}

/// More pieces than one transaction names, and a time that a program set after it wrote them.
#[test]
fn a_time_that_was_set_stays_through_a_commit_of_many_transactions() {
    let lab = Lab::new("rs:2+1", 3);
    let fs = lab.open();
    let ino = make(&fs, "file");
    fs.open(ino, true).unwrap();
    for number in 0..20_000 {
        fs.write(ino, number * 10, b"some").unwrap();
    }
    let time = crate::Time { seconds: 77, nanoseconds: 5 };
    let change = crate::SetAttributes { modified: Some(crate::SetTime::To(time)), ..Default::default() };
    fs.set_attributes(ino, change).unwrap();
    fs.sync(ino).unwrap();
    assert_eq!((fs.attributes(ino).unwrap().modified, fs.uncommitted().0), (time, 0));
    assert_eq!(fs.meta.attributes(ino).unwrap().allocated, 80_000);
}

/// As while a program writes to it faster than the targets take it.
#[test]
fn a_file_with_data_on_its_way_keeps_no_other_from_its_commit() {
    let lab = Lab::new("rs:2+1", 3);
    let fs = lab.open();
    let write = |name: &str| {
        let ino = make(&fs, name);
        fs.open(ino, true).unwrap();
        fs.write(ino, 0, &[7; 300_000]).unwrap();
        ino
    };
    let (busy, quiet) = (write("busy"), write("quiet"));
    let file = fs.table.enter(busy);
    let taken = fs.take_all(&mut file.state(), false);
    fs.commit_all(Some(Instant::now())).unwrap();
    assert_eq!(fs.uncommitted().0, 1, "the busy file");
    fs.sync(quiet).unwrap();
    taken.iter().for_each(|piece| fs.landed(&file, piece, None));
    fs.commit_all(Some(Instant::now())).unwrap();
    assert_eq!(fs.uncommitted().0, 0);
}

#[test]
fn what_is_written_after_a_sync_is_new() {
    let lab = Lab::new("rs:2+1", 3);
    let fs = lab.open();
    let ino = make(&fs, "file");
    fs.open(ino, true).unwrap();
    fs.write(ino, 0, &[7; 100]).unwrap();
    fs.sync(ino).unwrap();
    let synced = Instant::now();
    fs.write(ino, 0, &[8; 100]).unwrap();
    assert!(fs.table.enter(ino).state().dirty_since.is_some_and(|since| since >= synced));
}

/// Never more than one target is away. But a set was begun without one that is back, and misses
/// another now: too few have what was not synced.
#[test]
fn a_set_that_cannot_be_synced_keeps_no_other_file_from_its_commit() {
    let lab = Lab::new("rs:2+1", 3);
    let (fs, disks) = lab.open_faulty(2);
    let away = |number: usize, away: bool| disks[number].set(Faults { away, ..Faults::default() });
    let write = |name: &str| {
        let ino = make(&fs, name);
        fs.open(ino, true).unwrap();
        fs.write(ino, 0, &[7; 100_000]).unwrap();
        ino
    };
    away(1, true);
    let first = write("first");
    fs.flush(&[(*fs.table.enter(first)).clone()], false).unwrap();
    away(1, false);
    away(0, true);
    fs.sync(write("second")).unwrap();
    write("third");
    fs.sync_all().unwrap_err();
    fs.repair(&Control::default()).unwrap();
    let verified = fs.verify(&Control::default()).unwrap().stripes;
    assert_eq!(fs.uncommitted().0, 1, "the first");
    fs.sync(first).unwrap_err();
    away(0, false);
    let begun = Instant::now();
    while let Err(why) = fs.sync(first) {
        assert!(begun.elapsed() < Duration::from_secs(120), "{why}");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(fs.uncommitted().0, 0);
    let new = fs.verify_new(&Control::default()).unwrap().stripes;
    assert!(new > 0 && verified > 0, "the first is read when it is committed");
}

/// Tests the limit of a transaction, which is 32 MiB.
#[test]
fn more_extents_than_a_transaction_takes_are_committed() {
    const FILE_COUNT: u64 = 560_000;
    let lab = Lab::new("rs:2+1", 3);
    let fs = lab.open();
    let ino = make(&fs, "file");
    fs.open(ino, true).unwrap();
    fs.write(ino, 0, &[9; 100]).unwrap();
    fs.sync(ino).unwrap();
    for n in 1..FILE_COUNT {
        fs.write(ino, n * 10, &(n as u32).to_le_bytes()).unwrap();
    }
    fs.sync(ino).unwrap();
    fs.close(ino);
    fs.close_volume().unwrap();
    drop(fs);
    let fs = lab.open();
    assert_eq!(fs.attributes(ino).unwrap().size, (FILE_COUNT - 1) * 10 + 4);
    for n in [20, 16_383, 16_384, 16_385, 40_000, FILE_COUNT - 1] {
        let mut bytes = [0; 4];
        fs.read(ino, n * 10, &mut bytes).unwrap();
        assert_eq!(u32::from_le_bytes(bytes), n as u32);
    }
}
