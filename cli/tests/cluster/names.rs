//! Names that many programs use at once: each gets the errors that a local file system gives, and
//! no others.

use crate::lab::{Cluster, Mount, WAIT_TIMEOUT, possible};
use crate::scratch::{Scratch, noise, run, weft};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long each part goes on.
const PART_DURATION: Duration = Duration::from_secs(2);
const RECORD_BYTES: usize = 3000;

/// How often each error came, by what was tried.
type Errors = Mutex<BTreeMap<(&'static str, i32), u32>>;

fn note(errors: &Errors, what: &'static str, why: &io::Error) {
    *errors.lock().unwrap().entry((what, why.raw_os_error().unwrap_or(0))).or_default() += 1;
}

fn is(why: &io::Error, allowed: &[Errno]) -> bool {
    allowed.iter().any(|errno| why.raw_os_error() == Some(errno.raw_os_error()))
}

/// A file with as many bytes, all of them the same.
fn put(path: &Path, byte: u8) -> io::Result<()> {
    File::create(path)?.write_all(&[byte; RECORD_BYTES])
}

/// Replaces a file by a new one again and again, in one directory, while it is opened by name in
/// another: every opening has a whole file.
#[track_caller]
fn is_always_there(replaced: &Path, opened: &Path) {
    let (errors, stop) = (Errors::default(), AtomicBool::new(false));
    let (new, name) = (replaced.join("new"), opened.join("t"));
    put(&replaced.join("t"), 1).unwrap();
    let tries = std::thread::scope(|scope| {
        let stop = &stop;
        let errors = &errors;
        scope.spawn(move || {
            for round in 0.. {
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                put(&new, round as u8).unwrap();
                fs::rename(&new, replaced.join("t")).unwrap();
            }
        });
        let begun = Instant::now();
        let mut tries = 0;
        while begun.elapsed() < PART_DURATION {
            tries += 1;
            let mut bytes = Vec::new();
            match File::open(&name).and_then(|mut file| file.read_to_end(&mut bytes)) {
                Ok(_) if bytes.len() != RECORD_BYTES || bytes.iter().any(|byte| *byte != bytes[0]) => {
                    *errors.lock().unwrap().entry(("whole", 0)).or_default() += 1;
                }
                Ok(_) => {}
                Err(why) => note(errors, "open", &why),
            }
            if let Err(why) = OpenOptions::new().append(true).create(true).open(&name) {
                note(errors, "create", &why);
            }
            if let Err(why) = fs::metadata(&name) {
                note(errors, "stat", &why);
            }
        }
        stop.store(true, Ordering::SeqCst);
        tries
    });
    let errors = errors.into_inner().unwrap();
    eprintln!("{tries} openings: {errors:?}");
    assert!(errors.is_empty(), "of {tries} openings: {errors:?}");
}

#[test]
fn a_name_that_is_replaced_is_always_there() {
    if !possible("a_name_that_is_replaced_is_always_there") {
        return;
    }
    let cluster = Cluster::new("rs:2+1", 3);
    let a = cluster.mount("a");
    is_always_there(&a.point, &a.point);
    let b = cluster.mount("b");
    is_always_there(&a.point, &a.point);
    is_always_there(&a.point, &b.point);
    b.unmount();
    a.unmount();
}

/// One of many who do all kinds of things with a few names of a directory.
fn busy(directory: &Path, seed: u64, errors: &Errors) {
    let mut dice = fastrand::Rng::with_seed(seed);
    let begun = Instant::now();
    while begun.elapsed() < PART_DURATION {
        let name = |dice: &mut fastrand::Rng| directory.join(format!("n{}", dice.u8(..8)));
        let (one, other) = (name(&mut dice), name(&mut dice));
        // The errors of a local file system when another program was faster.
        let (what, done, allowed): (_, _, &[Errno]) = match dice.u8(..9) {
            0 => ("write", put(&one, seed as u8), &[]),
            1 => ("read", fs::read(&one).map(drop), &[Errno::NOENT]),
            2 => ("rename", fs::rename(&one, &other), &[Errno::NOENT]),
            3 => ("link", fs::hard_link(&one, &other), &[Errno::NOENT, Errno::EXIST]),
            4 => ("unlink", fs::remove_file(&one), &[Errno::NOENT]),
            5 => ("list", fs::read_dir(directory).and_then(|mut all| all.try_for_each(|entry| entry.map(drop))), &[]),
            6 => ("stat", fs::metadata(&one).map(drop), &[Errno::NOENT]),
            7 => ("new", OpenOptions::new().write(true).create_new(true).open(&one).map(drop), &[Errno::EXIST]),
            _ => ("append", OpenOptions::new().append(true).create(true).open(&one).map(drop), &[]),
        };
        if let Err(why) = done
            && !is(&why, allowed)
        {
            note(errors, what, &why);
        }
    }
}

#[track_caller]
fn six(mounts: &[&Mount]) {
    let errors = Errors::default();
    let directory = mounts[0].at(format!("busy{}", mounts.len()));
    fs::create_dir(&directory).unwrap();
    std::thread::scope(|scope| {
        for number in 0..6 {
            let directory = mounts[number % mounts.len()].at(directory.file_name().unwrap());
            let errors = &errors;
            scope.spawn(move || busy(&directory, number as u64 + 1, errors));
        }
    });
    let errors = errors.into_inner().unwrap();
    assert!(errors.is_empty(), "{errors:?}");
}

#[test]
fn six_who_change_a_few_names_get_the_errors_of_a_local_file_system() {
    if !possible("six_who_change_a_few_names_get_the_errors_of_a_local_file_system") {
        return;
    }
    let cluster = Cluster::new("rs:2+1", 3);
    let a = cluster.mount("a");
    six(&[&a]);
    let b = cluster.mount("b");
    six(&[&a, &b]);
    b.unmount();
    a.unmount();
    cluster.is_healthy();
}

/// A program behind a pipe reads slowly, and its file is replaced meanwhile.
#[test]
fn what_is_read_is_whole_though_another_file_gets_its_name() {
    let (cluster, scratch) = (Cluster::new("rs:2+1", 3), Scratch::new(0));
    let (old, new) = (scratch.path.join("old"), scratch.path.join("new"));
    fs::write(&old, noise(12_000_000)).unwrap();
    fs::write(&new, noise(3_000_000)).unwrap();
    run(weft().arg("cp").arg(&old).arg(cluster.at("f"))).good();
    run(weft().arg("cp").arg(&new).arg(cluster.at("g"))).good();
    let mut reader = weft().arg("cat").arg(cluster.at("f")).stdout(Stdio::piped()).spawn().unwrap();
    let mut output = reader.stdout.take().unwrap();
    let mut read = vec![0; 1];
    output.read_exact(&mut read).unwrap();
    run(weft().args(["cp", "--force"]).arg(&new).arg(cluster.at("f"))).good();
    // When a file that lost its name later is removed, so is this one if nobody has it open.
    run(weft().arg("rm").arg(cluster.at("g"))).good();
    let begun = Instant::now();
    while cluster.on(&["status", "--json"]).json()["files"].as_u64().unwrap() > 2 {
        assert!(begun.elapsed() < WAIT_TIMEOUT, "the other file is not removed");
        std::thread::sleep(Duration::from_millis(100));
    }
    output.read_to_end(&mut read).unwrap();
    assert!(reader.wait().unwrap().success());
    assert!(read == noise(12_000_000));
    assert!(run(weft().arg("cat").arg(cluster.at("f"))).good() == noise(3_000_000));
}
