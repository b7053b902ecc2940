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
        assert!(first.stderr.len() > 100_000, "the trace is there");
        assert!(first.stderr == second.stderr && first.stdout == second.stdout, "seed {seed}: two runs differ");
    }
}
