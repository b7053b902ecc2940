//! What the commands print about codes, fragments and themselves.

use crate::scratch::{Scratch, edit, run, weft};
use std::process::Stdio;

#[test]
fn the_table_of_codes_fits_a_terminal_and_has_every_code() {
    let table = String::from_utf8(run(weft().arg("codes")).good()).unwrap();
    assert!(table.lines().all(|line| line.chars().count() <= 100), "{table}");
    for family in ec::catalogue() {
        assert!(table.lines().any(|line| line.starts_with(&format!("{} ", family.name))), "{}", family.name);
    }
    let document = run(weft().args(["codes", "--json"])).json();
    assert_eq!(document["codes"].as_array().unwrap().len(), ec::catalogue().len());
}

#[test]
fn one_code_is_shown_with_its_numbers() {
    let document = run(weft().args(["codes", "lrc:12+2+2", "--json"])).json();
    assert_eq!(
        (&document["k"], &document["m"], &document["repair_reads_blocks"][0]),
        (&12.into(), &4.into(), &6.0.into())
    );
    let program = run(weft().args(["codes", "crs:4+2", "--program"])).good();
    assert!(program.iter().filter(|&&b| b == b'\n').count() > 8);
    run(weft().args(["codes", "rs:4+2", "--program"])).failed(1);
    run(weft().args(["codes", "rs:999+2"])).failed(2);
}

#[test]
fn the_kernel_can_be_forced() {
    let document = run(weft().env("WEFT_KERNEL", "naive").args(["codes", "--json"])).json();
    assert_eq!(document["kernel"], "naive");
    assert!(run(weft().env("WEFT_KERNEL", "abacus").arg("codes")).failed(2).contains("abacus"));
}

#[test]
fn a_fragment_is_inspected() {
    let scratch = Scratch::new(6);
    scratch.encode(scratch.file("f", 100_000), "rs:4+2", &["--block-bytes", "4096"]).good();
    let inspect = |more: &[&str]| run(weft().arg("inspect").arg(scratch.fragment("f", 5)).args(more));
    let document = inspect(&["--json"]).json();
    assert_eq!(
        (&document["name"], &document["position"], &document["sound_blocks"]),
        (&"f".into(), &5.into(), &7.into())
    );
    edit(&scratch.fragment("f", 5), |bytes| bytes[5000] ^= 1);
    let ended = inspect(&[]);
    assert_eq!(ended.status, 1);
    assert!(ended.errors.contains("stripe 0") && String::from_utf8_lossy(&ended.output).contains("6 blocks of 7"));
    edit(&scratch.fragment("f", 5), |bytes| bytes[50] ^= 1);
    assert!(inspect(&[]).failed(1).contains("the checksum does not match"));
    assert!(run(weft().args(["inspect", "/nowhere"])).failed(1).contains("/nowhere"));
}

#[test]
fn a_closed_pipe_ends_quietly() {
    let scratch = Scratch::new(6);
    scratch.encode(scratch.file("f", 3_000_000), "rs:4+2", &[]).good();
    let mut decode = weft();
    decode.args(["decode", "f", "--out", "-", "--from"]).args(&scratch.disks);
    for mut command in [decode, {
        let mut codes = weft();
        codes.arg("codes");
        codes
    }] {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let ended = child.wait_with_output().unwrap();
        assert_eq!((ended.status.code(), ended.stderr), (Some(1), Vec::new()));
    }
}

#[test]
fn the_demonstration_runs_and_cleans_up() {
    let scratch = Scratch::new(0);
    let document = run(weft().args(["demo", "--json", "--bytes", "3000000", "--dir"]).arg(&scratch.path)).json();
    assert!(document["files"].as_array().unwrap().iter().all(|file| file["identical"] == true && file["made"] == 2));
    assert_eq!(std::fs::read_dir(&scratch.path).unwrap().count(), 0);
    let said = run(weft().args(["demo", "--bytes", "3000000", "--dir"]).arg(&scratch.path)).good();
    assert!(String::from_utf8(said).unwrap().contains("byte for byte"));
}
