//! Archives that go straight onto a cluster and come back from it, while jobs and stores are
//! killed.

use crate::forest;
use crate::lab::Cluster;
use crate::scratch::{Ended, run, weft};
use crate::starter;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

/// Files of the tree.
const FILES: usize = 1500;
/// A job on its way is slow enough to be hit there.
const RATE_LIMIT: &str = "--limit=4MiB";

/// A job that was started, and the files that it writes what it says to.
struct Job {
    child: Child,
    output: PathBuf,
    errors: PathBuf,
}

impl Job {
    /// Starts a job and waits until it has done `files` files; returns how many it reports.
    #[track_caller]
    fn on_its_way(mut command: Command, scratch: &Path, files: u64) -> (Self, u64) {
        let (output, errors) = (scratch.join("job"), scratch.join("job.log"));
        command.args(["--json", RATE_LIMIT]);
        let child = starter::start(command, &output, &errors).unwrap();
        let mut job = Self { child, output, errors };
        loop {
            let ended = job.child.try_wait().unwrap();
            let said = fs::read_to_string(&job.output).unwrap();
            let whole = said.rfind('\n').map_or("", |end| &said[..end]);
            let told = whole.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
            let done = told.filter_map(|told| told["progress"]["files"].as_u64()).find(|&done| done >= files);
            match (done, ended) {
                (Some(done), _) => return (job, done),
                (None, Some(status)) => panic!("it ended before: {status} {}", job.errors()),
                (None, None) => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    fn errors(&self) -> String {
        fs::read_to_string(&self.errors).unwrap()
    }
}

#[track_caller]
fn facts(ended: &Ended) -> Value {
    assert_eq!(ended.status, 0, "{}", ended.errors);
    let text = String::from_utf8_lossy(&ended.output);
    serde_json::from_str::<Value>(text.lines().last().unwrap()).unwrap()["facts"].clone()
}

#[test]
fn an_archive_goes_onto_a_cluster_and_comes_back_whatever_is_killed() {
    let cluster = Cluster::new("rs:4+2", 6);
    let scratch = &cluster.scratch.path;
    let from = scratch.join("from");
    let tree = forest::grow(&from, FILES);
    let kept = cluster.at("kept/tree");
    let archive = |workers: &str| {
        let mut command = weft();
        command.env("TMPDIR", scratch).args(["archive", "--part-bytes", "1MiB", "--workers", workers]);
        command.arg(from.join("")).arg(&kept);
        command
    };
    let mut told = 0;
    for (round, share) in [(1, 6), (2, 5), (1, 4)] {
        let left = tree.files - told;
        let (mut job, done) = Job::on_its_way(archive(&round.to_string()), scratch, left / share);
        job.child.kill().unwrap();
        job.child.wait().unwrap();
        told += done;
    }
    // Another one into the same directory waits for the one on its way: together they would do
    // files twice.
    let last = std::thread::scope(|scope| {
        let both = ["3", "1"].map(|workers| scope.spawn(|| facts(&run(archive(workers).arg("--json")))));
        let [mut one, mut other] = both.map(|job| job.join().unwrap());
        if one["files"].as_u64() < other["files"].as_u64() {
            std::mem::swap(&mut one, &mut other);
        }
        assert_eq!(other["files"], 0, "it found all done");
        one
    });
    let files = |facts: &Value| facts["files"].as_u64().unwrap();
    assert!(files(&last) > 0 && told + files(&last) <= tree.files, "{told} of {tree:?}: {last}");
    assert_eq!(files(&facts(&run(archive("2").arg("--json")))), 0, "nothing is left to do");
    run(weft().args(["verify", "--manifest", &kept])).good();
    run(weft().args(["verify", "--manifest", &kept]).arg(&from)).good();

    let to = scratch.join("to");
    let mut restore = weft();
    restore.env("TMPDIR", scratch).args(["restore", &kept]).arg(&to);
    let (mut job, _) = Job::on_its_way(restore, scratch, tree.files / 10);
    cluster.stores[1].kill();
    cluster.stores[4].kill();
    let status = job.child.wait().unwrap();
    assert!(status.success(), "{status}: {}", job.errors());
    forest::same(&from, &to);

    for store in [1, 4] {
        cluster.stores[store].start();
    }
    cluster.heal();
    cluster.is_healthy();
    // A file is named if its content in the archive differs from the source.
    fs::write(from.join("large 0"), b"changed").unwrap();
    let found = run(weft().args(["verify", "--manifest", &kept]).arg(&from));
    assert!(found.status == 1 && found.errors.contains("large 0: it has 7 bytes at the source"), "{}", found.errors);
}
