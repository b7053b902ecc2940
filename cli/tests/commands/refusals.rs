//! Dangerous actions without an explicit option, and arguments that make no sense: one clear line
//! and a status.

use crate::scratch::{Scratch, noise, run, weft};
use std::fs;
use std::process::Command;

#[test]
fn nothing_is_replaced_without_force() {
    let scratch = Scratch::new(6);
    let file = scratch.file("f", 1000);
    scratch.encode(&file, "rs:4+2", &[]).good();
    fs::remove_file(scratch.fragment("f", 0)).unwrap();
    let other = scratch.file("f", 2000);
    let said = scratch.encode(&other, "rs:4+2", &[]).failed(1);
    assert!(said.contains("f.001.weft exists; give --force"), "{said}");
    assert!(scratch.decoded("f") == noise(1000));
    assert_eq!(scratch.files().len(), 5);
    scratch.encode(&other, "rs:4+2", &["--force"]).good();
    assert!(scratch.decoded("f") == noise(2000));
    // What has no counterpart in the new object goes with the old one.
    scratch.encode(&other, "rs:2+1", &["--force"]).good();
    assert_eq!(scratch.files().len(), 3);
    scratch.on("verify", "f", &[]).good();

    fs::write(scratch.out(), "mine").unwrap();
    assert!(scratch.decode("f", &[]).failed(1).contains("out exists; give --force"));
    assert_eq!(fs::read(scratch.out()).unwrap(), b"mine");
    scratch.decode("f", &["--force"]).good();
    assert!(fs::read(scratch.out()).unwrap() == noise(2000));
}

#[test]
fn inputs_that_are_no_files() {
    let scratch = Scratch::new(6);
    let fifo = scratch.path.join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    for (input, says) in [
        (scratch.disks[0].clone(), "is a directory"),
        (fifo, "is a pipe"),
        ("/dev/null".into(), "is a device"),
        (scratch.path.join("absent"), "No such file"),
        (scratch.path.join("absent/below"), "No such file"),
    ] {
        let said = scratch.encode(&input, "rs:4+2", &[]).failed(1);
        assert!(said.contains(says) && said.contains(input.to_str().unwrap()), "{said}");
    }
    assert!(scratch.files().is_empty());
    assert!(scratch.encode("-", "rs:4+2", &[]).failed(2).contains("--name"));
    assert!(scratch.encode("..", "rs:4+2", &[]).failed(2).contains("--name"));
    assert!(scratch.encode(scratch.file("f", 1), "rs:4+2", &["--name", "a/b"]).failed(1).contains("without /"));
    assert!(scratch.encode(scratch.file("f", 1), "rs:4+2", &["--name", ""]).failed(1).contains("1 to 255"));
}

#[test]
fn codes_that_cannot_be() {
    let scratch = Scratch::new(6);
    let file = scratch.file("f", 1);
    for code in ["rs", "rs:4", "rs:0+2", "rs:300+2", "nothing:4+2", "liberation:9+2,w=7", "rs:4+2+1"] {
        let said = scratch.encode(&file, code, &[]).failed(2);
        assert!(!said.is_empty(), "{code}");
    }
    let said = scratch.encode(&file, "gluster:4+2", &["--block-bytes", "1000"]).failed(1);
    assert!(said.contains("multiple of 512"), "{said}");
    assert!(scratch.encode(&file, "rs:4+2", &["--block-bytes", "0"]).failed(1).contains("for example 512"));
    assert!(scratch.encode(&file, "rs:4+2", &["--block-bytes", "100"]).failed(1).contains("512 bytes"));
    assert!(scratch.encode(&file, "rs:4+2", &["--block-bytes", "2147483648"]).failed(1).contains("1 GiB"));
    assert_eq!(scratch.encode(&file, "rs:4+2", &["--threads", "0"]).status, 2);
    assert!(scratch.files().is_empty());
}

#[test]
fn directories_that_cannot_be() {
    let scratch = Scratch::new(6);
    let file = scratch.file("f", 1000);
    let encode =
        |to: &str| run(weft().arg("encode").arg(&file).arg("--to").args(&scratch.disks[..5]).arg(to)).failed(1);
    assert!(encode(&format!("{}/absent", scratch.path.display())).contains("absent"));
    assert!(encode(file.to_str().unwrap()).contains("is not a directory"));
    // Nobody may create files there, not even the superuser.
    assert!(encode("/proc").contains("/proc"));
    assert!(scratch.files().is_empty(), "{:?}", scratch.files());

    scratch.encode(&file, "rs:4+2", &[]).good();
    let decode = |out: &str| run(weft().args(["decode", "f", "--out", out, "--from"]).args(&scratch.disks)).failed(1);
    assert!(decode(scratch.disks[0].to_str().unwrap()).contains("is a directory"));
    assert!(decode(&format!("{}/absent/out", scratch.path.display())).contains("absent"));
    assert!(decode("/proc/out").contains("/proc"));
    let said =
        run(weft().args(["decode", "f", "--out", "/dev/null", "--force", "--from"]).args(&scratch.disks)).failed(1);
    assert!(said.contains("is not a regular file"), "{said}");
    assert!(decode("/dev/null").contains("--out - writes to standard output"));
}

#[test]
fn objects_that_are_not_there_or_not_alone() {
    let scratch = Scratch::new(6);
    assert!(scratch.decode("f", &[]).failed(1).contains("there is no fragment of f in"));
    let verify = || run(weft().args(["verify", "--from"]).args(&scratch.disks));
    assert!(verify().failed(1).contains("there are no fragments in"));
    scratch.encode(scratch.file("f", 1000), "rs:4+2", &[]).good();
    verify().good();
    scratch.encode(scratch.file("g\nh", 1000), "rs:4+2", &[]).good();
    let said = verify().failed(1);
    assert!(said.contains("f, g\\nh"), "{said}");
    assert!(scratch.decode("x", &[]).failed(1).contains("there is no fragment of x"));
}

#[test]
fn a_directory_that_is_gone_is_a_problem_not_an_end() {
    let scratch = Scratch::new(6);
    scratch.encode(scratch.file("f", 1000), "rs:4+2", &[]).good();
    fs::remove_dir_all(&scratch.disks[1]).unwrap();
    assert!(scratch.decoded("f") == noise(1000));
    let errors = scratch.on("verify", "f", &[]).errors;
    assert!(errors.contains("disk1"), "{errors}");
}

#[test]
fn crowded_directories_are_warned_of() {
    let scratch = Scratch::new(2);
    let ended = scratch.encode(scratch.file("f", 1000), "rs:4+2", &[]);
    assert!(ended.errors.contains("would lose 3 fragments, more than the 2 that rs:4+2 survives"), "{}", ended.errors);
    let scratch = Scratch::new(3);
    let ended = scratch.encode(scratch.file("f", 1000), "rs:4+2", &[]);
    assert_eq!((ended.status, &ended.errors[..]), (0, ""));
}

#[test]
fn failures_are_json_too_when_asked() {
    let scratch = Scratch::new(6);
    let ended = scratch.decode("f", &["--json"]);
    assert_eq!((ended.status, &ended.json()["error"]["kind"]), (1, &"not-found".into()));
}

#[test]
fn a_newer_format_is_refused_by_name() {
    let scratch = Scratch::new(6);
    scratch.encode(scratch.file("f", 1000), "rs:4+2", &[]).good();
    for position in 0..6 {
        crate::scratch::edit(&scratch.fragment("f", position), |bytes| {
            bytes[8] = 9;
            let checksum = gf::checksum::crc64(&bytes[..4088]);
            bytes[4088..4096].copy_from_slice(&checksum.to_le_bytes());
        });
    }
    let said = scratch.decode("f", &[]).failed(1);
    assert!(said.contains("format version 9 is newer"), "{said}");
}

#[test]
fn other_objects_are_not_in_the_way() {
    let scratch = Scratch::new(6);
    let file = scratch.file("f", 1000);
    scratch.encode(&file, "rs:4+2", &[]).good();
    for number in 0..60 {
        scratch.encode(&file, "rs:4+2", &["--name", &format!("other-{number}")]).good();
    }
    // Fewer open files than there are fragments; one of ours must be found by its header.
    fs::rename(scratch.fragment("f", 0), scratch.disks[0].join("renamed.000.weft")).unwrap();
    let limited = "ulimit -n 64; exec \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", limited, "sh", env!("CARGO_BIN_EXE_weft"), "verify", "f", "--from"]).args(&scratch.disks);
    run(&mut command).good();
}
