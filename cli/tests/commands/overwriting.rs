//! Nothing good is lost to a command that writes: not to two at once, and not to one in a wrong
//! place.

use crate::scratch::{Scratch, created, edit, noise, resealed, run, weft};
use rustix::fs::{FlockOperation, flock};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const FAR_FUTURE_SECONDS: i64 = 32_503_680_000;

fn encoded(bytes: usize) -> Scratch {
    let scratch = Scratch::new(6);
    let file = scratch.file("f", bytes);
    scratch.encode(&file, "rs:4+2", &["--block-bytes", "4096"]).good();
    scratch
}

fn spawned(command: &mut Command) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Everything on the disks, with its bytes.
fn all(scratch: &Scratch) -> Vec<(PathBuf, Vec<u8>)> {
    scratch.files().into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

/// Holds the lock on a disk while a command comes to wait for it.
fn meanwhile(scratch: &Scratch, command: &mut Command, files: usize, work: impl FnOnce()) -> (i32, String) {
    let disk = fs::File::open(&scratch.disks[0]).unwrap();
    flock(&disk, FlockOperation::LockExclusive).unwrap();
    let mut child = spawned(command);
    let deadline = Instant::now() + Duration::from_secs(20);
    while scratch.files().len() < files && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_millis(300));
    assert!(child.try_wait().unwrap().is_none(), "it waits");
    work();
    drop(disk);
    let ended = child.wait_with_output().unwrap();
    (ended.status.code().unwrap(), String::from_utf8_lossy(&ended.stderr).into_owned())
}

#[test]
fn encoders_that_replace_the_same_object_at_once_leave_one_whole() {
    let scratch = encoded(1000);
    let files: Vec<PathBuf> = (1..4).map(|n| scratch.file(format!("in{n}"), n * 50_000)).collect();
    for _ in 0..12 {
        let encode = |file: &PathBuf| {
            let mut command = weft();
            command.arg("encode").arg(file).args(["--name", "f", "--force", "--to"]).args(&scratch.disks);
            spawned(&mut command)
        };
        let all: Vec<Child> = files.iter().map(encode).collect();
        for child in all {
            let ended = child.wait_with_output().unwrap();
            assert!(ended.status.success(), "{}: {}", ended.status, String::from_utf8_lossy(&ended.stderr));
        }
        let decoded = scratch.decoded("f");
        assert!((1..4).any(|n| decoded == noise(n * 50_000)));
        scratch.on("verify", "f", &[]).good();
        assert_eq!(scratch.files().len(), 6);
    }
}

#[test]
fn an_encoder_waits_for_whoever_gives_names() {
    let scratch = encoded(1000);
    let file = scratch.file("g", 2000);
    let mut encode = weft();
    encode.arg("encode").arg(file).args(["--name", "f", "--force", "--to"]).args(&scratch.disks);
    let before = all(&scratch);
    let (status, errors) = meanwhile(&scratch, &mut encode, 12, || {
        let now = all(&scratch);
        assert!(before.iter().all(|file| now.contains(file)), "nothing is replaced yet");
    });
    assert_eq!((status, &errors[..]), (0, ""));
    assert!(scratch.decoded("f") == noise(2000));
}

#[test]
fn a_repair_that_comes_after_a_replacement_changes_nothing() {
    for (code, lost) in [("rs:4+2", 0), ("rs:2+1", 0), ("rs:4+2", 5)] {
        let (scratch, other) = (encoded(100_000), Scratch::new(6));
        other.encode(other.file("f", 5000), code, &[]).good();
        fs::remove_file(scratch.fragment("f", lost)).unwrap();
        let mut repair = weft();
        repair.args(["repair", "f", "--from"]).args(&scratch.disks);
        let disk = |path: &Path| scratch.path.join(path.strip_prefix(&other.path).unwrap());
        // That is the disk that is locked.
        repair.arg("--to").arg(&scratch.disks[0]);
        let (status, errors) = meanwhile(&scratch, &mut repair, 6, || {
            (0..6).filter(|&p| p != lost).for_each(|p| fs::remove_file(scratch.fragment("f", p)).unwrap());
            other.files().iter().for_each(|file| _ = fs::copy(file, disk(file)).unwrap());
        });
        assert_eq!(status, 1, "{errors}");
        assert_eq!(scratch.files().len(), other.files().len());
        assert!(scratch.decoded("f") == noise(5000));
        scratch.on("verify", "f", &[]).good();
    }
}

#[test]
fn repair_puts_nothing_over_what_it_did_not_search() {
    let scratch = encoded(100_000);
    let other = encoded(5000);
    let new = scratch.path.join("new");
    fs::create_dir(&new).unwrap();
    fs::remove_file(scratch.fragment("f", 0)).unwrap();
    let repair = || run(weft().args(["repair", "f", "--to"]).arg(&new).arg("--from").args(&scratch.disks));
    for bytes in [b"mine".to_vec(), fs::read(other.fragment("f", 0)).unwrap()] {
        fs::write(new.join("f.000.weft"), &bytes).unwrap();
        let said = repair().failed(1);
        assert!(said.contains("new/f.000.weft is not a fragment that was searched"), "{said}");
        assert!(fs::read(new.join("f.000.weft")).unwrap() == bytes);
        assert_eq!(fs::read_dir(&new).unwrap().count(), 1);
    }
    fs::remove_file(new.join("f.000.weft")).unwrap();
    fs::create_dir(new.join("f.000.weft")).unwrap();
    assert!(repair().failed(1).contains("is not a regular file"));
}

/// How a fragment becomes a newer one, and what `repair` and `decode` say of it.
type Newer = (fn(&Path), &'static str, &'static str);

#[test]
fn fragments_of_newer_objects_and_newer_formats_stay() {
    let newer: [Newer; 3] = [
        (|path| created(path, FAR_FUTURE_SECONDS), "NEWER object", "NEWER object f"),
        (|path| resealed(path, |b| b[8] = 9), "newer weft", "it was written by a newer weft: format version 9"),
        (|path| resealed(path, |b| b[24] = 1), "newer weft", "it was written by a newer weft: it uses features"),
    ];
    for (change, says, warns) in newer {
        let (scratch, other) = (encoded(100_000), encoded(100_000));
        fs::copy(other.fragment("f", 2), scratch.fragment("f", 2)).unwrap();
        change(&scratch.fragment("f", 2));
        fs::remove_file(scratch.fragment("f", 4)).unwrap();
        let before = all(&scratch);
        let said = scratch.on("repair", "f", &[]).failed(1);
        assert!(said.contains(says) && said.contains("f.002.weft"), "{said}");
        assert!(all(&scratch) == before);
        let decoded = scratch.decode("f", &[]);
        assert!(decoded.errors.contains(warns), "{}", decoded.errors);
        decoded.good();
    }
}

#[test]
fn what_replaces_an_object_is_newer_whatever_the_clock_says() {
    let scratch = encoded(1000);
    (0..6).for_each(|position| created(&scratch.fragment("f", position), FAR_FUTURE_SECONDS));
    // Old fragments that come back from elsewhere do not win.
    let old = fs::read(scratch.fragment("f", 5)).unwrap();
    scratch.encode(scratch.file("f", 2000), "rs:4+2", &["--force"]).good();
    assert_eq!(scratch.files().len(), 6);
    fs::write(scratch.fragment("f", 5), old).unwrap();
    let errors = scratch.on("verify", "f", &[]).errors;
    assert!(!errors.contains("NEWER"), "{errors}");
    scratch.on("repair", "f", &[]).good();
    assert!(scratch.decoded("f") == noise(2000));
}

#[test]
fn fragments_of_the_name_at_other_places_are_in_the_way_too() {
    let scratch = encoded(1000);
    for position in 0..6 {
        let to = scratch.disks[(position + 1) % 6].join(format!("f.{position:03}.weft"));
        fs::rename(scratch.fragment("f", position), to).unwrap();
    }
    let said = scratch.encode(scratch.file("f", 2000), "rs:4+2", &[]).failed(1);
    assert!(said.contains("exists; give --force"), "{said}");
    assert!(scratch.decoded("f") == noise(1000));
    scratch.encode(scratch.path.join("f"), "rs:4+2", &["--force"]).good();
    assert_eq!(scratch.files().len(), 6);
}

#[test]
fn an_interrupted_commit_survives_no_more_than_its_names() {
    let scratch = encoded(100_000);
    for position in 1..6 {
        let temporary = scratch.disks[position].join(format!(".f.{position:03}.weft.tmp-4194304-{position}"));
        fs::rename(scratch.fragment("f", position), temporary).unwrap();
    }
    assert_eq!(scratch.on("verify", "f", &["--json"]).json()["survives"], 0);
    scratch.on("repair", "f", &[]).good();
    assert_eq!(scratch.on("verify", "f", &["--json"]).json()["survives"], 2);
}

#[test]
fn records_behind_a_damaged_header_and_record_are_of_use() {
    let scratch = encoded(100_000);
    for position in [0, 1, 2] {
        edit(&scratch.fragment("f", position), |bytes| bytes[60] ^= 1);
        let stripe = position * (128 + 4096);
        edit(&scratch.fragment("f", position), |bytes| bytes[4096 + stripe] ^= 1);
    }
    assert!(scratch.decoded("f") == noise(100_000));
    scratch.on("repair", "f", &[]).good();
    scratch.on("verify", "f", &[]).good();
}

#[test]
fn compatible_features_of_some_fragments_do_not_part_them() {
    let scratch = encoded(1000);
    [0, 2, 4].iter().for_each(|&position| resealed(&scratch.fragment("f", position), |bytes| bytes[16] = 2));
    scratch.on("verify", "f", &[]).good();
}

#[test]
fn a_fragment_that_lies_wrong_and_has_a_double_in_its_place_stays() {
    let scratch = encoded(1000);
    scratch.encode(scratch.file("g", 3000), "rs:4+2", &[]).good();
    let good = fs::read(scratch.fragment("g", 3)).unwrap();
    fs::copy(scratch.fragment("g", 3), scratch.fragment("f", 3)).unwrap();
    edit(&scratch.fragment("g", 3), |bytes| bytes.truncate(4096));
    let said = scratch.on("repair", "f", &[]).failed(1);
    assert!(said.contains("belongs to another object"), "{said}");
    assert!(fs::read(scratch.fragment("f", 3)).unwrap() == good);
}

#[test]
fn a_copy_under_the_name_of_a_lost_fragment_is_replaced() {
    let scratch = encoded(1000);
    let good = fs::read(scratch.fragment("f", 1)).unwrap();
    fs::copy(scratch.fragment("f", 0), scratch.fragment("f", 1)).unwrap();
    scratch.on("repair", "f", &[]).good();
    assert!(fs::read(scratch.fragment("f", 1)).unwrap() == good);
    scratch.on("verify", "f", &[]).good();
}

#[test]
fn what_only_has_the_name_of_an_abandoned_file_stays() {
    let scratch = Scratch::new(6);
    let mine = scratch.disks[0].join(".f.000.weft.tmp-1-1");
    fs::write(&mine, "mine").unwrap();
    fs::write(scratch.disks[0].join(".f.000.weft.tmp-1-2"), [0; 5000]).unwrap();
    scratch.encode(scratch.file("f", 1000), "rs:4+2", &[]).good();
    assert_eq!(scratch.files().len(), 7);
    assert_eq!(fs::read(mine).unwrap(), b"mine");
}
