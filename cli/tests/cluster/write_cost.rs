//! `weft bench write-cost`, and the model of what it measured.

use crate::lab::possible;
use crate::network::Network;
use crate::scratch::{Scratch, run, weft};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn the_steps_of_records_are_measured_and_make_a_model() {
    if !possible("the_steps_of_records_are_measured_and_make_a_model") {
        return;
    }
    let scratch = Scratch::new(0);
    let (place, file) = (scratch.path.join("try"), scratch.path.join("result.json"));
    fs::create_dir(&place).unwrap();
    let bench = |more: &[&str]| {
        let mut command = weft();
        command.args(["bench", "write-cost", "--quick", "--code", "rs:2+1", "--stores", "3", "--dir"]).arg(&place);
        run(command.arg("--json-file").arg(&file).args(more))
    };
    let result = bench(&["--json"]).json();
    assert_eq!(fs::read_dir(&place).unwrap().count(), 0, "nothing is left");
    let written: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_eq!(written, result);
    let points = result["points"].as_array().unwrap();
    let ways: Vec<_> = points.iter().map(|point| point["way"].as_str().unwrap()).collect();
    assert_eq!(ways, ["inline", "inline", "inline", "stripe", "stripe", "stripe"]);
    for point in points {
        let step = |number: usize| point["rounds"][0]["counted"][number].as_f64().unwrap();
        // DT is of Masters, and what is not in a stripe is not coded.
        for (number, code) in ["CT", "MT", "DT", "MP", "PC", "DD", "SP"].iter().enumerate() {
            let none = number == 2 || point["way"] == "inline" && (3..=4).contains(&number);
            assert!(none || step(number) > 0.0, "{code}: {point}");
        }
        assert!(step(2) == 0.0, "{point}");
    }
    // Nothing is counted twice. A busy machine can stop a probe between its count and its clock, so
    // all points of one run have to show it, not of each run.
    let is_once = |point: &Value| {
        let round = &point["rounds"][0];
        let counted: f64 = (0..7).map(|step| round["counted"][step].as_f64().unwrap()).sum();
        counted <= round["wall"].as_f64().unwrap()
    };
    let is_sound = |result: &Value| result["points"].as_array().unwrap().iter().all(is_once);
    assert!(is_sound(&result) || (0..4).any(|_| is_sound(&bench(&["--json", "--force"]).json())), "{result}");
    assert!(bench(&[]).failed(1).contains("exists; give --force"));
    let text = String::from_utf8(bench(&["--force"]).good()).unwrap();
    assert!(text.contains("sum/wall") && text.contains("the metadata") && text.contains("1.0 MiB"), "{text}");

    let model = scratch.path.join("model.json");
    run(weft().args(["model", "calibrate"]).arg(&file).arg("--out").arg(&model)).good();
    run(weft().args(["model", "check"]).arg(&file)).good();
    let predicted = run(weft().args(["model", "predict", "--net", "10G", "--json", "--model"]).arg(&model)).json();
    assert!(predicted["serial"]["seconds"].as_f64().unwrap() > 0.0, "{predicted}");
}

#[test]
fn threads_write_with_several_codes_and_without_servers() {
    if !possible("threads_write_with_several_codes_and_without_servers") {
        return;
    }
    let scratch = Scratch::new(0);
    let file = |name: &str| scratch.path.join(name);
    let mut command = weft();
    command.args(["bench", "write-cost", "--quick", "--json", "--code", "rs:2+1", "--stores", "3", "--embedded"]);
    command.args(["--threads", "1,3", "--stream-code", "none:2+1", "--stream-code", "rs:2+1@naive"]);
    command.args(["--coding", "client,server", "--master", "2", "--stripe-bytes", "64k", "--channels", "10"]);
    command.arg("--dir").arg(&scratch.path).arg("--stream-csv").arg(file("s.csv"));
    command.arg("--html").arg(file("page.html")).arg("--json-lines").arg(file("lines"));
    let result = run(&mut command).json();
    let points = result["points"].as_array().unwrap();
    assert_eq!(points.iter().filter(|point| point["embedded"] == true).count(), 6);
    let streams = result["streams"].as_array().unwrap();
    let names: Vec<String> = (streams.iter())
        .map(|stream| format!("{} {} {} {}", stream["coding"], stream["code"], stream["kernel"], stream["threads"]))
        .collect();
    let codes = [r#""none:2+1" null"#, r#""rs:2+1" "naive""#];
    let both = ["client", "server"].map(|who| codes.map(|code| [1, 3].map(|n| format!("{who:?} {code} {n}"))));
    assert_eq!(names, both.concat().concat());
    for stream in streams {
        let round = &stream["rounds"][0];
        let number = |value: &Value| value.as_f64().unwrap();
        assert!(number(&round["wall"]) > 0.0 && number(&round["counted"][6]) > 0.0, "{stream}");
        // DT is of Masters.
        assert_eq!(number(&round["counted"][2]) > 0.0, stream["coding"] == "server", "{stream}");
    }
    let lines = fs::read_to_string(file("lines")).unwrap();
    let whats: Vec<Value> = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()).collect();
    assert_eq!(whats.iter().filter(|line| line["what"] == "stream").count(), 8);
    assert_eq!(fs::read_to_string(file("s.csv")).unwrap().lines().count(), 9);
    assert!(fs::read_to_string(file("page.html")).unwrap().contains("rs:2+1@naive"));
}

#[test]
fn what_a_bench_cannot_do_is_said_first() {
    for (arguments, why) in [
        (&["--coding", "auto"][..], "client or server"),
        (&["--embedded", "--net", "1G"], "--embedded"),
        (&["--master", "1"], "--coding server"),
        (&["--master", "7", "--coding", "server"], "from 1 to 6"),
        (&["--threads", "1", "--stream-code", "rs:4+2@fast"], "no kernel"),
        (&["--code", "rs:8+3"], "--stores 11"),
        (&["--code", "rs:8+3", "--stores", "12,6"], "--stores 11"),
        (&["--stores", "6,12,6"], "twice"),
        (&["--stores", "6,12", "--threads", "1"], "one number"),
    ] {
        let said = run(weft().args(["bench", "write-cost"]).args(arguments)).failed(2);
        assert!(said.contains(why), "{said}");
    }
}

/// A bench of few records behind a network, in a directory.
fn bench(place: &Path, arguments: &[&str]) -> Child {
    let mut command = weft();
    command.args(["bench", "write-cost", "--json", "--code", "rs:2+1", "--stores", "3", "--rounds", "1", "--dir"]);
    command.arg(place).args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// The network namespaces of a bench.
fn namespaces(bench: u32) -> Vec<String> {
    let names = String::from_utf8(run(Command::new("ip").args(["netns", "list"])).good()).unwrap();
    let prefix = format!("weft-bench-{bench}-");
    names.lines().filter(|name| name.starts_with(&prefix)).map(str::to_owned).collect()
}

/// The result of a bench, or why this kernel has no such network.
fn result(bench: Child) -> Result<Value, String> {
    let done = bench.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    if said.contains("not possible here") || said.contains("cannot be limited here") {
        assert!(!done.status.success());
        return Err(said);
    }
    assert!(done.status.success(), "{said}");
    Ok(serde_json::from_slice(&done.stdout).unwrap())
}

#[test]
fn records_are_measured_behind_limited_links() {
    let test = "records_are_measured_behind_limited_links";
    if !Network::possible(test) {
        return;
    }
    let scratch = Scratch::new(0);
    // No machine carries the second through its memory.
    let bench = bench(&scratch.path, &["--net", "100M,1000T,none", "--records", "128k", "--count", "4"]);
    let process = bench.id();
    let result = match result(bench) {
        Ok(result) => result,
        Err(why) => return eprintln!("{test} is skipped: {why}"),
    };
    assert_eq!(namespaces(process), Vec::<String>::new());
    assert_eq!(fs::read_dir(&scratch.path).unwrap().count(), 0, "nothing is left");
    let reachable: Vec<bool> = (result["networks"].as_array().unwrap().iter())
        .map(|network| network["reachable"].as_bool().unwrap())
        .collect();
    assert_eq!(reachable[1..], [false, true], "{result}");
    let wall = |net: &str| {
        let point = result["points"].as_array().unwrap().iter().find(|point| point["net"] == net)?;
        point["rounds"][0]["wall"].as_f64()
    };
    assert!(wall("none").is_some() && wall("1000T").is_none());
    // A machine that is very busy may miss even this one. Else each record waits for the wire:
    // three blocks of 64 KiB, less what an idle link lets through.
    assert_eq!(wall("100M").is_some(), reachable[0]);
    if let Some(wall) = wall("100M") {
        assert!(wall > 4.0 * 0.9 * 3.0 * 65_536.0 / 12.5e6, "{wall}");
    }
}

#[test]
fn the_next_bench_removes_what_a_killed_one_left() {
    let test = "the_next_bench_removes_what_a_killed_one_left";
    if !Network::possible(test) {
        return;
    }
    let scratch = Scratch::new(0);
    let many = ["--net", "none", "--records", "4k", "--count", "1000000"];
    let mut killed = bench(&scratch.path, &many);
    let process = killed.id();
    let place = scratch.path.join(format!("weft-write-cost-{process}-0"));
    let begun = Instant::now();
    while !place.join("mountpoint/records-4096").exists() {
        if killed.try_wait().unwrap().is_some() {
            let why = result(killed).expect_err("it does not end");
            return eprintln!("{test} is skipped: {why}");
        }
        assert!(begun.elapsed() < Duration::from_secs(120), "no record is written");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(namespaces(process).len(), 6, "a client, a metadata server, three stores and a bridge");
    killed.kill().unwrap();
    killed.wait().unwrap();

    let next = bench(&scratch.path, &["--net", "none", "--records", "4k", "--count", "1"]);
    let other = next.id();
    result(next).unwrap();
    assert_eq!([namespaces(process), namespaces(other)], [Vec::<String>::new(), Vec::new()]);
    assert_eq!(fs::read_dir(&scratch.path).unwrap().count(), 0, "nothing is left");
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    assert!(!mounts.contains(scratch.path.to_str().unwrap()), "{mounts}");
}
