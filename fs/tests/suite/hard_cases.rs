//! Single races and failures, each constructed on purpose.

use crate::lab::*;
use fs::{Allocate, FileKind, FileSystem, ROOT, RenameMode, SetAttributes};
use plan::Ino;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use volume::Control;
use volume::target::Faults;

/// A stripe is kept for three seconds after its last reference is gone; then the collector runs
/// five times a second.
const COLLECT_DELAY: Duration = Duration::from_millis(3600);

/// Stripes that no transaction names yet keep their chunk set when everything else in it is
/// deleted.
#[test]
fn a_directory_and_its_parent_are_not_removed_by_their_other_names() {
    let mut lab = Lab::new("rs:2+1", 3);
    let fs = lab.open();
    for name in [b".".as_slice(), b"..", b"", b"a/b"] {
        for removed in [fs.unlink(ROOT, name), fs.remove_directory(ROOT, name)] {
            let error = removed.unwrap_err();
            assert!(matches!(error, fs::Error::Meta(meta::Error::Invalid(_))), "{name:?}: {error:?}");
        }
    }
}

#[test]
fn uncommitted_stripes_keep_their_chunk_set() {
    let mut lab = Lab::new("rs:2+1", 3);
    let fs = lab.open();
    let (small, big, other) = (make(&fs, "small"), make(&fs, "big"), make(&fs, "other"));
    fs.write(small, 0, &pattern(1, 100_000)).unwrap();
    fs.sync(small).unwrap();
    let data = pattern(2, 12 << 20);
    data.chunks(100_000).enumerate().for_each(|(n, part)| fs.write(big, n as u64 * 100_000, part).unwrap());
    // The set of both is full, and it is synced with the data that comes after it.
    fs.write(other, 0, &pattern(3, 6 << 20)).unwrap();
    fs.sync(other).unwrap();
    fs.unlink(ROOT, b"small").unwrap();
    std::thread::sleep(COLLECT_DELAY);
    assert!(content(&fs, big).unwrap() == data, "before the commit");
    fs.sync(big).unwrap();
    assert!(content(&fs, big).unwrap() == data, "after the commit");
    assert_sound(&fs);
}

/// A stripe has pieces of several files; when the committed ones are deleted, the others still need
/// it.
#[test]
fn uncommitted_pieces_keep_their_stripe() {
    let mut lab = Lab::new("rs:2+1", 3);
    let fs = lab.open();
    // Enough for half of the memory, so that it is put into stripes without a transaction.
    let files: Vec<Ino> = (0..280).map(|n| make(&fs, &format!("f{n}"))).collect();
    let data = |n: usize| pattern(n as u64, 250_000);
    files.iter().enumerate().for_each(|(n, &ino)| fs.write(ino, 0, &data(n)).unwrap());
    std::thread::sleep(Duration::from_millis(1100));
    for n in (0..files.len()).step_by(2) {
        fs.sync(files[n]).unwrap();
        fs.unlink(ROOT, format!("f{n}").as_bytes()).unwrap();
    }
    std::thread::sleep(COLLECT_DELAY);
    let lost: Vec<usize> =
        (0..files.len()).filter(|n| n % 2 == 1 && !content(&fs, files[*n]).is_ok_and(|c| c == data(*n))).collect();
    assert!(lost.is_empty(), "lost: {lost:?}");
    fs.sync_all().unwrap();
    assert_sound(&fs);
}

/// A commit that races with a rename of the same file succeeds.
#[test]
fn a_commit_that_races_with_renames_loses_nothing() {
    let mut lab = Lab::new("rs:2+1", 3);
    let fs = lab.open();
    let ino = make(&fs, "a");
    let stop = Arc::new(AtomicBool::new(false));
    let renames = {
        let (fs, stop) = (fs.clone(), stop.clone());
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                fs.rename((ROOT, b"a"), (ROOT, b"b"), RenameMode::Replace).unwrap();
                fs.rename((ROOT, b"b"), (ROOT, b"a"), RenameMode::Replace).unwrap();
            }
        })
    };
    let begun = Instant::now();
    for round in 0.. {
        // Short ones go into the metadata, long ones into stripes.
        let data = pattern(round, if round % 2 == 0 { 40_000 } else { 1_000 });
        fs.write(ino, 0, &data).unwrap();
        fs.sync(ino).unwrap();
        let mut found = vec![0; data.len()];
        fs.read(ino, 0, &mut found).unwrap();
        assert!(found == data, "round {round}");
        if begun.elapsed() > Duration::from_secs(2) {
            break;
        }
    }
    stop.store(true, Ordering::Relaxed);
    renames.join().unwrap();
    assert_sound(&fs);
}

/// A rename whose old name is there all the time never says that it is not, however others change
/// the new name.
#[test]
fn a_rename_that_races_for_its_new_name_succeeds() {
    let mut lab = Lab::new("rs:2+1", 3);
    let fs = lab.open();
    let stop = Arc::new(AtomicBool::new(false));
    let others = {
        let (fs, stop) = (fs.clone(), stop.clone());
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                // The rename may have put its file there, or taken it away.
                _ = fs.make(ROOT, b"new", &new(FileKind::File));
                _ = fs.unlink(ROOT, b"new");
            }
        })
    };
    for round in 0..3000 {
        make(&fs, "old");
        fs.rename((ROOT, b"old"), (ROOT, b"new"), RenameMode::Replace).unwrap_or_else(|why| panic!("{round}: {why}"));
    }
    stop.store(true, Ordering::Relaxed);
    others.join().unwrap();
    let missing =
        |done: fs::Result<()>| assert!(matches!(done, Err(fs::Error::Meta(meta::Error::NotFound))), "{done:?}");
    make(&fs, "old");
    missing(fs.rename((ROOT, b"none"), (ROOT, b"old"), RenameMode::Replace));
    missing(fs.rename((ROOT, b"old"), (ROOT, b"none"), RenameMode::Exchange));
    // A directory that was removed while it is open takes no new names.
    let directory = fs.make(ROOT, b"directory", &new(FileKind::Directory)).unwrap().ino;
    fs.open(directory, false).unwrap();
    fs.remove_directory(ROOT, b"directory").unwrap();
    missing(fs.rename((ROOT, b"old"), (directory, b"new"), RenameMode::Replace));
    fs.close(directory);
    missing(fs.rename((ROOT, b"old"), (directory, b"new"), RenameMode::Replace));
    assert_sound(&fs);
}

/// Writes until it fails; returns the bytes written and the errno.
fn write_until_error(fs: &FileSystem, ino: Ino, most: u64) -> (u64, i32) {
    let part = pattern(9, 1 << 20);
    for n in 0..most {
        if let Err(error) = fs.write(ino, n << 20, &part) {
            return (n << 20, error.errno());
        }
    }
    (most << 20, 0)
}

#[test]
fn a_full_volume_says_so_and_goes_on_when_there_is_space() {
    let mut lab = Lab::new("rs:4+2", 6);
    let fs = lab.open();
    let old = make(&fs, "old");
    fs.write(old, 0, &pattern(1, 3_000_000)).unwrap();
    fs.sync_all().unwrap();
    lab.fault_all(full);
    let ino = make(&fs, "new");
    let (written, errno) = {
        let fs = fs.clone();
        within(300, move || write_until_error(&fs, ino, 1000))
    };
    assert_eq!(errno, 28, "ENOSPC after {written} bytes");
    assert!(content(&fs, old).unwrap() == pattern(1, 3_000_000));
    fs.unlink(ROOT, b"new").unwrap();
    lab.fault_all(Default::default);
    std::thread::sleep(Duration::from_millis(1200));
    fs.write(old, 0, &pattern(2, 3_000_000)).unwrap();
    fs.sync(old).unwrap();
    assert!(content(&fs, old).unwrap() == pattern(2, 3_000_000));
    assert_sound(&fs);
}

#[test]
fn more_lost_targets_than_allowed_are_errors_and_no_hang() {
    let mut lab = Lab::new("rs:4+2", 6);
    let fs = lab.open();
    let old = make(&fs, "old");
    fs.write(old, 0, &pattern(1, 3_000_000)).unwrap();
    fs.sync_all().unwrap();
    (0..3).for_each(|number| lab.fault(number, dead()));
    let error = content(&fs, old).unwrap_err();
    assert_eq!(error.errno(), 5, "{error}");
    let two = fs.clone();
    let (written, errno) = within(300, move || {
        let ino = make(&two, "new");
        write_until_error(&two, ino, 1000)
    });
    assert_ne!(errno, 0, "after {written} bytes");
    let two = fs.clone();
    within(300, move || _ = two.close_volume());
    let fs = lab.open();
    assert!(content(&fs, old).unwrap() == pattern(1, 3_000_000));
}

/// Too many targets fail for a while, with stripes that are not synced on them. If they were only
/// away, all is synced afterwards. If they may have lost something, that is told once. Then the
/// client goes on.
#[test]
fn a_client_goes_on_after_too_many_targets_failed() {
    let away = || Faults { away: true, ..Faults::default() };
    for (faults, is_synced) in [(away(), false), (away(), true), (dead(), true)] {
        let mut lab = Lab::new("rs:4+2", 6);
        let fs = lab.open();
        let (stored, other) = (make(&fs, "stored"), make(&fs, "other"));
        fs.write(stored, 0, &pattern(1, 9 << 20)).unwrap();
        // The first two stripes are written in the background.
        until("they are stored", || lab.chunk_bytes() >= 12 << 20);
        (3..6).for_each(|number| lab.fault(number, faults.clone()));
        if is_synced {
            fs.sync(stored).unwrap_err();
        }
        let (_, errno) = write_until_error(&fs, other, 1000);
        assert_ne!(errno, 0);
        (3..6).for_each(|number| lab.fault(number, Default::default()));
        until("it goes on", || fs.sync(stored).is_ok());
        let later = make(&fs, "later");
        fs.write(later, 0, &pattern(3, 3_000_000)).unwrap();
        fs.sync(later).unwrap();
        lab.kill(fs);
        let fs = lab.open();
        assert!(content(&fs, later).unwrap() == pattern(3, 3_000_000));
        if faults.away {
            assert!(content(&fs, stored).unwrap() == pattern(1, 9 << 20));
        }
        // A target that was late is left out of a set, and the set is in the queue for repair.
        assert_eq!(fs.repair(&Control::default()).unwrap().failed, []);
        assert_sound(&fs);
    }
}

#[test]
fn a_target_that_comes_back_is_used_again_after_a_repair() {
    let mut lab = Lab::new("rs:4+2", 6);
    let fs = lab.open();
    let ino = make(&fs, "file");
    fs.write(ino, 0, &pattern(1, 3_000_000)).unwrap();
    lab.fault(1, dead());
    fs.sync_all().unwrap();
    fs.write(ino, 3_000_000, &pattern(2, 3_000_000)).unwrap();
    fs.sync_all().unwrap();
    lab.fault(1, Default::default());
    let done = fs.repair(&Control::default()).unwrap();
    assert!(done.failed.is_empty(), "{:?}", done.failed);
    assert!(settled(&fs).is_healthy());
    assert_sound(&fs);
}

/// What a removed file had on a target that was away is removed when the target is back and the
/// volume is opened.
#[test]
fn chunks_that_were_deleted_while_their_target_was_away_do_not_stay() {
    let mut lab = Lab::new("rs:4+2", 6);
    let fs = lab.open();
    let ino = make(&fs, "file");
    fs.write(ino, 0, &pattern(1, 3_000_000)).unwrap();
    fs.sync_all().unwrap();
    lab.fault(1, dead());
    fs.unlink(ROOT, b"file").unwrap();
    fs.close_volume().unwrap();
    drop(fs);
    let fs = lab.open();
    fs.repair(&Control::default()).unwrap();
    fs.close_volume().unwrap();
    assert_eq!(lab.chunks(), []);
}

#[test]
fn deleting_everything_gives_all_space_back() {
    let mut lab = Lab::new("rs:4+2", 7);
    let fs = lab.open();
    for n in 0..40 {
        let ino = make(&fs, &format!("f{n}"));
        fs.write(ino, n * 1000, &pattern(n, 10_000 * n as usize)).unwrap();
        if n % 3 == 0 {
            fs.sync(ino).unwrap();
        }
        fs.copy_range((ino, 0), (ino, 1 << 30), 1 << 20).unwrap();
    }
    fs.sync_all().unwrap();
    assert_sound(&fs);
    (0..40).for_each(|n| fs.unlink(ROOT, format!("f{n}").as_bytes()).unwrap());
    fs.close_volume().unwrap();
    drop(fs);
    assert_eq!(lab.chunks(), []);
    let fs = lab.open();
    assert_eq!((fs.usage().unwrap().files, fs.status().unwrap().bytes), (1, 0));
}

/// Many files from many threads, and one that all of them write.
#[test]
fn fifty_threads() {
    let mut lab = Lab::new("rs:4+2", 6);
    let fs = lab.open();
    let shared = make(&fs, "shared");
    let threads: Vec<_> = (0..50u64)
        .map(|n| {
            let fs = fs.clone();
            std::thread::spawn(move || {
                let ino = make(&fs, &format!("own{n}"));
                for round in 0..10 {
                    fs.write(ino, round * 30_000, &pattern(n * 100 + round, 30_000)).unwrap();
                    fs.write(shared, (round * 50 + n) * 5_000, &pattern(n * 100 + round, 5_000)).unwrap();
                    if (n + round) % 4 == 0 {
                        fs.sync(if n % 2 == 0 { shared } else { ino }).unwrap();
                    }
                }
                ino
            })
        })
        .collect();
    let files: Vec<Ino> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    let check = |fs: &FileSystem| {
        let all = content(fs, shared).unwrap();
        for (n, &ino) in (0u64..).zip(&files) {
            let own = content(fs, ino).unwrap();
            for round in 0..10u64 {
                let want = pattern(n * 100 + round, 30_000);
                assert!(own[round as usize * 30_000..][..30_000] == want, "own{n} round {round}");
                let want = pattern(n * 100 + round, 5_000);
                assert!(all[((round * 50 + n) * 5_000) as usize..][..5_000] == want, "shared {n} round {round}");
            }
        }
    };
    check(&fs);
    fs.sync_all().unwrap();
    lab.lose_power(fs, 7);
    let fs = lab.open();
    check(&fs);
    assert_sound(&fs);
}

/// Several threads add and remove names; in the end every file has exactly one name, or none and
/// takes no space.
#[test]
fn names_under_several_threads() {
    let mut lab = Lab::new("none:2", 2);
    let fs = lab.open();
    let threads: Vec<_> = (0..4)
        .map(|seed| {
            let fs = fs.clone();
            std::thread::spawn(move || {
                let mut dice = fastrand::Rng::with_seed(seed);
                for _ in 0..400 {
                    let (a, b) = (format!("n{}", dice.u8(..6)), format!("n{}", dice.u8(..6)));
                    let (a, b) = ((ROOT, a.as_bytes()), (ROOT, b.as_bytes()));
                    match dice.u8(..8) {
                        0..=1 => _ = fs.make(a.0, a.1, &new(FileKind::File)),
                        2 => _ = fs.make(a.0, a.1, &new(FileKind::Directory)),
                        3 => _ = fs.rename(a, b, RenameMode::Replace),
                        4 => _ = fs.rename(a, b, RenameMode::Exchange),
                        5 => _ = fs.unlink(a.0, a.1),
                        6 => _ = fs.remove_directory(a.0, a.1),
                        _ => {
                            if let Ok(found) = fs.lookup(a.0, a.1)
                                && fs.open(found.ino, true).is_ok()
                            {
                                let _ = fs.write(found.ino, 0, &[1; 3000]);
                                let _ = fs.link(found.ino, b.0, b.1);
                                fs.close(found.ino);
                            }
                        }
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let left = fs.list(ROOT, 0, 100).unwrap();
    for entry in &left {
        if entry.attributes.kind == FileKind::Directory {
            fs.remove_directory(ROOT, &entry.name).unwrap();
        } else {
            fs.unlink(ROOT, &entry.name).unwrap();
        }
    }
    fs.close_volume().unwrap();
    drop(fs);
    assert_eq!(lab.chunks(), []);
    let fs = lab.open();
    let root = fs.attributes(ROOT).unwrap();
    assert_eq!((fs.usage().unwrap().files, root.links, root.size), (1, 2, 4096));
}

/// Commits race with truncation: the file is then in one of the two states, and metadata and
/// stripes agree.
#[test]
fn commits_race_with_truncation() {
    let mut lab = Lab::new("rs:2+1", 3);
    let fs = lab.open();
    let ino = make(&fs, "file");
    let cut = {
        let fs = fs.clone();
        std::thread::spawn(move || {
            for n in 0..150u64 {
                let size = Some((n * 7919) % 200_000);
                fs.set_attributes(ino, SetAttributes { size, ..SetAttributes::default() }).unwrap();
                fs.allocate(ino, Allocate::PunchHole, n * 100, 5_000).unwrap();
            }
        })
    };
    let sync = {
        let fs = fs.clone();
        std::thread::spawn(move || (0..150).for_each(|_| fs.sync(ino).unwrap()))
    };
    for n in 0..150u64 {
        fs.write(ino, (n * 6007) % 150_000, &vec![7; 40_000]).unwrap();
        fs.sync(ino).unwrap();
    }
    cut.join().unwrap();
    sync.join().unwrap();
    fs.sync_all().unwrap();
    let before = content(&fs, ino).unwrap();
    assert!(before.iter().all(|byte| matches!(byte, 0 | 7)));
    assert_sound(&fs);
    fs.close_volume().unwrap();
    let fs = lab.open();
    assert!(content(&fs, ino).unwrap() == before);
}

/// The size that a write gave a file stays when its data is punched out before the commit.
#[test]
fn a_size_survives_its_data() {
    let mut lab = Lab::new("rs:2+1", 3);
    let fs = lab.open();
    let ino = make(&fs, "file");
    fs.write(ino, 0, &pattern(1, 50_000)).unwrap();
    fs.allocate(ino, Allocate::PunchHole, 0, 60_000).unwrap();
    let modified = Some(fs::SetTime::Now);
    fs.set_attributes(ino, SetAttributes { modified, ..SetAttributes::default() }).unwrap();
    assert_eq!(fs.attributes(ino).unwrap().size, 50_000);
    fs.close_volume().unwrap();
    assert!(content(&lab.open(), ino).unwrap() == vec![0; 50_000]);
}

/// What was written and removed before its commit is in no transaction; its space is freed all the
/// same.
#[test]
fn what_is_removed_before_its_commit_leaves_nothing() {
    let mut lab = Lab::new("rs:2+1", 3);
    let fs = lab.open();
    let ino = make(&fs, "temporary");
    (0..40).for_each(|n| fs.write(ino, n << 20, &pattern(n, 1 << 20)).unwrap());
    fs.unlink(ROOT, b"temporary").unwrap();
    // Three sets may be open, another not synced.
    std::thread::sleep(COLLECT_DELAY);
    make(&fs, "other");
    fs.sync_all().unwrap();
    until("the other sets are freed", || lab.chunks().len() <= 12);
    fs.close_volume().unwrap();
    assert_eq!(lab.chunks(), []);
}

fn within_reach(reached: impl Fn() -> bool) {
    let begun = Instant::now();
    while !reached() {
        assert!(begun.elapsed() < Duration::from_secs(300), "it hangs");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Dropping a file system without closing it commits everything and does not hang.
#[test]
fn a_busy_file_system_can_be_dropped() {
    for round in 0..10 {
        let mut lab = Lab::new("rs:2+1", 3);
        let fs = lab.open();
        let ino = make(&fs, "file");
        (0..20).for_each(|n| fs.write(ino, n << 20, &pattern(n + round, 1 << 20)).unwrap());
        drop(fs);
        // The last holder may be one of its own threads.
        within_reach(|| lab.seen.iter().all(|disk| Arc::strong_count(disk) == 1));
        let fs = lab.open();
        let found = content(&fs, ino).unwrap();
        (0..20).for_each(|n| assert!(found[n << 20..(n + 1) << 20] == pattern(n as u64 + round, 1 << 20)));
        assert_sound(&fs);
    }
}

/// What is left of a mostly unreferenced chunk set moves to another one, and the set is deleted.
#[test]
fn sparse_chunk_sets_are_written_anew() {
    let mut lab = Lab::new("rs:2+1", 3);
    let fs = lab.open();
    let files: Vec<Ino> = (0..20).map(|n| make(&fs, &format!("f{n}"))).collect();
    files.iter().for_each(|&ino| fs.write(ino, 0, &pattern(ino.0, 1_000_000)).unwrap());
    fs.close_volume().unwrap();
    drop(fs);
    let before = lab.chunks();
    assert!(!before.is_empty());
    let fs = lab.open();
    (1..20).for_each(|n| fs.unlink(ROOT, format!("f{n}").as_bytes()).unwrap());
    within_reach(|| !lab.chunks().iter().any(|chunk| before.contains(chunk)));
    assert!(content(&fs, files[0]).unwrap() == pattern(files[0].0, 1_000_000));
    assert_sound(&fs);
    fs.close_volume().unwrap();
    drop(fs);
    assert!(content(&lab.open(), files[0]).unwrap() == pattern(files[0].0, 1_000_000));
}

/// Stripes without references need no chunks.
#[test]
fn a_check_says_nothing_of_what_is_dead() {
    let mut lab = Lab::new("rs:2+1", 3);
    let fs = lab.open();
    fs.write(make(&fs, "file"), 0, &pattern(1, 1_000_000)).unwrap();
    fs.sync_all().unwrap();
    // Not collected yet, because a reader could still be using it.
    fs.unlink(ROOT, b"file").unwrap();
    let chunks = lab.chunks();
    assert_eq!(chunks.len(), 3);
    chunks.iter().for_each(|(number, file, _)| volume::target::Target::remove(&*lab.disks[*number], *file).unwrap());
    assert_eq!(fs.check().unwrap().problems, Vec::<String>::new());
}
