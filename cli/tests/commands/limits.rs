//! Bounded memory, full disks, and processes that are stopped: nothing half-done stays, nothing
//! good is lost.

use crate::scratch::{Ended, Scratch, noise, run, run_with_input, weft};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const MAX_MEMORY_KIB: u64 = 200 << 10;

/// The most memory that a process had, looked at until it ends.
fn peak_memory_kib(mut child: Child) -> u64 {
    let mut peak = 0;
    while child.try_wait().unwrap().is_none() {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        peak = line.and_then(|l| l.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(peak).max(peak);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(child.wait().unwrap().success());
    peak
}

#[test]
fn memory_does_not_grow_with_the_file() {
    let scratch = Scratch::new(6);
    let file = scratch.path.join("big");
    fs::File::create(&file).unwrap().set_len(1 << 30).unwrap();
    let mut encode = weft();
    encode.arg("encode").arg(&file).args(["--code", "rs:10+4", "--to"]).args(&scratch.disks);
    let peak = peak_memory_kib(encode.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    assert!((1..MAX_MEMORY_KIB).contains(&peak), "encode took {peak} KiB");
    fs::remove_file(scratch.fragment("big", 3)).unwrap();
    let mut decode = weft();
    decode.args(["decode", "big", "--out", "-", "--from"]).args(&scratch.disks);
    let peak = peak_memory_kib(decode.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    assert!((1..MAX_MEMORY_KIB).contains(&peak), "decode took {peak} KiB");
}

/// A small file system of its own, when the tests may mount one.
struct SmallDisk(std::path::PathBuf);

impl SmallDisk {
    fn mount(at: &Path, bytes: u64) -> Option<Self> {
        fs::create_dir_all(at).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"]).arg(at).stderr(Stdio::null());
        let mounted = mount.status().is_ok_and(|status| status.success());
        mounted.then(|| Self(at.to_path_buf()))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_is_named_and_left_clean() {
    let scratch = Scratch::new(5);
    let Some(small) = SmallDisk::mount(&scratch.path.join("small"), 1 << 20) else {
        eprintln!("skipped: mounting a small file system is not allowed here");
        return;
    };
    let file = scratch.file("f", 8_000_000);
    let encode = || run(weft().arg("encode").arg(&file).arg("--force").arg("--to").args(&scratch.disks).arg(&small.0));
    let said = encode().failed(1);
    assert!(said.contains("small") && said.contains("no space is left there"), "{said}");
    assert!(scratch.files().is_empty() && fs::read_dir(&small.0).unwrap().count() == 0);
    // Good fragments survive a replacement that fails.
    let tiny = scratch.file("f", 1000);
    run(weft().arg("encode").arg(&tiny).arg("--to").args(&scratch.disks).arg(&small.0)).good();
    scratch.file("f", 8_000_000);
    encode().failed(1);
    assert!(scratch.decoded("f") == noise(1000));
    // The same for the decoded file.
    let out = small.0.join("out");
    scratch.encode(scratch.path.join("f"), "rs:4+2", &["--name", "g"]).good();
    let said = run(weft().args(["decode", "g", "--out"]).arg(&out).arg("--from").args(&scratch.disks)).failed(1);
    assert!(said.contains("no space is left there"), "{said}");
    assert_eq!(fs::read_dir(&small.0).unwrap().count(), 1);
}

#[test]
fn a_limit_on_the_length_of_files_is_an_error_like_others() {
    let scratch = Scratch::new(6);
    let file = scratch.file("f", 8_000_000);
    let limited = "trap '' XFSZ; ulimit -f 1000; exec \"$@\"";
    let mut command = Command::new("sh");
    command
        .args(["-c", limited, "sh", env!("CARGO_BIN_EXE_weft"), "encode"])
        .arg(&file)
        .arg("--to")
        .args(&scratch.disks);
    let said = run(&mut command).failed(1);
    assert!(said.contains("cannot write") && said.contains(".weft"), "{said}");
    assert!(scratch.files().is_empty());
}

/// Begins to encode a stream of which `bytes` have come and more are awaited.
fn begun(scratch: &Scratch, bytes: usize, more: &[&str]) -> Child {
    let mut encode = weft();
    encode.args(["encode", "-", "--name", "f", "--block-bytes", "4096"]).args(more).arg("--to").args(&scratch.disks);
    let mut child = encode.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.as_mut().unwrap().write_all(&noise(bytes)).unwrap();
    // Until it has written something.
    let deadline = Instant::now() + Duration::from_secs(20);
    let written = || {
        scratch
            .files()
            .iter()
            .any(|f| f.to_string_lossy().contains("tmp-") && fs::metadata(f).is_ok_and(|m| m.len() > 0))
    };
    while !written() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(written());
    child
}

fn stopped(mut child: Child, signal: Signal) -> Ended {
    kill_process(Pid::from_child(&child), signal).unwrap();
    // Its input stays open, so that nothing but the signal can end it.
    let input = child.stdin.take();
    let ended = child.wait_with_output().unwrap();
    drop(input);
    let errors = String::from_utf8_lossy(&ended.stderr).into_owned();
    Ended { status: ended.status.code().unwrap_or(-1), output: ended.stdout, errors }
}

#[test]
fn an_interrupted_encoder_leaves_nothing() {
    for signal in [Signal::INT, Signal::TERM] {
        let scratch = Scratch::new(6);
        let ended = stopped(begun(&scratch, 1_000_000, &[]), signal);
        assert_eq!(ended.failed(130), "interrupted");
        assert!(scratch.files().is_empty(), "{:?}", scratch.files());
    }
}

#[test]
fn an_interrupted_replacement_leaves_what_was_there() {
    let scratch = Scratch::new(6);
    scratch.encode(scratch.file("f", 1000), "rs:4+2", &[]).good();
    stopped(begun(&scratch, 1_000_000, &["--force"]), Signal::INT).failed(130);
    assert!(scratch.decoded("f") == noise(1000));
    assert_eq!(scratch.files().len(), 6);
}

#[test]
fn after_a_killed_encoder_the_next_one_works_and_cleans_up() {
    let scratch = Scratch::new(6);
    let ended = stopped(begun(&scratch, 1_000_000, &[]), Signal::KILL);
    assert_eq!(ended.status, -1);
    assert_eq!(scratch.files().len(), 6, "its temporary files");
    assert!(scratch.decode("f", &[]).failed(1).contains("there is no fragment of f"));
    // An encoder that is at work is left alone.
    let other = begun(&scratch, 1_000_000, &[]);
    let mut encode = weft();
    encode.args(["encode", "-", "--name", "f", "--to"]).args(&scratch.disks);
    run_with_input(&mut encode, &noise(5000)).good();
    assert!(scratch.decoded("f") == noise(5000));
    assert_eq!(scratch.files().len(), 12, "the fragments, and the files of the other encoder");
    // It comes too late, and says so instead of replacing the other's work.
    let ended = other.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&ended.stderr).contains("exists; give --force"));
    assert!(scratch.decoded("f") == noise(5000));
    assert_eq!(scratch.files().len(), 6);
}
