//! What was encoded comes back without Weft: by the decoder that stands beside the definitions in
//! `docs`.

use crate::scratch::{Scratch, noise, run, weft};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// Codes and how many losses they survive anywhere; each way to define one is there.
const CODES: [(&str, usize); 12] = [
    ("rs:4+2", 2),
    ("rs-vandermonde:5+3", 3),
    ("zfec:3+4", 4),
    ("raid6:6+2", 2),
    ("lrc:7+2+2", 3),
    ("crs:5+3", 3),
    ("crs:13+4", 4),
    ("cauchy-good:4+3,packet=8", 3),
    ("liberation:5+2,packet=8", 2),
    ("evenodd:5+2,packet=8", 2),
    ("rdp:4+2,packet=8", 2),
    ("gluster:4+2", 2),
];

/// The decoder, where it can run.
fn decoder() -> Option<PathBuf> {
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("skipped: there is no python3");
        return None;
    }
    Some(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/recover.py"))
}

#[test]
fn fragments_are_decoded_by_the_documents_alone() {
    let Some(decoder) = decoder() else { return };
    for (code, losses) in CODES {
        let scratch = Scratch::new(3);
        let file = scratch.file("f", 70_001);
        scratch.encode(&file, code, &["--block-bytes", "5120"]).good();
        // The first are data blocks.
        (0..losses).for_each(|position| fs::remove_file(scratch.fragment("f", position)).unwrap());
        let done = Command::new("python3").arg("-B").arg(&decoder).args(scratch.files()).output().unwrap();
        assert!(done.status.success(), "{code}: {}", String::from_utf8_lossy(&done.stderr));
        assert!(done.stdout == noise(70_001), "{code}");
    }
}

#[test]
fn volumes_are_read_by_the_documents_alone() {
    let Some(decoder) = decoder() else { return };
    let scratch = Scratch::new(4);
    let (volume, out) = (scratch.path.join("volume"), scratch.path.join("files"));
    run(weft().arg("create").arg(&volume).args(["--code", "crs:2+2"]).args(&scratch.disks)).good();
    let file = scratch.file("f", 700_001);
    run(weft().arg("cp").arg(&file).arg(format!("{}:/", volume.display()))).good();
    let mut decode = Command::new("python3");
    let done = decode.arg("-B").arg(&decoder).arg("--volume").args(&scratch.disks[2..]).arg("--to").arg(&out).output();
    let done = done.unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert!(fs::read(out.join("f")).unwrap() == noise(700_001));
}
