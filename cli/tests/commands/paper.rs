//! `weft bench paper`, and what it repeats without a cluster.

use crate::scratch::{Scratch, run, weft};
use serde_json::Value;
use std::fs;

#[test]
fn experiments_are_listed_with_their_commands() {
    let text = String::from_utf8(run(weft().args(["bench", "paper"])).good()).unwrap();
    for part in ["exstorus: \"Cost analysis", "figures 4, 5:", "weft bench codes --section table", "--simulated"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let all = run(weft().args(["bench", "paper", "--json"])).json();
    assert_eq!(all["experiments"].as_array().unwrap().len(), text.matches("\n    weft ").count());
    // One figure, with files and the paper's size.
    let one = ["bench", "paper", "exstorus", "fig. 12", "--dry-run", "--full", "--out", "a b"];
    let line = String::from_utf8(run(weft().args(one)).good()).unwrap();
    assert!(line.contains("--count 50000") && line.contains("'a b/exstorus-table-1.json'"), "{line}");
    let said = run(weft().args(["bench", "paper", "gluster", "7"])).failed(2);
    assert!(said.contains("no command repeats 7 of gluster; there are table 1, table 2"), "{said}");
}

#[test]
fn a_figure_is_repeated_into_files() {
    let scratch = Scratch::new(0);
    let out = scratch.path.join("results");
    let repeat = || {
        let mut command = weft();
        command.args(["bench", "paper", "ecfs", "6", "--quick", "--out"]).arg(&out);
        command
    };
    let text = String::from_utf8(run(&mut repeat()).good()).unwrap();
    assert!(text.starts_with("== ecfs, figure 6: encoding by the size of regions"), "{text}");
    let page = fs::read_to_string(out.join("ecfs-6.html")).unwrap();
    assert!(page.contains("<svg"));
    let result: Value = serde_json::from_str(&fs::read_to_string(out.join("ecfs-6.json")).unwrap()).unwrap();
    assert!(result.is_object());
    // A second run replaces nothing unasked, and says what it could not do.
    let again = run(&mut repeat());
    assert!(String::from_utf8_lossy(&again.output).ends_with("not repeated: ecfs-6\n"));
    assert!(again.failed(1).contains("exists; give --force to replace it"));
    run(repeat().arg("--force")).good();
}

/// An experiment writes what a reader plots, pipes and looks at.
fn is_repeated_into_three_files(paper: &str, figure: &str, name: &str) {
    let scratch = Scratch::new(0);
    let out = scratch.path.join("results");
    let mut command = weft();
    command.args(["bench", "paper", paper, figure, "--quick", "--dir"]).arg(&scratch.path).arg("--out").arg(&out);
    run(&mut command).good();
    let file = |ending: &str| fs::read_to_string(out.join(format!("{name}.{ending}"))).unwrap();
    assert!(serde_json::from_str::<Value>(&file("json")).unwrap().is_object());
    let table = file("csv");
    assert!(table.lines().count() > 3 && table.lines().all(|line| line.contains(',')), "{table}");
    let page = file("html");
    assert!(page.starts_with("<!doctype html>") && page.contains("<svg"));
    // It leaves nothing else.
    let left: Vec<_> = fs::read_dir(&scratch.path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["results"]);
}

#[test]
fn codes_are_repeated_into_three_files() {
    is_repeated_into_three_files("gluster", "table 1", "gluster-table-1");
}

#[test]
fn directories_are_repeated_into_three_files() {
    is_repeated_into_three_files("ecfs", "directories", "ecfs-directories");
}

#[test]
fn overlap_is_repeated_into_three_files() {
    is_repeated_into_three_files("ecfs", "7", "ecfs-2");
}

#[test]
fn channels_are_repeated_into_three_files() {
    is_repeated_into_three_files("exstorus", "channels", "exstorus-channels");
}

#[test]
fn the_energy_study_is_repeated_into_three_files() {
    is_repeated_into_three_files("energy", "3A", "energy-2");
}

/// What is predicted takes constants of this machine, which are measured before.
#[test]
fn a_prediction_is_of_constants_that_are_measured_before() {
    let line = String::from_utf8(run(weft().args(["bench", "paper", "exstorus", "15", "--dry-run"])).good()).unwrap();
    let steps: Vec<&str> = line.trim().split(" && ").collect();
    let [measured, fitted, predicted] = steps[..] else { panic!("{line}") };
    let last = |text: &str| text.split(' ').next_back().unwrap().to_owned();
    assert!(measured.starts_with("weft bench write-cost") && fitted.contains(&last(measured)), "{line}");
    assert!(predicted.starts_with("weft model predict") && predicted.contains(&last(fitted)), "{line}");
    // With the experiment that measures the same, once is enough.
    let all = String::from_utf8(run(weft().args(["bench", "paper", "exstorus", "--dry-run"])).good()).unwrap();
    let measured: Vec<&str> = all.lines().filter(|line| line.contains("--records")).collect();
    let [measured] = measured[..] else { panic!("{all}") };
    let fitted = all.lines().find(|line| line.contains("model calibrate")).unwrap();
    assert!(fitted.starts_with("weft model calibrate") && fitted.contains(&last(measured)), "{all}");
}

#[test]
fn placement_is_compared_in_the_simulator() {
    let simulated = |more: &[&str]| run(weft().args(["bench", "placement", "--simulated", "--quick"]).args(more));
    let first = simulated(&["--json"]).good();
    assert!(first == simulated(&["--json"]).good(), "the same chances");
    let study: Value = serde_json::from_slice(&first).unwrap();
    let comparisons = study["comparisons"].as_array().unwrap();
    assert_eq!(comparisons.len(), 4, "two numbers of servers, two loads");
    let is_whole = |it: &Value| it["outcomes"].as_array().unwrap().len() == 5;
    assert!(comparisons.iter().all(is_whole));
    let text = String::from_utf8(simulated(&["--servers", "32"]).good()).unwrap();
    assert!(text.contains("modelled") && text.contains("the paper's adaptive"), "{text}");
    let said = simulated(&["--servers", "4"]).failed(2);
    assert!(said.contains("servers are from 8"), "{said}");
    let both = simulated(&["--slow", "2"]);
    assert!(both.status == 2 && both.errors.contains("cannot be used with '--slow"), "{}", both.errors);
}
