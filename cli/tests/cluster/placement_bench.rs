//! `weft bench placement`.

use crate::network::Network;
use crate::scratch::{Scratch, run, weft};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Few clients, and stores that are enough for a choice.
const SMALL: [&str; 11] =
    ["bench", "placement", "--code", "rs:2+1", "--stores", "3", "--clients", "2", "--quick", "--chunk-bytes", "4MiB"];

fn numbers(value: &Value) -> Vec<u64> {
    value.as_array().unwrap().iter().map(|number| number.as_u64().unwrap()).collect()
}

/// What each policy must have reached, whatever the machine does.
fn is_sound(result: &Value, policies: &[&str], scenarios: &[(&str, u64)]) {
    let all: Vec<(&str, u64)> = (result["scenarios"].as_array().unwrap().iter())
        .map(|scenario| (scenario["load"].as_str().unwrap(), scenario["slowed"].as_u64().unwrap()))
        .collect();
    assert_eq!(all, scenarios);
    for scenario in result["scenarios"].as_array().unwrap() {
        let reached = scenario["policies"].as_array().unwrap();
        let names: Vec<&str> = reached.iter().map(|reached| reached["policy"].as_str().unwrap()).collect();
        assert_eq!(names, policies);
        for round in reached.iter().flat_map(|reached| reached["rounds"].as_array().unwrap()) {
            let stores = numbers(&round["stores"]);
            assert_eq!(stores.len(), 3, "{round}");
            // Two data blocks and one of parity; a chunk that was given up is no longer counted.
            let (written, stored) = (round["bytes"].as_u64().unwrap(), stores.iter().sum::<u64>());
            assert!(written > 0 && stored >= written, "{round}");
            assert!(round["sets"].as_u64().unwrap() > 0 && round["seconds"].as_f64().unwrap() > 0.0, "{round}");
        }
    }
}

#[test]
fn all_policies_have_their_turns_and_the_figures_go_into_files() {
    let test = "all_policies_have_their_turns_and_the_figures_go_into_files";
    if !Network::possible(test) {
        return;
    }
    let scratch = Scratch::new(0);
    let place = scratch.path.join("try");
    let file = |name: &str| scratch.path.join(name);
    let bench = |more: &[&str]| {
        let mut command = weft();
        command.args(SMALL).args(["--load", "unbalanced", "--slow", "0,1", "--json", "--dir"]).arg(&place).args(more);
        command.arg("--json-file").arg(file("json")).arg("--csv").arg(file("csv")).arg("--html").arg(file("html"));
        run(&mut command)
    };
    let done = bench(&[]);
    if let Some(why) = no_network(done.status, &done.errors) {
        return eprintln!("{test} is skipped: {why}");
    }
    let result = done.json();
    is_sound(&result, &["adaptive", "random", "round-robin", "crush"], &[("unbalanced", 0), ("unbalanced", 1)]);
    assert_eq!(result["held"]["how"], "net");
    assert_eq!(fs::read_dir(&place).unwrap().count(), 0, "nothing is left");
    let written: Value = serde_json::from_slice(&fs::read(file("json")).unwrap()).unwrap();
    assert_eq!(written, result);
    assert_eq!(fs::read_to_string(file("csv")).unwrap().lines().count(), 9);
    assert!(fs::read_to_string(file("html")).unwrap().contains("1 of 3 stores slowed to 25 %"));
    assert!(bench(&[]).failed(1).contains("exists; give --force"));
}

#[test]
fn without_a_limit_no_store_can_be_slowed() {
    if rustix::process::geteuid().is_root() {
        return eprintln!("without_a_limit_no_store_can_be_slowed is skipped: root can slow stores");
    }
    let scratch = Scratch::new(0);
    let bench = |more: &[&str]| {
        let mut command = weft();
        command.args(SMALL).args(["--policies", "adaptive", "--load", "balanced", "--json", "--dir"]);
        run(command.arg(&scratch.path).args(more))
    };
    is_sound(&bench(&[]).json(), &["adaptive"], &[("balanced", 0)]);
    assert!(bench(&["--slow", "1"]).failed(1).contains("no store can be slowed here"));
    assert!(bench(&["--how", "net"]).failed(1).contains("--how net takes root"));
    assert_eq!(fs::read_dir(&scratch.path).unwrap().count(), 0, "nothing is left");
}

#[test]
fn processors_and_disks_can_be_what_limits() {
    let test = "processors_and_disks_can_be_what_limits";
    if !crate::lab::possible(test) {
        return;
    }
    let scratch = Scratch::new(0);
    for how in ["cpu", "disk"] {
        let mut command = weft();
        command.args(SMALL).args([
            "--how",
            how,
            "--policies",
            "adaptive",
            "--load",
            "balanced",
            "--slow",
            "1",
            "--json",
        ]);
        let done = run(command.arg("--dir").arg(&scratch.path));
        assert_eq!(fs::read_dir(&scratch.path).unwrap().count(), 0, "nothing is left");
        if ["control group", "a disk for each store takes"].iter().any(|why| done.errors.contains(why)) {
            assert_eq!(done.status, 1);
            eprintln!("{test} is skipped for {how}: {}", done.errors);
            continue;
        }
        let result = done.json();
        is_sound(&result, &["adaptive"], &[("balanced", 1)]);
        assert_eq!(result["held"]["how"], how);
    }
}

#[test]
fn what_cannot_be_is_said_first() {
    for (arguments, why) in [
        (&["--code", "rs:20+4"][..], "more --stores"),
        (&["--slow", "9"], "there are 8 stores"),
        (&["--slow-to", "4/1"], "such as 1/4"),
        (&["--policies", "adaptive,random,adaptive"], "adaptive twice"),
        (&["--policies", "fastest"], "the policies are"),
        (&["--load", "heavy"], "unbalanced"),
        (&["--how", "magic"], "net"),
        (&["--quick", "--rounds", "3"], "--rounds"),
        (&["--seconds", "0"], "from 0.1"),
    ] {
        let done = run(weft().args(["bench", "placement"]).args(arguments));
        assert!(done.status == 2 && done.errors.contains(why), "{}", done.errors);
    }
}

/// Why this kernel has no such network.
fn no_network(status: i32, said: &str) -> Option<&str> {
    let lacks =
        ["not possible here", "cannot be limited here", "is not possible"].iter().any(|words| said.contains(words));
    (status != 0 && lacks || said.contains("no store is limited")).then_some(said)
}

fn bench(place: &Path, seconds: &str) -> Child {
    let mut command = weft();
    command.args(["bench", "placement", "--code", "rs:2+1", "--stores", "3", "--clients", "1", "--rounds", "1"]);
    command.args(["--seconds", seconds, "--policies", "random", "--load", "balanced", "--slow", "0", "--how", "net"]);
    command
        .args(["--chunk-bytes", "4MiB"])
        .arg("--dir")
        .arg(place)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// The network namespaces of a bench.
fn namespaces(bench: u32) -> usize {
    let names = String::from_utf8(run(Command::new("ip").args(["netns", "list"])).good()).unwrap();
    let prefix = format!("weft-bench-{bench}-");
    names.lines().filter(|name| name.starts_with(&prefix)).count()
}

/// The processes that work in a directory or below it.
fn working_in(place: &Path) -> usize {
    let place = place.canonicalize().unwrap();
    let works = |entry: fs::DirEntry| fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(&place));
    fs::read_dir("/proc").unwrap().filter_map(Result::ok).map(works).filter(|&works| works).count()
}

#[test]
fn the_next_one_removes_what_a_killed_one_left() {
    let test = "the_next_one_removes_what_a_killed_one_left";
    if !Network::possible(test) {
        return;
    }
    let scratch = Scratch::new(0);
    let mut killed = bench(&scratch.path, "3600");
    let process = killed.id();
    // The log of the client: all servers run.
    let client = scratch.path.join(format!("weft-placement-{process}-0/client0.err"));
    let begun = Instant::now();
    while !client.exists() {
        if killed.try_wait().unwrap().is_some() {
            let done = killed.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&done.stderr);
            assert!(no_network(1, &said).is_some(), "{said}");
            return eprintln!("{test} is skipped: {said}");
        }
        assert!(begun.elapsed() < Duration::from_secs(120), "no client starts");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(namespaces(process), 6, "a client, a metadata server, three stores and a bridge");
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert!(working_in(&scratch.path) >= 4, "the servers go on");

    let next = bench(&scratch.path, "0.1");
    let other = next.id();
    let done = next.wait_with_output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert_eq!([namespaces(process), namespaces(other), working_in(&scratch.path)], [0; 3]);
    assert_eq!(fs::read_dir(&scratch.path).unwrap().count(), 0, "nothing is left");
}
