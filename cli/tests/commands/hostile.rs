//! Things in the directories that are no fragments, and headers that claim too much.

use crate::scratch::{Scratch, resealed, run, weft};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn fifo(path: &Path) {
    let _ = std::fs::remove_file(path);
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// Runs it with a limit on its time; answers its status and what it said.
fn soon(command: &mut Command) -> (i32, String) {
    let pipes = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = pipes.spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(120);
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > deadline {
            child.kill().unwrap();
            panic!("it hangs");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let ended = child.wait_with_output().unwrap();
    (ended.status.code().unwrap(), String::from_utf8_lossy(&ended.stderr).into_owned())
}

#[test]
fn pipes_are_named_and_never_waited_for() {
    let scratch = Scratch::new(6);
    let file = scratch.file("f", 1000);
    scratch.encode(&file, "rs:4+2", &[]).good();
    let pipe = scratch.path.join("pipe");
    fifo(&pipe);
    let encode =
        |to: &Path| soon(weft().arg("encode").arg(&file).arg("--force").arg("--to").args(&scratch.disks).arg(to));
    assert!(encode(&pipe).1.contains("pipe is not a directory"));
    fifo(&scratch.fragment("f", 1));
    fifo(&scratch.disks[2].join("f.009.weft"));
    fifo(&scratch.disks[2].join(".f.001.weft.tmp-1-1"));
    for command in ["verify", "repair", "decode"] {
        let mut begun = weft();
        begun.args([command, "f"]);
        if command == "decode" {
            begun.arg("--out").arg(scratch.out());
        }
        let (_, said) = soon(begun.arg("--from").args(&scratch.disks).arg(&pipe));
        assert!(said.contains("f.001.weft: cannot read") && said.contains("not a regular file"), "{said}");
        assert!(said.contains("pipe is not a directory") && !said.contains("position 1: the fragment is missing"));
    }
    let (status, said) = encode(&scratch.disks[0]);
    assert!(status == 1 && said.contains("f.001.weft is not a regular file"), "{said}");
    std::fs::remove_file(scratch.fragment("f", 1)).unwrap();
    assert_eq!(encode(&scratch.disks[0]).0, 0);
}

#[test]
fn a_header_that_claims_very_many_stripes_is_soon_done_with() {
    let scratch = Scratch::new(6);
    scratch.encode(scratch.file("f", 1000), "rs:4+2", &["--block-bytes", "512"]).good();
    for position in 0..6 {
        resealed(&scratch.fragment("f", position), |bytes| {
            bytes[176..184].copy_from_slice(&(1u64 << 60).to_le_bytes());
            bytes[184..192].copy_from_slice(&(1u64 << 49).to_le_bytes());
        });
    }
    for command in ["verify", "repair"] {
        assert_eq!(soon(weft().args([command, "f", "--from"]).args(&scratch.disks)).0, 1, "{command}");
    }
    assert_eq!(soon(weft().arg("inspect").arg(scratch.fragment("f", 0))).0, 1);
}

#[test]
fn wide_local_codes_are_soon_judged() {
    let scratch = Scratch::new(6);
    scratch.encode(scratch.file("f", 1000), "lrc:127+64+64", &[]).good();
    let begun = Instant::now();
    assert_eq!(soon(weft().args(["verify", "f", "--from"]).args(&scratch.disks)).0, 0);
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
}

#[test]
fn standard_streams_that_are_closed_or_full() {
    let scratch = Scratch::new(6);
    let shell = |script: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh", env!("CARGO_BIN_EXE_weft")]).args(&scratch.disks);
        run(&mut command)
    };
    assert_eq!(shell("exec \"$1\" decode x --from \"$2\" --out - 2>/dev/full").status, 1);
    assert_eq!(shell("exec \"$1\" decode x --from \"$2\" --out - 2>&-").status, 1);
    let said = shell("w=$1; shift; exec \"$w\" encode - --name f --to \"$@\" <&-").failed(1);
    assert!(said.contains("standard input is closed"), "{said}");
    let said = shell("w=$1; shift; WEFT_KERNEL=bogus exec \"$w\" verify f --from \"$@\"").failed(2);
    assert!(said.starts_with("WEFT_KERNEL: "), "{said}");
}

#[test]
fn an_object_without_data_is_there_when_one_header_is() {
    for code in ["rs:4+2", "gluster:4+2"] {
        let scratch = Scratch::new(6);
        scratch.encode(scratch.file("f", 0), code, &[]).good();
        (1..6).for_each(|position| std::fs::remove_file(scratch.fragment("f", position)).unwrap());
        assert!(scratch.decoded("f").is_empty());
        assert_eq!(scratch.on("verify", "f", &["--json"]).json()["survives"], 0);
        assert_eq!(scratch.on("repair", "f", &["--json"]).json()["survives"], 5);
        assert_eq!(scratch.on("verify", "f", &["--json"]).json()["survives"], 5);
    }
}

#[test]
fn too_many_open_files_are_one_error_that_names_the_limit() {
    let scratch = Scratch::new(6);
    scratch.encode(scratch.file("f", 1000), "rs:40+20", &[]).good();
    let mut command = Command::new("sh");
    let limited = "ulimit -n 32; exec \"$@\"";
    command.args(["-c", limited, "sh", env!("CARGO_BIN_EXE_weft"), "verify", "f", "--from"]).args(&scratch.disks);
    let said = run(&mut command).failed(1);
    assert!(said.contains("ulimit -n"), "{said}");
}
