//! `weft recover`: files from what is left of a volume and of encoded files.

use crate::scratch::{Scratch, noise, run, weft};
use crate::volumes::Volume;
use std::fs;
use std::path::{Path, PathBuf};

/// All files below a directory.
fn files(below: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(below).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// A volume with files, of which nothing but the chunks on four of six disks is left, in a heap.
fn wreck() -> (Volume, PathBuf) {
    let volume = Volume::new("rs:4+2", 6);
    run(weft().arg("mkdir").arg(volume.at("a"))).good();
    volume.put(volume.scratch.file("large", 9_000_000), "a/").good();
    volume.put(volume.scratch.file("other", 70_001), "").good();
    let found = volume.scratch.path.join("lost and found");
    fs::create_dir(&found).unwrap();
    for disk in 1..5 {
        for (number, chunk) in volume.chunks(disk).into_iter().enumerate() {
            fs::rename(chunk, found.join(format!("{disk} {number}"))).unwrap();
        }
    }
    volume.scratch.disks.iter().chain([&volume.path]).for_each(|path| fs::remove_dir_all(path).unwrap());
    (volume, found)
}

#[test]
fn files_come_back_from_chunks_in_a_heap() {
    let (volume, found) = wreck();
    let scratch = &volume.scratch;
    let text = String::from_utf8(run(weft().arg("recover").arg("--from").arg(&found)).good()).unwrap();
    assert!(text.contains("volume ") && text.contains("rs:4+2") && text.contains("chunk set"), "{text}");
    let to = scratch.path.join("rescue");
    let done = run(weft().args(["--json", "recover", "--from"]).arg(&found).arg("--to").arg(&to)).json();
    assert_eq!((&done["files"], &done["bytes"], &done["unnamed"]), (&2.into(), &9_070_001.into(), &0.into()), "{done}");
    assert!(fs::read(to.join("a/large")).unwrap() == noise(9_000_000));
    assert!(fs::read(to.join("other")).unwrap() == noise(70_001));
    // What is there is not written over.
    let why = run(weft().arg("recover").arg("--from").arg(&found).arg("--to").arg(&to)).failed(1);
    assert!(why.contains("is not empty; give an empty directory"), "{why}");
}

#[test]
fn what_cannot_be_recovered_is_a_failure() {
    let (volume, found) = wreck();
    let scratch = &volume.scratch;
    files(&found).iter().filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("1 ")).for_each(
        |path| {
            fs::remove_file(path).unwrap();
        },
    );
    let to = scratch.path.join("rescue");
    let done = run(weft().arg("recover").arg("--from").arg(&found).arg("--to").arg(&to));
    let text = String::from_utf8_lossy(&done.output).into_owned();
    assert_eq!(done.status, 1, "{text}");
    assert!(text.contains("3 of its chunks are left and 4 are needed"), "{text}");
    assert!(text.contains("NOT ALL could be recovered"), "{text}");
    assert_eq!(files(&to), Vec::<PathBuf>::new());
}

#[test]
fn fragments_are_recovered_beside_chunks_and_volumes_are_told_apart() {
    let (volume, found) = wreck();
    let (other, more) = wreck();
    let scratch = Scratch::new(3);
    let file = scratch.file("film", 300_000);
    scratch.encode(&file, "rs:3+2", &[]).good();
    fs::remove_file(&file).unwrap();
    (0..2).for_each(|position| fs::remove_file(scratch.fragment("film", position)).unwrap());
    let recover = |more: &[&Path]| {
        let mut command = weft();
        command.arg("recover").arg("--from").arg(&found).args(&scratch.disks).args(more);
        command
    };
    let to = volume.scratch.path.join("rescue");
    run(recover(&[]).arg("--to").arg(&to)).good();
    assert!(fs::read(to.join("film")).unwrap() == noise(300_000));
    assert!(fs::read(to.join("other")).unwrap() == noise(70_001));

    // One has no header, and all lie in a heap.
    let heap = scratch.path.join("heap");
    fs::create_dir(&heap).unwrap();
    for position in 2..5 {
        fs::rename(scratch.fragment("film", position), heap.join(format!("file {position}"))).unwrap();
    }
    let damaged = fs::File::options().write(true).open(heap.join("file 2")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&damaged, &[0; 4096], 0).unwrap();
    let to = scratch.path.join("rescue");
    run(weft().arg("recover").arg("--from").arg(&heap).arg("--to").arg(&to)).good();
    assert!(fs::read(to.join("film")).unwrap() == noise(300_000));
    assert_eq!(files(&to), [to.join("film")], "nothing else is left there");

    let to = other.scratch.path.join("rescue");
    let why = run(recover(&[&more]).arg("--to").arg(&to)).failed(2);
    assert!(why.contains("chunks of several volumes; choose one by --volume: "), "{why}");
    let why = run(recover(&[&more]).args(["--volume", "nonsense", "--to"]).arg(&to)).failed(2);
    assert!(why.contains("there is no chunk of a volume nonsense"), "{why}");
    let listed = run(recover(&[&more, &heap]).arg("--json")).json();
    assert_eq!((listed["volumes"].as_array().unwrap().len(), &listed["objects"][0]), (2, &"film".into()), "{listed}");
    let id = listed["volumes"][0]["id"].as_str().unwrap();
    run(recover(&[&more]).args(["--volume", &id[..12], "--to"]).arg(&to)).good();
    assert!(fs::read(to.join("a/large")).unwrap() == noise(9_000_000));
}

#[test]
fn objects_of_the_same_name_are_all_recovered() {
    let [one, two] = [300_000, 200_000].map(|length| {
        let scratch = Scratch::new(5);
        let file = scratch.file("film", length);
        scratch.encode(&file, "rs:3+2", &[]).good();
        scratch
    });
    let to = one.path.join("rescue");
    let mut command = weft();
    command.args(["--json", "recover", "--from"]).args(&one.disks).args(&two.disks).arg("--to").arg(&to);
    let done = run(&mut command).json();
    assert_eq!((&done["files"], &done["bytes"]), (&2.into(), &500_000.into()), "{done}");
    let mut found = [fs::read(to.join("film")).unwrap(), fs::read(to.join("film.1")).unwrap()];
    found.sort_by_key(Vec::len);
    assert!(found == [noise(200_000), noise(300_000)]);
    assert!(done["notes"][0].as_str().unwrap().contains("something else has this name"), "{done}");
}

/// Its name and its records say what it is, as for `weft decode`.
#[test]
fn fragments_without_header_and_attributes_count() {
    let scratch = Scratch::new(5);
    let file = scratch.file("film", 300_000);
    scratch.encode(&file, "rs:3+2", &[]).good();
    fs::remove_file(&file).unwrap();
    (0..2).for_each(|position| fs::remove_file(scratch.fragment("film", position)).unwrap());
    for position in 2..4 {
        let path = scratch.fragment("film", position);
        let mut bytes = fs::read(&path).unwrap();
        bytes[..4096].fill(0);
        // A new file has no attributes.
        fs::remove_file(&path).unwrap();
        fs::write(&path, bytes).unwrap();
    }
    let to = scratch.path.join("rescue");
    run(weft().arg("recover").arg("--from").args(&scratch.disks).arg("--to").arg(&to)).good();
    assert!(fs::read(to.join("film")).unwrap() == noise(300_000));
    assert_eq!(files(&to), [to.join("film")], "nothing else is left there");
    let mode = std::os::unix::fs::PermissionsExt::mode(&to.metadata().unwrap().permissions());
    assert_eq!(mode & 0o777, 0o700, "what was private stays so");
}

#[test]
fn where_nothing_is_it_says_so() {
    let scratch = Scratch::new(1);
    let why = run(weft().arg("recover").arg("--from").arg(&scratch.disks[0])).failed(1);
    assert!(why.contains("there are no chunks and no fragments"), "{why}");
    let why = run(weft().arg("recover").arg("--from").arg(scratch.path.join("none"))).failed(1);
    assert!(why.contains("none"), "{why}");
    assert_eq!(run(weft().arg("recover")).status, 2);
}
