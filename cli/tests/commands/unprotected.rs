//! `none:K+M`: zeroes in the place of parity, only for who says so.

use crate::scratch::{Scratch, noise, run, weft};
use crate::volumes::Volume;
use std::fs;
use std::path::PathBuf;

/// A volume of none:4+2 with a file in it.
fn volume() -> Volume {
    let scratch = Scratch::new(6);
    let path = scratch.path.join("a volume");
    let mut create = weft();
    create.arg("create").arg(&path).args(["--code", "none:4+2", "--unsafe-no-parity"]).args(&scratch.disks);
    let said = String::from_utf8(run(&mut create).good()).unwrap();
    assert!(said.contains("NO REDUNDANCY"), "{said}");
    let volume = Volume { scratch, path };
    volume.put(volume.scratch.file("f", 1_000_000), "").good();
    volume
}

/// The disk with a chunk of a position, and the chunk.
fn chunk(volume: &Volume, positions: std::ops::Range<usize>) -> (usize, PathBuf) {
    let position = |chunk: &PathBuf| {
        let name = chunk.file_name()?.to_str()?.strip_suffix(".chunk")?.to_owned();
        name.rsplit_once('.')?.1.parse::<usize>().ok()
    };
    let mut all = (0..6).flat_map(|disk| volume.chunks(disk).into_iter().map(move |chunk| (disk, chunk)));
    all.find(|(_, chunk)| position(chunk).is_some_and(|position| positions.contains(&position))).expect("a chunk")
}

#[test]
fn nobody_gets_it_by_accident() {
    let scratch = Scratch::new(6);
    let create = |code: &str, more: &[&str]| {
        let mut command = weft();
        command.arg("create").arg(scratch.path.join("v")).args(["--code", code]).args(more).args(&scratch.disks);
        run(&mut command).failed(2)
    };
    for code in ["none:4+2", "none:4+2,unsafe=1"] {
        assert!(create(code, &[]).contains("--unsafe-no-parity"));
        let said = scratch.encode(scratch.file("f", 10), code, &[]).failed(2);
        assert!(said.contains("nothing is protected"), "{said}");
    }
    assert!(create("rs:4+2", &["--unsafe-no-parity"]).contains("rs:4+2 is another code"));
    assert!(!scratch.path.join("v").exists());
}

#[test]
fn it_says_everywhere_what_it_is() {
    let volume = volume();
    for command in ["status", "verify"] {
        let said = String::from_utf8(volume.on(&[command]).good()).unwrap();
        assert!(said.contains("NO REDUNDANCY"), "{command}: {said}");
    }
    let label = fs::read_to_string(volume.path.join("volume.json")).unwrap();
    assert!(label.contains("none:4+2,unsafe=1"), "{label}");
    assert!(volume.cat("f").good() == noise(1_000_000));
}

#[test]
fn a_lost_block_is_an_error_and_never_zeroes() {
    let volume = volume();
    let (_, data) = chunk(&volume, 0..4);
    fs::remove_file(&data).unwrap();
    let read = volume.cat("f");
    assert_eq!(read.status, 1, "{}", read.errors);
    assert!(read.errors.contains("cannot make blocks"), "{}", read.errors);
    assert!(noise(1_000_000).starts_with(&read.output), "what was read before the error is right");
    let status = volume.on(&["status"]);
    let said = String::from_utf8_lossy(&status.output).into_owned();
    assert!(status.status == 1 && said.contains("LOST"), "{said}");
    let repair = volume.on(&["repair"]);
    assert_ne!(repair.status, 0);
    assert!(!data.exists());
}

/// Zeroes come from nothing, so they can be written again.
#[test]
fn a_lost_parity_block_is_written_again() {
    let volume = volume();
    let (_, parity) = chunk(&volume, 4..6);
    fs::remove_file(&parity).unwrap();
    assert!(volume.cat("f").good() == noise(1_000_000));
    volume.on(&["repair"]).good();
    volume.is_healthy();
    assert!(volume.cat("f").good() == noise(1_000_000));
}
