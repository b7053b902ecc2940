//! Few seeds, so that the simulation does not rot; `cargo xtask simulate` runs many.

use std::process::{Command, Output};

fn simulate(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_simulate")).args(arguments).output().expect("it starts")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn a_seed_is_the_same_run_byte_for_byte() {
    for seed in ["3", "8"] {
        let [first, second] = [(), ()].map(|()| simulate(&["--seed", seed, "--trace"]));
        assert!(first.status.success(), "seed {seed}: {}", said(&first));
        assert!(first.stderr.len() > 20_000, "the trace is there");
        assert!(first.stderr == second.stderr && first.stdout == second.stdout, "seed {seed}: two runs differ");
    }
}

/// The checks find what they are for: with a broken rule, a seed is wrong before long.
#[test]
fn broken_rules_are_found() {
    for rule in ["once", "sync", "locks", "recalls", "disks"] {
        let found = simulate(&["--seeds", "1..40", "--broken", rule]);
        assert!(!found.status.success(), "{rule}: {}", said(&found));
    }
}

/// The same for takeovers, and a seed is the same run.
#[test]
fn broken_rules_are_found_by_takeovers() {
    for rule in ["once", "sync", "fences", "leases", "witnesses", "clocks"] {
        let found = simulate(&["--failovers", "2000", "--broken", rule]);
        assert!(!found.status.success(), "{rule}: {}", said(&found));
    }
    let [first, second] = [(), ()].map(|()| simulate(&["--failovers", "1", "--seed", "14", "--trace"]));
    assert!(first.status.success(), "{}", said(&first));
    assert!(first.stderr == second.stderr && first.stdout == second.stdout, "two runs differ");
}

#[test]
fn what_cannot_be_understood_is_refused() {
    for wrong in [&["--seeds", "5"][..], &["--seed", "x"], &["--broken", "all", "--seed", "1"], &[]] {
        assert_eq!(simulate(wrong).status.code(), Some(2), "{wrong:?}");
    }
}
