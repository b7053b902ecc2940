//! `cargo xtask simulate`: whole file systems in one world by one seed (the crate `simulate`).

use crate::suite;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

/// Runs seeds.
///
/// # Errors
/// When a seed is wrong; the program has printed which one.
pub fn run(root: &Path, arguments: &[&str]) -> Result<(), String> {
    crate::cargo(&["build", "--release", "-p", "simulate"], &[])?;
    start(&program(root), arguments)
}

/// The seeds of a test run: some that are always the same, and some new ones.
///
/// # Errors
/// As `run`.
pub fn test(root: &Path) -> Result<(), String> {
    let program = program(root);
    let fresh = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() * 1000;
    let fresh = format!("{fresh}..{}", fresh + 1_000_000);
    let ranges = [&["--seeds", "1..1000000"][..], &["--seeds", &fresh], &["--takeovers", "--seeds", &fresh]];
    // All failures at once: a run takes many minutes.
    let ended = ranges.map(|range| start(&program, &[range, &["--minutes", "1"]].concat()));
    ended.into_iter().collect()
}

fn program(root: &Path) -> PathBuf {
    root.join("target/release/simulate")
}

fn start(program: &Path, arguments: &[&str]) -> Result<(), String> {
    let mut command = Command::new(program);
    let status = command.args(arguments).envs(suite::TESTS).stdin(Stdio::null()).status();
    let status = status.map_err(|why| format!("{}: {why}", program.display()))?;
    if status.success() { Ok(()) } else { Err(format!("simulate {} failed", arguments.join(" "))) }
}
