//! Volumes in directories: opened, lost, found again and rebuilt.

use crate::lab::place::Place;
use crate::lab::{assert_sound, content, make, new, pattern, settled, until};
use fs::{Error, FileKind, FileSystem, OpenOptions, ROOT, Sessions};
use plan::Ino;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes that the files below a directory occupy on the disk.
fn allocated(path: &Path) -> u64 {
    let entries = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap());
    let of = |entry: std::fs::DirEntry| match entry.metadata().unwrap() {
        found if found.is_dir() => allocated(&entry.path()),
        found => found.blocks() * 512,
    };
    entries.map(of).sum()
}

fn refusal(result: fs::Result<Arc<FileSystem>>) -> Error {
    result.err().expect("it is refused")
}

#[test]
fn a_volume_is_open_once() {
    let place = Place::new("once");
    let fs = place.create("rs:2+1", 3);
    let error = refusal(place.open());
    assert!(matches!(error, Error::Conflict(_)), "{error}");
    // Not through another volume directory, either.
    let other = place.0.join("other");
    std::fs::create_dir(&other).unwrap();
    std::fs::copy(place.volume().join("volume.json"), other.join("volume.json")).unwrap();
    let error = refusal(FileSystem::open_volume(&other, OpenOptions::default()));
    assert_eq!(error.errno(), 16, "{error}");
    fs.close_volume().unwrap();
    drop(fs);
    place.open().unwrap();
}

#[test]
fn what_is_no_volume_is_left_alone() {
    let place = Place::new("foreign");
    place.create("rs:2+1", 3).close_volume().unwrap();
    assert!(matches!(refusal(FileSystem::open_volume(&place.0, OpenOptions::default())), Error::NotFound(_)));
    // A target of another volume in the place of one of ours is not used and not changed.
    let other = Place::new("foreign-other");
    other.create("rs:2+1", 3).close_volume().unwrap();
    std::fs::remove_dir_all(place.target(1)).unwrap();
    std::fs::rename(other.target(1), place.target(1)).unwrap();
    let before = allocated(&place.target(1));
    let fs = place.open().unwrap();
    let ino = make(&fs, "file");
    fs.write(ino, 0, &pattern(1, 1_000_000)).unwrap();
    let status = fs.status().unwrap();
    fs.close_volume().unwrap();
    assert_eq!(allocated(&place.target(1)), before);
    assert!(status.targets[1].problem.as_ref().is_some_and(|why| why.contains("another volume")), "{status:#?}");
}

#[test]
fn a_newer_format_is_refused() {
    let place = Place::new("newer");
    place.create("rs:2+1", 3).close_volume().unwrap();
    let pointer = place.volume().join("volume.json");
    let text = std::fs::read_to_string(&pointer).unwrap();
    assert!(text.contains("\"format\": 2"));
    std::fs::write(&pointer, text.replace("\"format\": 2", "\"format\": 9")).unwrap();
    let error = refusal(place.open()).to_string();
    assert!(error.contains("format 9"), "{error}");
    std::fs::write(&pointer, text).unwrap();
    // On a target: a newer version has used it, so this one refuses.
    let label = place.target(0).join("weft.label");
    let text = std::fs::read_to_string(&label).unwrap();
    std::fs::write(&label, text.replace("\"format\": 2", "\"format\": 9")).unwrap();
    let fs = place.open();
    let shown = fs.map(|fs| fs.status().unwrap().targets[0].problem.clone().unwrap_or_default());
    assert!(shown.as_ref().map_or_else(|error| error.to_string(), Clone::clone).contains("format 9"), "{shown:?}");
}

/// Creates files in directories, short and long, synced into the metadata and not.
fn fill(fs: &FileSystem) -> Vec<(String, Vec<u8>)> {
    let inside = fs.make(ROOT, b"inside", &new(FileKind::Directory)).unwrap().ino;
    let mut files = Vec::new();
    for n in 0..20u64 {
        let name = format!("file{n}");
        let ino = fs.make(inside, name.as_bytes(), &new(FileKind::File)).unwrap().ino;
        let data = pattern(n, 50_000 * n as usize + 1000);
        fs.write(ino, 0, &data).unwrap();
        // Overwritten later, so that the order of stripes matters.
        let (at, later) = (data.len() / 2, pattern(n + 100, 300));
        if n % 2 == 0 {
            fs.sync(ino).unwrap();
            fs.write(ino, at as u64, &later).unwrap();
        }
        let mut data = data;
        if n % 2 == 0 {
            data[at..at + 300].copy_from_slice(&later);
        }
        files.push((name, data));
    }
    fs.sync_all().unwrap();
    files
}

fn assert_has(fs: &FileSystem, files: &[(String, Vec<u8>)]) {
    let inside = fs.lookup(ROOT, b"inside").unwrap().ino;
    for (name, data) in files {
        let ino = fs.lookup(inside, name.as_bytes()).unwrap_or_else(|error| panic!("{name}: {error}")).ino;
        assert!(content(fs, ino).unwrap() == *data, "{name}");
    }
}

#[test]
fn the_volume_directory_and_any_two_targets_may_go() {
    for lost in [[0, 1], [2, 5], [3, 4]] {
        let place = Place::new(&format!("lost{}{}", lost[0], lost[1]));
        let fs = place.create("rs:4+2", 6);
        let files = fill(&fs);
        fs.close_volume().unwrap();
        drop(fs);
        std::fs::remove_dir_all(place.volume()).unwrap();
        lost.iter().for_each(|&number| std::fs::remove_dir_all(place.target(number)).unwrap());
        let left: Vec<PathBuf> = (0..6).filter(|n| !lost.contains(n)).map(|n| place.target(n)).collect();
        fs::reopen(&place.volume(), &left, std::sync::Arc::new(fs::Directories)).unwrap();
        let fs = place.open().unwrap();
        assert_has(&fs, &files);
        assert!(fs.check().unwrap().problems.is_empty());
    }
}

#[test]
fn names_and_contents_come_back_from_chunks_alone() {
    let place = Place::new("rebuild");
    let fs = place.create("rs:4+2", 6);
    let files = fill(&fs);
    // Data that is only in the metadata cannot be restored, so it moves into stripes; what fits in
    // an inode stays.
    until("data moves into stripes", || fs.check().unwrap().inline_bytes <= 2048);
    fs.close_volume().unwrap();
    drop(fs);
    for number in 0..6 {
        for entry in
            ["journal", "snapshots"].iter().flat_map(|d| std::fs::read_dir(place.target(number).join(d)).unwrap())
        {
            std::fs::remove_file(entry.unwrap().path()).unwrap();
        }
    }
    std::fs::remove_dir_all(place.target(2)).unwrap();
    assert!(place.open().is_err());
    let rebuilt = fs::rebuild(&place.volume(), std::sync::Arc::new(fs::Directories)).unwrap();
    // Files that fit in their inodes stay in the metadata for good, and are lost with it.
    let in_chunks = |data: &[u8]| data.len() > 2048;
    assert_eq!((rebuilt.files, rebuilt.unnamed), (files.iter().filter(|(_, data)| in_chunks(data)).count(), 0));
    let fs = place.open().unwrap();
    let inside = fs.lookup(ROOT, b"inside").unwrap().ino;
    let wrong = files.iter().filter(|(_, data)| in_chunks(data)).filter(|(name, data)| {
        let found = fs.lookup(inside, name.as_bytes()).and_then(|found| content(&fs, found.ino));
        !found.is_ok_and(|found| found == *data)
    });
    let wrong: Vec<&str> = wrong.map(|(name, _)| name.as_str()).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    assert!(fs.check().unwrap().problems.is_empty());
}

#[test]
fn space_on_disks_is_given_back() {
    let place = Place::new("room");
    let fs = place.create("rs:4+2", 6);
    let files: Vec<Ino> = (0..10).map(|n| make(&fs, &format!("f{n}"))).collect();
    files.iter().for_each(|&ino| fs.write(ino, 0, &pattern(ino.0, 6_000_000)).unwrap());
    fs.sync_all().unwrap();
    let chunks = || (0..6).map(|number| allocated(&place.target(number).join("chunks"))).sum::<u64>();
    let full = chunks();
    assert!(full >= 90_000_000, "{full}");
    // Half of it is punched or moved, all of it is freed.
    (0..5).for_each(|n| fs.unlink(ROOT, format!("f{}", n * 2).as_bytes()).unwrap());
    let begun = Instant::now();
    while chunks() >= full * 2 / 3 {
        assert!(begun.elapsed() < Duration::from_secs(300), "{} of {full}", chunks());
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_sound(&fs);
    (0..5).for_each(|n| fs.unlink(ROOT, format!("f{}", n * 2 + 1).as_bytes()).unwrap());
    fs.close_volume().unwrap();
    assert_eq!(chunks(), 0);
}

fn remove_metadata(place: &Place, targets: std::ops::Range<usize>) {
    for number in targets {
        for below in ["journal", "snapshots"] {
            for entry in std::fs::read_dir(place.target(number).join(below)).unwrap() {
                std::fs::remove_file(entry.unwrap().path()).unwrap();
            }
        }
    }
}

/// Chunks of files that were deleted while a target was away do not bring the files back, and do no
/// harm.
#[test]
fn a_rebuild_takes_stale_chunks_for_what_they_are() {
    let place = Place::new("stale");
    let fs = place.create("rs:4+2", 6);
    fs.write(make(&fs, "gone"), 0, &pattern(1, 3_000_000)).unwrap();
    fs.close_volume().unwrap();
    drop(fs);
    let fs = place.open().unwrap();
    fs.write(make(&fs, "kept"), 0, &pattern(2, 3_000_000)).unwrap();
    fs.close_volume().unwrap();
    drop(fs);
    let away = place.0.join("away");
    std::fs::rename(place.target(5), &away).unwrap();
    let fs = place.open().unwrap();
    fs.unlink(ROOT, b"gone").unwrap();
    fs.close_volume().unwrap();
    drop(fs);
    std::fs::rename(&away, place.target(5)).unwrap();
    remove_metadata(&place, 0..6);
    let rebuilt = fs::rebuild(&place.volume(), std::sync::Arc::new(fs::Directories)).unwrap();
    assert_eq!((rebuilt.files, rebuilt.sets), (1, 1), "{rebuilt:?}");
    let said = |line: &String| line.contains("1 of its chunks are left and 4 are needed");
    assert!(rebuilt.problems.len() == 1 && rebuilt.problems.iter().all(said), "{rebuilt:?}");
    let fs = place.open().unwrap();
    assert!(fs.lookup(ROOT, b"gone").is_err());
    assert!(content(&fs, fs.lookup(ROOT, b"kept").unwrap().ino).unwrap() == pattern(2, 3_000_000));
    assert_sound(&fs);
}

/// With too many targets away, a rebuild finds nothing and destroys nothing: when they are back, it
/// finds everything.
#[test]
fn a_rebuild_without_enough_targets_harms_nothing() {
    let place = Place::new("too-few");
    let fs = place.create("rs:4+2", 6);
    fs.write(make(&fs, "file"), 0, &pattern(1, 3_000_000)).unwrap();
    fs.close_volume().unwrap();
    drop(fs);
    remove_metadata(&place, 0..6);
    let away = |number: usize| place.0.join(format!("away{number}"));
    (0..3).for_each(|number| std::fs::rename(place.target(number), away(number)).unwrap());
    let rebuilt = fs::rebuild(&place.volume(), std::sync::Arc::new(fs::Directories)).unwrap();
    // Each target that is away, and the chunk set.
    assert_eq!((rebuilt.files, rebuilt.sets, rebuilt.problems.len()), (0, 0, 4), "{rebuilt:?}");
    let told = "what is only there cannot be brought back";
    assert_eq!(rebuilt.problems.iter().filter(|line| line.ends_with(told)).count(), 3, "{rebuilt:?}");
    assert!(matches!(refusal(place.open()), Error::TooFew(_)));
    (0..3).for_each(|number| std::fs::rename(away(number), place.target(number)).unwrap());
    remove_metadata(&place, 0..6);
    fs::rebuild(&place.volume(), std::sync::Arc::new(fs::Directories)).unwrap();
    let fs = place.open().unwrap();
    assert!(content(&fs, fs.lookup(ROOT, b"file").unwrap().ino).unwrap() == pattern(1, 3_000_000));
    assert_sound(&fs);
}

fn chunks_of(place: &Place, number: usize) -> Vec<PathBuf> {
    let below = std::fs::read_dir(place.target(number).join("chunks")).unwrap();
    let files = below.flat_map(|below| std::fs::read_dir(below.unwrap().path()).unwrap());
    files.map(|entry| entry.unwrap().path()).collect()
}

/// A process that has the chunks open can still read them, but must report the problem.
#[test]
fn chunks_that_are_removed_while_they_are_open_are_noticed_and_saved() {
    let place = Place::new("removed");
    let fs = place.create("rs:4+2", 6);
    let file = make(&fs, "file");
    fs.write(file, 0, &pattern(1, 3_000_000)).unwrap();
    fs.sync_all().unwrap();
    assert!(settled(&fs).is_healthy());
    // More losses than the code survives; one of them is a chunk replaced by a shortened copy of
    // itself.
    (0..2).for_each(|number| chunks_of(&place, number).iter().for_each(|path| std::fs::remove_file(path).unwrap()));
    for path in chunks_of(&place, 2) {
        let new = place.0.join("new");
        std::fs::write(&new, &std::fs::read(&path).unwrap()[..5000]).unwrap();
        std::fs::rename(&new, &path).unwrap();
    }
    assert!(content(&fs, file).unwrap() == pattern(1, 3_000_000));
    let status = fs.status().unwrap();
    assert!(!status.is_healthy() && status.lost == 0, "{status:#?}");
    assert_eq!((status.astray, status.to_repair, status.survive[0]), (3, 1, 1), "{status:#?}");
    assert_eq!(fs.check().unwrap().problems.len(), 3);
    let found = fs.verify(&volume::Control::default()).unwrap();
    assert_eq!((found.problems.len(), found.lost), (3, 0), "{:?}", found.problems);
    let repaired = fs.repair(&volume::Control::default()).unwrap();
    assert_eq!((repaired.chunks, repaired.failed.len()), (3, 0), "{repaired:?}");
    assert!(settled(&fs).is_healthy());
    assert_sound(&fs);
    fs.close_volume().unwrap();
    drop(fs);
    let fs = place.open().unwrap();
    assert!(content(&fs, file).unwrap() == pattern(1, 3_000_000));
    assert_sound(&fs);
}

/// A repair without any earlier report searches by itself.
#[test]
fn a_repair_finds_what_is_missing() {
    let place = Place::new("looks");
    let fs = place.create("rs:2+1", 3);
    fs.write(make(&fs, "file"), 0, &pattern(1, 1_000_000)).unwrap();
    fs.sync_all().unwrap();
    settled(&fs);
    chunks_of(&place, 1).iter().for_each(|path| std::fs::remove_file(path).unwrap());
    assert_eq!(fs.repair(&volume::Control::default()).unwrap().chunks, 1);
    assert_eq!(chunks_of(&place, 1).len(), 1);
    assert_sound(&fs);
}

#[test]
fn a_target_that_was_missing_is_used_when_it_is_back() {
    let place = Place::new("back");
    place.create("rs:2+1", 3).close_volume().unwrap();
    let away = place.0.join("away");
    std::fs::rename(place.target(1), &away).unwrap();
    let fs = place.open().unwrap();
    let status = fs.status().unwrap();
    assert!(status.new_blocks == (2, 3) && !status.is_healthy(), "{status:#?}");
    fs.write(make(&fs, "file"), 0, &pattern(1, 1_000_000)).unwrap();
    fs.sync_all().unwrap();
    std::fs::rename(&away, place.target(1)).unwrap();
    until("it is used", || fs.status().unwrap().new_blocks == (3, 3));
    fs.repair(&volume::Control::default()).unwrap();
    until("all is well", || fs.status().unwrap().is_healthy());
    assert_sound(&fs);
}

/// The same for a server of clients, which looks for targets with its sessions.
#[test]
fn a_server_uses_a_target_that_was_missing_when_it_is_back() {
    let place = Place::new("served");
    place.create("rs:2+1", 3).close_volume().unwrap();
    let away = place.0.join("away");
    std::fs::rename(place.target(1), &away).unwrap();
    let options = OpenOptions { serve: true, ..OpenOptions::default() };
    let server = Sessions::new(FileSystem::open_volume(&place.volume(), options).unwrap(), Duration::from_secs(30));
    let fs = server.volume().clone();
    assert_eq!(fs.status().unwrap().new_blocks, (2, 3));
    fs.write(make(&fs, "file"), 0, &pattern(1, 1_000_000)).unwrap();
    fs.sync_all().unwrap();
    std::fs::rename(&away, place.target(1)).unwrap();
    until("it is used", || {
        server.tick();
        fs.status().unwrap().new_blocks == (3, 3)
    });
    fs.repair(&volume::Control::default()).unwrap();
    until("all is well", || fs.status().unwrap().is_healthy());
    assert_sound(&fs);
}

#[test]
fn draining_can_be_undone() {
    let place = Place::new("undrain");
    let fs = place.create("rs:2+1", 4);
    fs.write(make(&fs, "file"), 0, &pattern(1, 1_000_000)).unwrap();
    fs.sync_all().unwrap();
    // A target with chunks; an empty one would be removed at once.
    let number = (0..4).find(|&number| !chunks_of(&place, number).is_empty()).unwrap();
    let drained = place.target(number);
    assert!(fs.undrain_target(&drained).unwrap_err().to_string().contains("is not being emptied"));
    // Interrupted at once.
    let control = volume::Control::default();
    control.cancel();
    assert!(fs.drain_target(&drained, &control).is_err());
    assert_eq!(fs.status().unwrap().targets[number].role, fs::label::Role::Draining);
    fs.undrain_target(&drained).unwrap();
    assert!(fs.undrain_target(&drained).is_err());
    // It gets data again, although the others would suffice.
    for file in 0..40 {
        fs.write(make(&fs, &file.to_string()), 0, &pattern(file, 700_000)).unwrap();
        fs.set_placement(fs.placement()).unwrap();
    }
    fs.sync_all().unwrap();
    assert!(settled(&fs).is_healthy());
    assert!(!chunks_of(&place, number).is_empty());
    drop(fs);
    assert!(place.open().unwrap().status().unwrap().targets.iter().all(|t| t.role == fs::label::Role::Active));
}

/// A target cannot replace itself or another target of the volume.
#[test]
fn a_target_of_the_volume_replaces_none() {
    let place = Place::new("replace");
    let fs = place.create("rs:2+1", 3);
    fs.write(make(&fs, "file"), 0, &pattern(1, 1_000_000)).unwrap();
    fs.sync_all().unwrap();
    let label = std::fs::read(place.volume().join("volume.json")).unwrap();
    let control = volume::Control::default();
    for new in [0, 1] {
        let refused = fs.replace_target(&place.target(0), &place.target(new), None, &control).unwrap_err();
        assert!(refused.to_string().contains("is a target of this volume"), "{refused}");
    }
    assert!(std::fs::read(place.volume().join("volume.json")).unwrap() == label);
    assert!(settled(&fs).is_healthy());
    // An interrupted replacement continues.
    let cancelled = volume::Control::default();
    cancelled.cancel();
    let new = place.0.join("new");
    assert!(fs.replace_target(&place.target(0), &new, None, &cancelled).is_err());
    assert!(fs.replace_target(&place.target(1), &new, None, &control).is_err());
    fs.replace_target(&place.target(0), &new, None, &control).unwrap();
    assert!(settled(&fs).is_healthy());
    assert_sound(&fs);
}

/// What cannot be restored is reported, with the files that are partly there.
#[test]
fn a_rebuild_says_what_is_lost() {
    let place = Place::new("lost");
    let fs = place.create("rs:4+2", 6);
    let file = make(&fs, "file");
    // In two chunk sets.
    for half in 0..2 {
        fs.write(file, half * 3_000_000, &pattern(half, 3_000_000)).unwrap();
        fs.sync_all().unwrap();
        fs.set_placement(fs.placement()).unwrap();
    }
    fs.close_volume().unwrap();
    drop(fs);
    remove_metadata(&place, 0..6);
    for number in 0..3 {
        std::fs::remove_file(chunks_of(&place, number).iter().min_by_key(|path| path.file_name()).unwrap()).unwrap();
    }
    let rebuilt = fs::rebuild(&place.volume(), std::sync::Arc::new(fs::Directories)).unwrap();
    assert!(!rebuilt.is_whole() && rebuilt.problems.len() == 2, "{rebuilt:?}");
    assert!(rebuilt.problems[0].contains("3 of its chunks are left and 4 are needed"), "{rebuilt:?}");
    assert!(rebuilt.problems[1].starts_with("file: bytes 0 to 3000000 "), "{rebuilt:?}");
}

/// Uncommitted data is counted as such, and space does not grow when targets are lost.
#[test]
fn a_status_counts_what_is_not_committed() {
    let place = Place::new("uncommitted");
    let fs = place.create("rs:4+2", 6);
    let mut written = 0;
    // A commit in the background may come before the status, or between its two figures.
    until("what is not committed is counted", || {
        fs.write(make(&fs, &format!("file{written}")), 0, &pattern(1, 9_000_000)).unwrap();
        written += 9_000_000;
        let status = fs.status().unwrap();
        status.uncommitted > 0 && status.bytes + status.uncommitted == written
    });
    fs.sync_all().unwrap();
    let before = fs.status().unwrap();
    assert_eq!((before.bytes, before.uncommitted), (written, 0));
    std::fs::remove_dir_all(place.target(1)).unwrap();
    until("it is missed", || fs.status().unwrap().new_blocks.0 == 5);
    let after = fs.status().unwrap();
    assert!(after.usage.total <= before.usage.total, "{:?} {:?}", before.usage, after.usage);
    // All targets are on one disk, which other processes write to and free space of: what is free
    // is compared with the disk at that moment. A third of it is for parity.
    let disk = after.targets.iter().filter_map(|target| target.space).map(|(_, free)| free).max().unwrap();
    assert!(after.usage.free <= disk / 6 * 4 + (200 << 20), "{:?} {disk}", after.usage);
}
