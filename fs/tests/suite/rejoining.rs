//! Targets that rejoin: what they missed is cleaned up, and nothing that may be needed is removed.

use crate::lab::*;
use fs::{FileKind, FileSystem, OpenOptions, Places, ROOT};
use meta::kv::MemoryIndex;
use plan::TargetId;
use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use volume::Control;
use volume::target::{Claim, ClaimRequest, Durable, Epoch, Faults, ReadAt, Target, TargetFile};

/// Journals and snapshots of all disks.
fn metadata(lab: &Lab) -> Vec<(usize, TargetFile, Vec<u8>)> {
    let mut all = Vec::new();
    for (number, disk) in lab.disks.iter().enumerate() {
        for (file, length) in disk.list().unwrap() {
            if matches!(file, TargetFile::Journal { .. } | TargetFile::Snapshot { .. }) {
                let mut bytes = vec![0; length as usize];
                let read = disk.read_at(file, 0, &mut bytes).unwrap_or(0);
                bytes.truncate(read);
                all.push((number, file, bytes));
            }
        }
    }
    all
}

fn put_back(lab: &Lab, saved: &[(usize, TargetFile, Vec<u8>)]) {
    // Changes by hand need a claim of their own.
    for disk in &lab.disks {
        let last = disk.claim(&ClaimRequest::Read).unwrap().claim.unwrap();
        let claim = Claim { epoch: Epoch { number: last.epoch.number + 1, id: 1 }, ..last };
        disk.claim(&ClaimRequest::Take { claim, lease: Duration::ZERO, blank: 0 }).unwrap();
    }
    metadata(lab).into_iter().for_each(|(number, file, _)| lab.disks[number].remove(file).unwrap());
    for (number, file, bytes) in saved {
        lab.disks[*number].write(*file, 0, &[IoSlice::new(bytes)], Durable::Later).unwrap();
        lab.disks[*number].sync(*file).unwrap();
    }
}

#[test]
fn chunks_of_deleted_sets_go_without_a_repair() {
    let mut lab = Lab::new("rs:4+2", 6);
    let fs = lab.open();
    fs.write(make(&fs, "file"), 0, &pattern(1, 3_000_000)).unwrap();
    fs.close_volume().unwrap();
    drop(fs);
    let fs = lab.try_open(&[1]).unwrap();
    fs.unlink(ROOT, b"file").unwrap();
    fs.close_volume().unwrap();
    drop(fs);
    assert!(!lab.chunks().is_empty());
    let _fs = lab.open();
    until("they go", || lab.chunks().is_empty());
}

#[test]
fn a_removal_that_failed_is_tried_again() {
    let mut lab = Lab::new("rs:4+2", 6);
    let fs = lab.open();
    fs.write(make(&fs, "file"), 0, &pattern(1, 3_000_000)).unwrap();
    fs.close_volume().unwrap();
    drop(fs);
    let fs = lab.open();
    lab.fault(1, dead());
    fs.unlink(ROOT, b"file").unwrap();
    until("the others go", || lab.chunks().iter().all(|(number, ..)| *number == 1));
    assert!(!lab.chunks().is_empty());
    lab.fault(1, Faults::default());
    until("the last goes", || lab.chunks().is_empty());
    drop(fs);
}

/// An operator who finds out that the metadata was restored from an old copy, and puts the newer
/// one back, has everything.
#[test]
fn old_metadata_deletes_nothing_that_is_newer() {
    let mut lab = Lab::new("rs:2+1", 5);
    let fs = lab.open();
    let first = make(&fs, "first");
    fs.write(first, 0, &pattern(1, 2_000_000)).unwrap();
    fs.sync_all().unwrap();
    // Seals the set: in an open set, whatever is behind the last transaction is punched at the next
    // opening, with any copy of the metadata.
    fs.repair(&Control::default()).unwrap();
    fs.sync_all().unwrap();
    let old = metadata(&lab);
    // Created later, and moved later.
    let second = make(&fs, "second");
    fs.write(second, 0, &pattern(2, 20_000_000)).unwrap();
    fs.sync_all().unwrap();
    let bad = lab.chunks()[0].0;
    lab.fault(bad, dead());
    fs.write(make(&fs, "notices"), 0, &pattern(3, 100_000)).unwrap();
    fs.sync_all().unwrap();
    // Only the restored metadata matters here, so a repair that leaves this target out is what the
    // test needs.
    lab.fault(bad, Faults { full: true, ..Faults::default() });
    // The first one may find out that it is full: the space that it had is remembered for a while.
    until("a repair leaves it out", || fs.repair(&Control::default()).unwrap().failed.is_empty());
    lab.fault_all(Faults::default);
    fs.close_volume().unwrap();
    drop(fs);
    let (new, chunks) = (metadata(&lab), lab.chunks());
    put_back(&lab, &old);
    // More than once: each opening knows what the one before it created.
    for round in 0..3 {
        let fs = lab.open();
        assert!(content(&fs, first).is_ok_and(|found| found == pattern(1, 2_000_000)), "round {round}");
        fs.make(ROOT, format!("d{round}").as_bytes(), &new_directory()).unwrap();
        fs.repair(&Control::default()).unwrap();
        std::thread::sleep(Duration::from_millis(1500));
        fs.close_volume().unwrap();
    }
    let left = lab.chunks();
    let lost: Vec<_> = chunks.iter().filter(|chunk| !left.iter().any(|other| other.1 == chunk.1)).collect();
    assert!(lost.is_empty(), "{lost:?}");
    put_back(&lab, &new);
    let fs = lab.open();
    assert!(content(&fs, second).unwrap() == pattern(2, 20_000_000));
}

fn new_directory() -> fs::New {
    new(FileKind::Directory)
}

/// Metadata on fewer targets than wanted is reported, and is repaired.
#[test]
fn the_metadata_returns_to_its_targets() {
    let mut lab = Lab::new("rs:4+2", 6);
    let fs = lab.open();
    // As many as may be away, and one more: others take the metadata over.
    for gone in [0, 1, 2] {
        lab.fault(gone, dead());
        let ino = make(&fs, &format!("without {gone}"));
        fs.write(ino, 0, &[1; 100]).unwrap();
        fs.sync_all().unwrap();
        until("three have it", || fs.status().unwrap().mirrors == (3, 3));
    }
    lab.fault(3, dead());
    fs.make(ROOT, b"more", &new_directory()).unwrap();
    fs.sync_all().unwrap_err();
    until("it is noticed", || fs.status().unwrap().mirrors == (2, 3));
    let status = fs.status().unwrap();
    assert!(!status.is_healthy() && status.metadata_error.is_some(), "{status:#?}");
    lab.fault_all(Faults::default);
    until("it can be repaired", || fs.repair(&Control::default()).is_ok());
    until("three have it again", || fs.status().unwrap().is_healthy());
    // And what was made meanwhile is there.
    fs.sync_all().unwrap();
    fs.close_volume().unwrap();
    let fs = lab.try_open(&[4, 5]).unwrap();
    assert!(fs.lookup(ROOT, b"more").is_ok() && fs.lookup(ROOT, b"without 2").is_ok());
}

/// A hanging disk delays neither the collector nor a repair for longer than the deadline.
#[test]
fn a_disk_that_hangs_holds_up_neither_collector_nor_repair() {
    let mut lab = Lab::new("rs:4+2", 7);
    lab.deadline = Some(Duration::from_secs(2));
    let fs = lab.open();
    fs.write(make(&fs, "gone"), 0, &pattern(1, 3_000_000)).unwrap();
    fs.close_volume().unwrap();
    drop(fs);
    let fs = lab.open();
    fs.write(make(&fs, "kept"), 0, &pattern(2, 3_000_000)).unwrap();
    fs.sync_all().unwrap();
    let bad = lab.chunks()[0].0;
    lab.fault(bad, hanging());
    let before = lab.chunks().len();
    fs.unlink(ROOT, b"gone").unwrap();
    until("the others go", || lab.chunks().len() <= before - 5);
    let two = fs.clone();
    let done = within(300, move || two.repair(&Control::default()).unwrap());
    assert!(done.failed.is_empty(), "{done:?}");
    // Closing does not wait for the disk either.
    within(300, move || _ = fs.close_volume());
}

/// A place whose directory hangs, as a disk does that has failed.
#[derive(Debug)]
struct Hanging {
    asked: Mutex<Sender<()>>,
    released: Mutex<Receiver<()>>,
}

impl Places for Hanging {
    fn format(&self, _: &Path) -> fs::Result<Arc<dyn Target>> {
        unreachable!("nobody makes any")
    }

    fn open(&self, _: &Path) -> fs::Result<Arc<dyn Target>> {
        let _ = self.asked.lock().unwrap().send(());
        let _ = self.released.lock().unwrap().recv();
        Err(fs::Error::Unavailable("it hung".into()))
    }

    fn full(&self, place: &Path) -> fs::Result<PathBuf> {
        Ok(place.into())
    }
}

/// As when a server gives the volume away while it looks for a target that is missing.
#[test]
fn a_missing_target_that_hangs_keeps_no_closed_volume_open() {
    let lab = Lab::new("rs:2+1", 3);
    let ((asked, asks), (release, released)) = (channel(), channel());
    let places = Arc::new(Hanging { asked: Mutex::new(asked), released: Mutex::new(released) });
    let there = lab.disks.iter().take(2).enumerate();
    let there = there.map(|(number, disk)| (TargetId(number as u16), disk.clone() as Arc<dyn Target>)).collect();
    let options = OpenOptions { places, ..OpenOptions::default() };
    let fs = FileSystem::open_on(lab.label.clone(), there, Box::new(MemoryIndex::default()), options).unwrap();
    asks.recv_timeout(Duration::from_secs(60)).unwrap();
    let weak = Arc::downgrade(&fs);
    fs.close_volume().unwrap();
    drop(fs);
    until("nothing holds it", || weak.strong_count() == 0);
    drop::<Sender<()>>(release);
}
