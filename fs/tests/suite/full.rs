//! Volumes without space, or with targets that are full or away: no accepted data is lost, deleting
//! works, and writing continues when there is space.

use crate::lab::*;
use fs::{FileSystem, OpenOptions, ROOT, SetAttributes};
use meta::kv::MemoryIndex;
use plan::{Position, SetId, TargetId};
use std::sync::Arc;
use std::time::{Duration, Instant};
use volume::Control;
use volume::target::{Durable, Faults, Memory, Target, TargetFile};

const MIB: u64 = 1 << 20;

/// A volume on targets with limited space.
struct Small {
    label: fs::label::Label,
    disks: Vec<Arc<Memory>>,
}

impl Small {
    fn new(code: &str, reported_spaces: &[u64]) -> Self {
        let label = Lab::new(code, reported_spaces.len()).label;
        let small = Self {
            label,
            disks: reported_spaces.iter().map(|&capacity| Arc::new(Memory::with_capacity(capacity))).collect(),
        };
        FileSystem::create_on(&small.label, small.places()).unwrap();
        small
    }

    fn places(&self) -> Vec<(TargetId, Arc<dyn Target>)> {
        let disks = self.disks.iter().enumerate();
        disks.map(|(number, disk)| (TargetId(number as u16), disk.clone() as Arc<dyn Target>)).collect()
    }

    fn open(&self) -> Arc<FileSystem> {
        let (label, places) = (self.label.clone(), self.places());
        let open = || FileSystem::open_on(label, places, Box::new(MemoryIndex::default()), OpenOptions::default());
        within(300, open).unwrap()
    }
}

/// Creates files until several fail for lack of space; returns those that were created and written.
fn fill(fs: &FileSystem, prefix: &str, bytes: usize) -> Vec<(String, u64)> {
    let (mut made, mut failures) = (Vec::new(), 0);
    for n in 0..1_000_000u64 {
        let name = format!("{prefix}{n}");
        let done = fs.make(ROOT, name.as_bytes(), &new(fs::FileKind::File)).and_then(|file| {
            fs.write(file.ino, 0, &pattern(n, bytes))?;
            Ok(file.ino)
        });
        match done {
            Ok(_) => {
                made.push((name, n));
                failures = 0;
            }
            Err(error) => {
                assert_eq!(error.errno(), 28, "{error}");
                failures += 1;
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        if failures == 40 {
            return made;
        }
    }
    panic!("it is never full");
}

fn assert_all(fs: &FileSystem, files: &[(String, u64)], bytes: usize) {
    for (name, seed) in files {
        let ino = fs.lookup(ROOT, name.as_bytes()).unwrap().ino;
        assert!(content(fs, ino).unwrap() == pattern(*seed, bytes), "{name}");
    }
}

/// Small files are in the metadata, which fills its targets. Afterwards all can be removed, before
/// and after a new opening.
#[test]
fn a_volume_that_is_full_of_metadata_gives_space_back() {
    let small = Small::new("rs:4+2", &[48 * MIB; 6]);
    let fs = small.open();
    let files = fill(&fs, "f", 2000);
    assert!(files.len() > 2000, "{}", files.len());
    fs.sync_all().unwrap();
    // A mirror that had no space for a moment is made whole in the background.
    until("all mirrors are whole", || fs.status().unwrap().mirrors == (3, 3));
    let (first, rest) = files.split_at(files.len() / 2);
    first.iter().for_each(|(name, _)| fs.unlink(ROOT, name.as_bytes()).unwrap());
    fs.sync_all().unwrap();
    fs.close_volume().unwrap();
    drop(fs);
    let fs = small.open();
    assert_all(&fs, rest, 2000);
    rest.iter().for_each(|(name, _)| fs.unlink(ROOT, name.as_bytes()).unwrap());
    fs.sync_all().unwrap();
    // Space is freed bit by bit.
    let (mut again, mut rounds, begun) = (0, 0, Instant::now());
    while again * 2 <= files.len() {
        assert!(begun.elapsed() < Duration::from_secs(120), "room for {again} of {}", files.len());
        rounds += 1;
        again += fill(&fs, &format!("g{rounds}-"), 2000).len();
    }
    fs.close_volume().unwrap();
}

/// With less than a twentieth of its space free, a volume needs attention though all of it is
/// whole.
#[test]
fn a_volume_that_is_nearly_full_needs_attention() {
    let small = Small::new("rs:2+1", &[64 * MIB; 3]);
    let fs = small.open();
    let mut names = Vec::new();
    let is_low = |status: &fs::Status| status.usage.free * 20 < status.usage.total;
    let full = loop {
        let known = std::cell::RefCell::new(fs.status().unwrap());
        until("it is healthy or nearly full", || {
            *known.borrow_mut() = fs.status().unwrap();
            known.borrow().is_healthy() || is_low(&known.borrow())
        });
        let status = known.into_inner();
        assert_eq!((status.is_nearly_full(), status.is_healthy()), (is_low(&status), !is_low(&status)));
        if is_low(&status) {
            break status;
        }
        let name = format!("f{}", names.len());
        fs.write(make(&fs, &name), 0, &pattern(1, 500_000)).unwrap();
        fs.sync_all().unwrap();
        names.push(name);
    };
    assert!(full.usage.free > 0 && full.targets.iter().all(|target| target.problem.is_none()), "{full:#?}");
    names.iter().for_each(|name| fs.unlink(ROOT, name.as_bytes()).unwrap());
    let begun = Instant::now();
    loop {
        let status = fs.status().unwrap();
        if status.is_healthy() {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(300), "there is space: {status:#?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    fs.close_volume().unwrap();
}

/// Other data filled the disks: the volume opens and can be read.
#[test]
fn a_volume_on_full_disks_opens() {
    let small = Small::new("rs:4+2", &[48 * MIB; 6]);
    let fs = small.open();
    let ino = make(&fs, "file");
    fs.write(ino, 0, &pattern(1, 300_000)).unwrap();
    fs.close_volume().unwrap();
    drop(fs);
    // A file with a foreign name would not be seen; one without a valid header is left alone.
    let foreign = TargetFile::NewChunk { set: SetId(1 << 40), position: Position(0) };
    for disk in &small.disks {
        let free = disk.space().unwrap().free as usize;
        disk.write(foreign, 0, &[std::io::IoSlice::new(&vec![1; free])], Durable::Later).unwrap();
    }
    let fs = small.open();
    assert!(content(&fs, ino).unwrap() == pattern(1, 300_000));
    assert_eq!(fs.list(ROOT, 0, 10).unwrap().len(), 1);
    until("it refuses more", || {
        fs.make(ROOT, b"new", &new(fs::FileKind::File)).and_then(|file| fs.write(file.ino, 0, &[1; 9])).is_err()
    });
    small.disks.iter().for_each(|disk| disk.remove(foreign).unwrap());
    until("there is space", || fs.write(ino, 0, &pattern(2, 300_000)).is_ok() && fs.sync(ino).is_ok());
    fs.close_volume().unwrap();
}

/// What was written without an error exists in the end, on targets of any sizes.
#[test]
fn nothing_is_lost_near_the_end_of_the_space() {
    let sizes = [60, 60, 60, 60, 60, 24].map(|mib| mib * MIB);
    let small = Small::new("rs:4+2", &sizes);
    let fs = small.open();
    let files = fill(&fs, "f", 100_000);
    assert!(files.len() > 50, "{}", files.len());
    fs.sync_all().unwrap();
    fs.close_volume().unwrap();
    drop(fs);
    let fs = small.open();
    assert_all(&fs, &files, 100_000);
    files.iter().for_each(|(name, _)| fs.unlink(ROOT, name.as_bytes()).unwrap());
    until("there is space", || fs.usage().unwrap().free > 20 * MIB);
}

/// The space that writers must leave free is available for repairs.
#[test]
fn a_full_volume_can_be_repaired() {
    let small = Small::new("rs:4+2", &[48 * MIB; 6]);
    let fs = small.open();
    let files = fill(&fs, "f", 100_000);
    fs.sync_all().unwrap();
    let chunks = small.disks[4].list().unwrap().into_iter().map(|(file, _)| file);
    let lost = chunks.filter(|file| matches!(file, TargetFile::Chunk { .. })).min().unwrap();
    small.disks[4].remove(lost).unwrap();
    // Other data takes the space that this freed.
    let free = small.disks[4].space().unwrap().free as usize;
    let foreign = TargetFile::NewChunk { set: SetId(1 << 40), position: Position(0) };
    small.disks[4].write(foreign, 0, &[std::io::IoSlice::new(&vec![1; free - (5 << 20)])], Durable::Later).unwrap();
    assert!(!fs.verify(&Control::default()).unwrap().is_sound());
    let done = fs.repair(&Control::default()).unwrap();
    assert!(done.failed.is_empty(), "{:?}", done.failed);
    assert!(done.chunks > 0 && small.disks[4].list().unwrap().iter().any(|(file, _)| *file == lost));
    assert_all(&fs, &files, 100_000);
}

/// A file without space does not keep others from being committed.
#[test]
fn what_is_in_stripes_is_committed_beside_what_finds_no_space() {
    let mut lab = Lab::new("rs:4+2", 6);
    let fs = lab.open();
    let (stored, dirty) = (make(&fs, "stored"), make(&fs, "dirty"));
    fs.write(stored, 0, &pattern(1, 9 << 20)).unwrap();
    // The first two stripes are written in the background.
    until("they are stored", || lab.chunk_bytes() >= 12 << 20);
    // The metadata is on the others.
    (3..6).for_each(|number| lab.fault(number, full()));
    fs.write(dirty, 0, &pattern(2, 500_000)).unwrap();
    let error = fs.sync_all().unwrap_err();
    assert_eq!(error.errno(), 28, "{error}");
    lab.kill(fs);
    let fs = lab.open();
    let found = content(&fs, stored).unwrap();
    assert!(found.len() >= 4 << 20, "{}", found.len());
    assert!(found == pattern(1, 9 << 20)[..found.len()]);
    assert_eq!(fs.attributes(dirty).unwrap().size, 0);
    assert_sound(&fs);
}

fn sets_of(stripes: u64, missing: &[usize], fault: impl Fn(&Lab)) -> usize {
    let mut lab = Lab::new("rs:4+2", 6);
    let fs = lab.try_open(missing).unwrap();
    fault(&lab);
    let ino = make(&fs, "file");
    for n in 0..stripes {
        fs.write(ino, n * 40_000, &pattern(n, 40_000)).unwrap();
        fs.sync(ino).unwrap();
    }
    fs.status().unwrap().sets
}

/// Stripes share chunk sets although one target does not take part.
#[test]
fn a_target_that_is_away_or_full_does_not_make_a_set_for_every_stripe() {
    assert!(sets_of(40, &[5], |_| ()) <= 2);
    assert!(sets_of(40, &[], |lab| lab.fault(5, full())) <= 2);
    assert!(sets_of(40, &[], |lab| lab.fault(5, dead())) <= 3);
}

/// Too many targets failed for a while: when they are back, writing continues by itself.
#[test]
fn targets_that_work_again_are_used_again() {
    let mut lab = Lab::new("rs:4+2", 6);
    let fs = lab.open();
    let ino = make(&fs, "file");
    (3..6).for_each(|number| lab.fault(number, dead()));
    fs.write(ino, 0, &pattern(1, 500_000)).unwrap();
    fs.sync(ino).unwrap_err();
    (3..6).for_each(|number| lab.fault(number, Faults::default()));
    // At once, before any probe.
    fs.sync(ino).unwrap();
    until("they are found to work", || fs.status().unwrap().targets.iter().all(|target| target.problem.is_none()));
    let done = fs.repair(&Control::default()).unwrap();
    assert!(done.failed.is_empty(), "{:?}", done.failed);
    // Mirrors of the metadata that failed are made whole in the background.
    until("it is healthy", || fs.status().unwrap().is_healthy());
    assert!(content(&fs, ino).unwrap() == pattern(1, 500_000));
}

/// One fsync waits for hanging targets no longer than one operation does.
#[test]
fn a_sync_ends_in_time_when_too_many_targets_hang() {
    let mut lab = Lab::new("rs:4+2", 6);
    lab.deadline = Some(Duration::from_secs(15));
    let fs = lab.open();
    let ino = make(&fs, "file");
    (3..6).for_each(|number| lab.fault(number, hanging()));
    let two = fs.clone();
    // A third wait does not fit.
    within(44, move || {
        two.write(ino, 0, &pattern(1, 500_000)).unwrap();
        two.sync(ino).unwrap_err();
    });
    (3..6).for_each(|number| lab.fault(number, Faults::default()));
    until("they are back", || fs.sync(ino).is_ok());
    assert!(content(&fs, ino).unwrap() == pattern(1, 500_000));
}

/// A size that could not be set is not shown.
#[test]
fn a_file_that_could_not_be_cut_off_is_as_long_as_before() {
    let mut lab = Lab::new("rs:2+1", 3);
    let fs = lab.open();
    let ino = make(&fs, "file");
    fs.open(ino, true).unwrap();
    fs.write(ino, 0, &pattern(1, 5000)).unwrap();
    fs.sync(ino).unwrap();
    lab.fault_all(dead);
    until("the metadata fails", || {
        _ = fs.make(ROOT, b"other", &new(fs::FileKind::File));
        fs.sync_all().is_err()
    });
    fs.set_attributes(ino, SetAttributes { size: Some(10), ..SetAttributes::default() }).unwrap_err();
    assert_eq!(fs.attributes(ino).unwrap().size, 5000);
}
