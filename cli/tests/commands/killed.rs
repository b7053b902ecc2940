//! An archive job that is killed ten times on its way, over a tree with everything that trees have.
//!
//! `WEFT_TREE_FILES` says how many files the tree has (3000 without it), `TMPDIR` where it is:
//! 200000 files take 20 GB and some minutes with the release build.

use crate::forest;
use crate::scratch::{run, weft};
use crate::volumes::Volume;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const KILLS: u64 = 10;
/// Smaller trees are read slowly, so that a job can be hit on its way.
const LARGE_TREE_BYTES: usize = 50_000;

fn files() -> usize {
    std::env::var("WEFT_TREE_FILES").ok().and_then(|text| text.parse().ok()).unwrap_or(3000)
}

/// What a run said that it had made durable, the bytes that it had coded, durable or not, and what
/// it read and wrote in all.
#[derive(Clone, Copy, Debug, Default)]
struct Ran {
    files: u64,
    bytes: u64,
    unchanged: u64,
    coded: u64,
    read: u64,
    wrote: u64,
}

impl Ran {
    fn hear(&mut self, said: &Value) {
        let number = |name: &str| said[name].as_u64().unwrap_or(0);
        (self.files, self.bytes, self.unchanged) = (number("files"), number("bytes"), number("unchanged_files"));
        let intervals = said["throughput"]["amounts"].as_array();
        let sum = |amounts: &Vec<Value>| amounts.iter().filter_map(Value::as_u64).sum();
        self.coded = intervals.map_or_else(|| number("worked_bytes"), sum);
    }

    fn add(&mut self, other: &Self) {
        (self.files, self.bytes, self.coded) =
            (self.files + other.files, self.bytes + other.bytes, self.coded + other.coded);
        (self.read, self.wrote) = (self.read + other.read, self.wrote + other.wrote);
    }

    fn count_io(&mut self, job: &Child) {
        // A process that has ended has none any more.
        let text = fs::read_to_string(format!("/proc/{}/io", job.id())).unwrap_or_default();
        let number = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        self.read = number("rchar:").unwrap_or(self.read);
        self.wrote = number("wchar:").unwrap_or(self.wrote);
    }
}

/// Runs a job, and kills it once it reports that `kill_at` files are done; None: lets it end, which
/// must succeed.
fn work(mut command: Command, kill_at: Option<u64>) -> Ran {
    let mut job = command.arg("--json").stdout(Stdio::piped()).spawn().unwrap();
    let mut ran = Ran::default();
    for line in BufReader::new(job.stdout.take().unwrap()).lines() {
        let said: Value = serde_json::from_str(&line.unwrap()).unwrap();
        assert!(said.get("problem").is_none(), "{said}");
        ran.hear(if said.get("facts").is_some() { &said["facts"] } else { &said["progress"] });
        if kill_at.is_some_and(|files| ran.files >= files.max(1)) {
            // Stopped first, so that what it has read and written is what it will have.
            kill_process(Pid::from_child(&job), Signal::STOP).unwrap();
            ran.count_io(&job);
            break;
        }
        ran.count_io(&job);
    }
    job.kill().unwrap();
    let status = job.wait().unwrap();
    assert!(kill_at.is_some() || status.success(), "{status}");
    ran
}

#[test]
fn a_job_that_is_killed_on_its_way_codes_nothing_twice_and_keeps_everything() {
    let count = files();
    let volume = Volume::new("rs:4+2", 6);
    let from = volume.scratch.path.join("from");
    let tree = forest::grow(&from, count);
    eprintln!("{tree:?}");
    // In a small tree, parts are as small beside it as those of 64 MiB are beside a large one.
    let slow = format!("--limit={}", tree.data / 16);
    let small = ["--part-bytes=1MiB", &slow];
    let command = |workers: u64| {
        let mut command = weft();
        command.args(["archive", "--workers", &workers.to_string()]).args(if count < LARGE_TREE_BYTES {
            &small[..]
        } else {
            &[]
        });
        command.arg(from.join("")).arg(volume.at("kept/tree"));
        command
    };
    let begun = Instant::now();
    let mut all = Ran::default();
    let mut kills = 0;
    while kills < KILLS && all.files < tree.files {
        // A share of what is left, so that something is also when a slow machine hits late.
        let target = (tree.files - all.files) / (KILLS + 2 - kills);
        let ran = work(command(1 + kills % 4), Some(target));
        eprintln!("killed after {:.1?}: {ran:?}", begun.elapsed());
        // What was durable and not said may have been the rest.
        if ran.files == 0 {
            break;
        }
        all.add(&ran);
        kills += 1;
    }
    assert!(kills > KILLS / 2, "it was done after {kills}");
    let last = work(command(3), None);
    eprintln!("ended after {:.1?}: {last:?}", begun.elapsed());
    all.add(&last);
    let again = work(command(2), None);
    eprintln!("in all {all:?}; once more: {again:?}");
    assert_eq!(again.files, 0, "nothing is left to do");
    // What was durable when a job was killed and it had no time to say so is all that may be
    // missing here; what was done twice would be too much.
    assert!(all.files <= tree.files && all.bytes <= tree.bytes, "{all:?} of {tree:?}");
    assert!(all.files > tree.files / 2, "{all:?} of {tree:?}");
    // Up to half a second's work of each worker had not been committed when it was killed, or a
    // part.
    let share = |bytes: u64| bytes as f64 / tree.data as f64;
    eprintln!("coded {:.3} times, wrote {:.3} bytes for each", share(all.coded), share(all.wrote));
    assert!(share(all.coded) < 1.5, "{all:?} of {tree:?}");

    for disk in [1, 4] {
        fs::remove_dir_all(&volume.scratch.disks[disk]).unwrap();
    }
    let to = volume.scratch.path.join("to");
    let begun = Instant::now();
    let mut slow_restore = weft();
    slow_restore.args(["restore", &slow]).arg(volume.at("kept/tree")).arg(&to).stdout(Stdio::null());
    let mut killed = slow_restore.spawn().unwrap();
    let mut left = Vec::new();
    while left.is_empty() {
        assert!(killed.try_wait().unwrap().is_none(), "it ended before it was killed");
        let signal = |signal| kill_process(Pid::from_child(&killed), signal).unwrap();
        signal(Signal::STOP);
        // A stop takes effect a little later.
        std::thread::sleep(Duration::from_millis(5));
        left = incomplete_files(&to);
        if left.is_empty() {
            signal(Signal::CONT);
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    killed.kill().unwrap();
    killed.wait().unwrap();
    eprintln!("killed a restore that left {left:?}");
    run(weft().arg("restore").arg(volume.at("kept/tree")).arg(&to)).good();
    eprintln!("restored in {:.1?}", begun.elapsed());
    forest::same(&from, &to);
    rsync_sees_no_difference(&from, &to);
    // Nothing of the jobs is left beside the archive but its manifest.
    let listed = run(weft().arg("ls").arg(volume.at("kept"))).good();
    assert_eq!(String::from_utf8_lossy(&listed), "tree\ntree.b3sums\n");
    assert!(!to.join(".weft-restore").exists());
    assert_eq!(incomplete_files(&to), [] as [PathBuf; 0]);
}

/// Files of a restore that have no name yet.
fn incomplete_files(below: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(below).into_iter().flatten().flatten();
    let (folders, files): (Vec<_>, Vec<_>) =
        entries.partition(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let is_one = |entry: &fs::DirEntry| entry.file_name().as_bytes().starts_with(b".weft-part-");
    let here = files.iter().filter(|entry| is_one(entry)).map(fs::DirEntry::path);
    here.chain(folders.iter().flat_map(|folder| incomplete_files(&folder.path()))).collect()
}

/// Somebody else's opinion, where there is one.
fn rsync_sees_no_difference(from: &Path, to: &Path) {
    let mut rsync = Command::new("rsync");
    rsync.args(["-aHAXni", "--checksum", "--delete"]).arg(from.join("")).arg(to.join(""));
    match rsync.output() {
        Err(_) => eprintln!("skipped: there is no rsync"),
        Ok(ended) => {
            assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
            assert_eq!(String::from_utf8_lossy(&ended.stdout), "");
        }
    }
}
