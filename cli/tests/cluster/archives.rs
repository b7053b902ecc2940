//! Archives that go straight onto a cluster and come back from it, while jobs and stores are killed.

use crate::forest;
use crate::lab::Cluster;
use crate::scratch::{Ended, run, weft};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// Files of the tree.
const FILES: usize = 1500;
/// A job on its way is slow enough to be hit there.
const SLOW: &str = "--limit=4MiB";

/// Starts a job and reads what it says until it has done so many files.
#[track_caller]
fn on_its_way(command: &mut Command, files: u64) -> (Child, u64, BufReader<std::process::ChildStdout>) {
    let mut job = command.args(["--json", SLOW]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(job.stdout.take().unwrap());
    let mut line = String::new();
    while said.read_line(&mut line).unwrap() > 0 {
        let told: Value = serde_json::from_str(&line).unwrap();
        let done = told["progress"]["files"].as_u64().filter(|&done| done >= files);
        if let Some(done) = done {
            return (job, done, said);
        }
        line.clear();
    }
    let status = job.wait().unwrap();
    panic!("it ended before: {status} {}", errors(&mut job));
}

fn errors(job: &mut Child) -> String {
    job.stderr.take().map(|errors| std::io::read_to_string(errors).unwrap()).unwrap_or_default()
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
        let (mut job, done, _) = on_its_way(&mut archive(&round.to_string()), left / share);
        job.kill().unwrap();
        job.wait().unwrap();
        told += done;
    }
    let last = facts(&run(archive("3").arg("--json")));
    let files = |facts: &Value| facts["files"].as_u64().unwrap();
    assert!(files(&last) > 0 && told + files(&last) <= tree.files, "{told} of {tree:?}: {last}");
    assert_eq!(files(&facts(&run(archive("2").arg("--json")))), 0, "nothing is left to do");
    run(weft().args(["verify", "--manifest", &kept])).good();
    run(weft().args(["verify", "--manifest", &kept]).arg(&from)).good();

    let to = scratch.join("to");
    let mut restore = weft();
    restore.env("TMPDIR", scratch).args(["restore", &kept]).arg(&to);
    let (mut job, _, said) = on_its_way(&mut restore, tree.files / 10);
    cluster.stores[1].kill();
    cluster.stores[4].kill();
    let rest: Vec<String> = said.lines().map(Result::unwrap).collect();
    let status = job.wait().unwrap();
    assert!(status.success(), "{status}: {}{:?}", errors(&mut job), rest.last());
    forest::same(&from, &to);

    for store in [1, 4] {
        cluster.stores[store].start();
    }
    cluster.heal();
    cluster.is_healthy();
    // A file of which the archive has another content than the source is named.
    fs::write(from.join("large 0"), b"changed").unwrap();
    let found = run(weft().args(["verify", "--manifest", &kept]).arg(&from));
    assert!(found.status == 1 && found.errors.contains("large 0: it has 7 bytes at the source"), "{}", found.errors);
}
