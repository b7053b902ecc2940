//! Files from chunk files alone: without labels, metadata and volume directory, moved and renamed.

use crate::lab;
use crate::lab::place::Place;
use crate::lab::{make, pattern};
use fs::{FileSystem, ROOT, Recovered, survey};
use plan::Ino;
use rustix::fs::{XattrFlags, getxattr, listxattr, setxattr};
use std::path::{Path, PathBuf};
use volume::Control;
use volume::target::ChunkTags;

/// Files of several sizes: large ones over several chunk sets, and many small ones in one stripe.
fn fill(fs: &FileSystem) -> Vec<(String, Vec<u8>)> {
    let sizes = [20_000_000, 3_000_001, 900_000].into_iter().chain((0..20).map(|number| 33_000 + number * 911));
    let files = sizes.enumerate().map(|(number, size)| (format!("f{number}"), pattern(number as u64, size)));
    let files: Vec<(String, Vec<u8>)> = files.collect();
    let inside = fs.make(ROOT, b"inside", &lab::new(fs::FileKind::Directory)).unwrap().ino;
    for (name, data) in &files {
        let ino = fs.make(inside, name.as_bytes(), &lab::new(fs::FileKind::File)).unwrap().ino;
        fs.write(ino, 0, data).unwrap();
    }
    // A hole, and what was written twice.
    let sparse = make(fs, "sparse");
    fs.write(sparse, 5_000_000, &pattern(77, 100_000)).unwrap();
    fs.sync_all().unwrap();
    fs.write(sparse, 5_050_000, &pattern(78, 50_000)).unwrap();
    fs.sync_all().unwrap();
    let hole = [&vec![0; 5_000_000][..], &pattern(77, 100_000)[..50_000], &pattern(78, 50_000)].concat();
    let inside = files.into_iter().map(|(name, data)| (format!("inside/{name}"), data));
    inside.chain([("sparse".to_string(), hole)]).collect()
}

/// A closed volume with these files.
fn filled(place: &Place, code: &str, targets: usize) -> Vec<(String, Vec<u8>)> {
    let fs = place.create(code, targets);
    let files = fill(&fs);
    fs.close_volume().unwrap();
    files
}

fn chunks(place: &Place, number: usize) -> Vec<PathBuf> {
    let below = std::fs::read_dir(place.target(number).join("chunks")).unwrap();
    let files = below.flat_map(|below| std::fs::read_dir(below.unwrap().path()).unwrap());
    files.map(|entry| entry.unwrap().path()).collect()
}

/// Moves all chunks into one directory, under names that say nothing, and removes everything else.
fn scatter(place: &Place, targets: impl Iterator<Item = usize>) -> PathBuf {
    let found = place.0.join("found");
    std::fs::create_dir(&found).unwrap();
    for number in targets {
        for (at, path) in chunks(place, number).iter().enumerate() {
            std::fs::rename(path, found.join(format!("{number}-{at}"))).unwrap();
        }
    }
    (0..20).for_each(|number| _ = std::fs::remove_dir_all(place.target(number)));
    std::fs::remove_dir_all(place.volume()).unwrap();
    found
}

fn recover(from: &Path, to: &Path) -> Recovered {
    std::fs::create_dir_all(to).unwrap();
    let found = survey(&[from.into()], Some(to), &Control::default()).unwrap();
    assert_eq!(found.problems, Vec::<String>::new());
    let (id, volume) = found.volumes.first_key_value().expect("there are chunks");
    volume.recover(*id, to, &found.problems, &Control::default()).unwrap()
}

/// What is said of the file of `fill` that has a hole: it is not known that it is one.
fn hole() -> String {
    "sparse: bytes 0 to 5000000 were not found and read as zeroes, as a hole does".into()
}

#[track_caller]
fn assert_there(to: &Path, files: &[(String, Vec<u8>)]) {
    let wrong = files.iter().filter(|(name, data)| std::fs::read(to.join(name)).ok().as_ref() != Some(data));
    let wrong: Vec<&str> = wrong.map(|(name, _)| name.as_str()).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

fn damage(path: &Path, range: std::ops::Range<usize>) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[range].iter_mut().for_each(|byte| *byte ^= 0x55);
    // In place: a new file would have no attributes.
    std::os::unix::fs::FileExt::write_all_at(&std::fs::File::options().write(true).open(path).unwrap(), &bytes, 0)
        .unwrap();
}

/// Whether files here have attributes; without them there is nothing to recover by.
fn has_attributes(place: &Place) -> bool {
    let file = place.0.join("probe");
    std::fs::write(&file, "").unwrap();
    setxattr(&file, "user.weft.probe", b"", XattrFlags::empty()).is_ok()
}

#[test]
fn files_come_back_from_chunks_and_attributes_alone() {
    let place = Place::new("attributes");
    let files = filled(&place, "rs:4+2", 6);
    assert!(has_attributes(&place), "this test needs a file system with extended attributes");
    // Two targets are away. The others have no header, and lie under names that say nothing.
    let found = scatter(&place, 1..5);
    for entry in std::fs::read_dir(&found).unwrap() {
        damage(&entry.unwrap().path(), 0..4096);
    }
    let to = place.0.join("to");
    let done = recover(&found, &to);
    assert_eq!((done.problems, done.notes, done.unnamed), (Vec::new(), vec![hole()], 0));
    assert_eq!((done.files, done.incomplete.len()), (files.len(), 0));
    assert_there(&to, &files);
}

#[test]
fn sealed_chunks_say_what_they_have() {
    let place = Place::new("sealed");
    let fs = place.create("rs:4+2", 6);
    fs.write(make(&fs, "file"), 0, &pattern(1, 20_000_000)).unwrap();
    let doomed: Ino = make(&fs, "doomed");
    fs.write(doomed, 0, &pattern(2, 3_000_000)).unwrap();
    fs.close_volume().unwrap();
    drop(fs);
    assert!(has_attributes(&place), "this test needs a file system with extended attributes");
    let text = |path: &Path, name: &str| {
        let mut value = [0; 100];
        let length = getxattr(path, name, &mut value[..]).unwrap();
        String::from_utf8(value[..length].to_vec()).unwrap()
    };
    for number in 0..6 {
        for path in chunks(&place, number) {
            let tags = ChunkTags::read(std::fs::File::open(&path).unwrap()).expect("it is described");
            assert!(tags.records.is_some_and(|(count, _)| count > 0), "{tags:?}");
            assert_eq!(text(&path, "user.weft.length"), path.metadata().unwrap().len().to_string());
            assert_eq!((text(&path, "user.weft.granule"), text(&path, "user.weft.k")), ("4096".into(), "4".into()));
        }
    }
    // A stripe that is given back is no longer in the sum: it is right or not there.
    let fs = place.open().unwrap();
    fs.unlink(ROOT, b"doomed").unwrap();
    fs.close_volume().unwrap();
    drop(fs);
    // Nothing is said of the records of any chunk; of the removed file some is still there.
    let done = recover(&place.0, &place.0.join("to"));
    assert!(done.notes.iter().all(|note| note.starts_with("doomed: bytes ")), "{done:?}");
    assert_eq!(done.problems, Vec::<String>::new());
}

#[test]
fn a_rebuilt_chunk_is_described_as_the_lost_one() {
    let place = Place::new("rebuilt");
    filled(&place, "rs:2+1", 3);
    let described = |path: &Path| {
        let mut names = vec![0; 1000];
        let length = listxattr(path, &mut names[..]).unwrap();
        let tags = ChunkTags::read(std::fs::File::open(path).unwrap());
        (String::from_utf8(names[..length].to_vec()).unwrap().matches("user.weft.").count(), tags)
    };
    let before: Vec<_> = chunks(&place, 1).into_iter().map(|path| (described(&path), path)).collect();
    before.iter().for_each(|(_, path)| std::fs::remove_file(path).unwrap());
    let fs = place.open().unwrap();
    fs.repair(&Control::default()).unwrap();
    fs.close_volume().unwrap();
    for (tags, path) in before {
        assert_eq!(described(&path), tags, "{}", path.display());
    }
}

/// Chunks of older versions have no attributes. Then names and records say what they are.
#[test]
fn chunks_without_attributes_are_known_by_header_or_by_name() {
    let place = Place::new("plain");
    let files = filled(&place, "crs:4+2", 6);
    // Copies have no attributes. One of them has no header, either.
    let found = place.0.join("found");
    std::fs::create_dir(&found).unwrap();
    for number in 0..4 {
        for path in chunks(&place, number) {
            let copy = found.join(path.file_name().unwrap());
            std::fs::write(&copy, std::fs::read(&path).unwrap()).unwrap();
            if number == 0 {
                damage(&copy, 0..4096);
            }
        }
    }
    let to = place.0.join("to");
    let done = recover(&found, &to);
    assert_eq!((done.problems, done.notes, done.files), (Vec::new(), vec![hole()], files.len()));
    assert_there(&to, &files);
}

#[test]
fn what_is_damaged_is_told_and_what_is_lost_is_named() {
    let place = Place::new("damaged");
    let files = filled(&place, "rs:4+2", 6);
    let found = scatter(&place, 0..6);
    let largest = |number: usize| {
        let of = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().path();
        let own = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with(&format!("{number}-"));
        std::fs::read_dir(&found).unwrap().map(of).filter(own).collect::<Vec<PathBuf>>()
    };
    // The first record's header in all chunks of one target, and bits of blocks on another one.
    for path in largest(0) {
        damage(&path, 4096..4200);
    }
    for path in largest(1) {
        let length = std::fs::metadata(&path).unwrap().len() as usize;
        damage(&path, length / 2..length / 2 + 5);
    }
    let to = place.0.join("to");
    let mut done = recover(&found, &to);
    assert_eq!((done.problems, done.files), (Vec::new(), files.len()));
    assert_eq!(done.notes.pop(), Some(hole()));
    assert_eq!(done.notes.len(), largest(0).len(), "{:?}", done.notes);
    assert!(done.notes.iter().all(|note| note.contains(" records are sound")), "{:?}", done.notes);
    assert_there(&to, &files);

    // More than m blocks of some stripes are gone: what is left has another name, and is right.
    for number in 2..4 {
        for path in largest(number) {
            let length = std::fs::metadata(&path).unwrap().len() as usize;
            damage(&path, length / 2..length / 2 + 5);
        }
    }
    let to = place.0.join("again");
    let done = recover(&found, &to);
    assert!(!done.is_whole() && !done.incomplete.is_empty() && done.files > 0, "{done:?}");
    assert_eq!(done.files + done.incomplete.len(), files.len(), "{done:?}");
    for (name, data) in &files {
        match std::fs::read(to.join(name)) {
            Ok(whole) => assert!(whole == *data, "{name}"),
            Err(_) => {
                assert!(done.incomplete.contains(&format!("{name}.incomplete").into_bytes()), "{name}: {done:?}");
                let rest = std::fs::read(to.join(format!("{name}.incomplete"))).unwrap();
                assert_eq!(rest.len(), data.len());
                let is_right = |(found, wanted): (&u8, &u8)| found == wanted || *found == 0;
                assert!(rest.iter().zip(data).all(is_right), "{name}: what is lost reads as zeroes");
            }
        }
    }
}

#[test]
fn a_set_with_too_few_chunks_is_a_loss() {
    let place = Place::new("few");
    filled(&place, "rs:4+2", 6);
    let found = scatter(&place, 0..3);
    let done = recover(&found, &place.0.join("to"));
    assert_eq!((done.files, done.incomplete.len()), (0, 0));
    assert!(done.problems.iter().all(|line| line.contains("3 of its chunks are left and 4 are needed")), "{done:?}");
    assert!(!done.problems.is_empty());
}

/// Of such a set nothing says that it was there, but the numbers of the others.
#[test]
fn a_set_without_any_chunk_leaves_no_file_whole() {
    let place = Place::new("gone");
    let fs = place.create("rs:2+1", 3);
    let data = pattern(5, 60_000_000);
    fs.write(make(&fs, "file"), 0, &data).unwrap();
    fs.sync_all().unwrap();
    fs.close_volume().unwrap();
    drop(fs);
    let found = scatter(&place, 0..3);
    let set = |path: &Path| match volume::identify(path).unwrap() {
        volume::Identity::Chunk(chunk) => chunk.set.0,
        other => panic!("{other:?}"),
    };
    let all = || std::fs::read_dir(&found).unwrap().map(|entry| entry.unwrap().path());
    assert!(all().map(|path| set(&path)).max() >= Some(3), "one between others is needed");
    all().filter(|path| set(path) == 2).for_each(|path| std::fs::remove_file(path).unwrap());
    let to = place.0.join("to");
    let done = recover(&found, &to);
    assert_eq!((done.files, &*done.incomplete), (0, &[b"file.incomplete".to_vec()][..]), "{done:?}");
    assert!(done.problems.iter().all(|line| line.contains(" were not found; they are lost, unless")), "{done:?}");
    assert!(!done.is_whole() && done.notes.iter().any(|note| note.contains("of chunk sets 2: ")), "{done:?}");
    let rest = std::fs::read(to.join("file.incomplete")).unwrap();
    assert!(rest.iter().zip(&data).all(|(found, wanted)| found == wanted || *found == 0));
}

/// Names come from the chunks. None of them leads to another file, or ends the recovery.
#[test]
fn whatever_files_are_called_each_is_recovered() {
    let place = Place::new("names");
    let fs = place.create("rs:2+1", 3);
    let long = "n".repeat(250);
    let sparse = [long.as_str(), "x"].map(|name| {
        let ino = make(&fs, name);
        fs.write(ino, 5_000_000, &pattern(ino.0, 100_000)).unwrap();
        ino
    });
    let below = fs.make(ROOT, b"x.incomplete", &lab::new(fs::FileKind::Directory)).unwrap().ino;
    let inside = fs.make(below, b"inside", &lab::new(fs::FileKind::File)).unwrap().ino;
    fs.write(inside, 0, &pattern(1, 50_000)).unwrap();
    let taken = make(&fs, "lost+found");
    fs.write(taken, 0, &pattern(2, 50_000)).unwrap();
    // As the temporary file of the next one was called.
    let other = make(&fs, "other");
    let named = make(&fs, &format!(".weft-recover-{}", other.0 + 2));
    let victim = make(&fs, "victim");
    assert_eq!(victim.0, other.0 + 2);
    let large = [other, named, victim].map(|ino| {
        fs.write(ino, 0, &pattern(ino.0, 6_000_000)).unwrap();
        pattern(ino.0, 6_000_000)
    });
    fs.sync_all().unwrap();
    fs.close_volume().unwrap();
    drop(fs);
    let found = scatter(&place, 0..3);
    let to = place.0.join("to");
    std::fs::create_dir(&to).unwrap();
    // The file system may know names that differ as the same: nothing there is replaced.
    std::fs::write(to.join("other"), "what was there").unwrap();
    let survey = survey(&[found], Some(&to), &Control::default()).unwrap();
    let (id, volume) = survey.volumes.first_key_value().unwrap();
    // As there may be a loss, the files with holes are incomplete.
    let done = volume.recover(*id, &to, &["a directory cannot be read".into()], &Control::default()).unwrap();
    assert_eq!((done.files, done.unnamed), (5, 2), "{done:?}");
    let names: Vec<String> = done.incomplete.iter().map(|name| String::from_utf8(name.clone()).unwrap()).collect();
    let wanted = [format!("lost+found/inode-{}.incomplete", sparse[0]), format!("x.incomplete-{}", sparse[1])];
    assert_eq!(names, wanted, "{done:?}");
    let files = [
        ("other.1".into(), large[0].clone()),
        (format!(".weft-recover-{victim}"), large[1].clone()),
        ("victim".into(), large[2].clone()),
        ("x.incomplete/inside".into(), pattern(1, 50_000)),
        (format!("lost+found/inode-{taken}"), pattern(2, 50_000)),
        ("other".into(), b"what was there".to_vec()),
    ];
    assert_there(&to, &files);
    for directory in ["lost+found", "x.incomplete"] {
        let mode = std::os::unix::fs::PermissionsExt::mode(&to.join(directory).metadata().unwrap().permissions());
        assert_eq!(mode & 0o777, 0o700, "{directory}: what was private stays so");
    }
    assert!(!to.join(".weft-recover").exists(), "nothing else is left there");
}
