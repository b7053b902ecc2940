//! Runs the fuzz targets of `fuzz/` with cargo-fuzz, which needs a nightly compiler.

use crate::NOT_HERE;
use std::path::Path;
use std::process::{Command, Stdio};

/// Runs every target for `seconds` with a sanitizer (`none`, `address`); installs cargo-fuzz first
/// if `install` says so. A target begins with the inputs in `fuzz/seeds/TARGET`; what it finds
/// beyond them goes to `fuzz/corpus/TARGET`, which is not kept in git.
pub fn run(root: &Path, seconds: u64, install: bool, sanitizer: &str) -> Result<(), String> {
    let works = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|s| s.success())
    };
    if !works("rustup", &["run", "nightly", "rustc", "--version"]) {
        return Err(format!("{NOT_HERE}: a nightly compiler (rustup toolchain install nightly)"));
    }
    if !works("cargo", &["fuzz", "--version"]) {
        if !install {
            return Err(format!("{NOT_HERE}: cargo-fuzz"));
        }
        let installed = Command::new("cargo").args(["install", "--locked", "cargo-fuzz"]).status();
        if !installed.is_ok_and(|s| s.success()) {
            return Err(format!("{NOT_HERE}: cargo-fuzz, and `cargo install cargo-fuzz` failed"));
        }
    }
    let listed = Command::new("cargo")
        .args(["+nightly", "fuzz", "list"])
        .current_dir(root)
        .output()
        .map_err(|e| format!("cargo fuzz list: {e}"))?;
    // A sanitizer's own memory counts, too. Threads that nobody waits for have some while they
    // end, which looks like a leak now and then; what is lost each time comes to the limit.
    let memory = ["-detect_leaks=0".into(), format!("-rss_limit_mb={}", if sanitizer == "none" { 512 } else { 2048 })];
    for target in String::from_utf8_lossy(&listed.stdout).lines() {
        eprintln!("== fuzz {target}, {seconds} s");
        let limit = format!("-max_total_time={seconds}");
        let [corpus, seeds] = ["corpus", "seeds"].map(|kind| root.join("fuzz").join(kind).join(target));
        std::fs::create_dir_all(&corpus).map_err(|e| format!("{}: {e}", corpus.display()))?;
        let directories = [Some(&corpus), seeds.is_dir().then_some(&seeds)].into_iter().flatten();
        let status = Command::new("cargo")
            .args(["+nightly", "fuzz", "run", "--sanitizer", sanitizer, target])
            .args(directories)
            .args(["--", &limit])
            .args(&memory)
            .current_dir(root)
            .status()
            .map_err(|e| format!("cargo fuzz run: {e}"))?;
        if !status.success() {
            return Err(format!("fuzz target {target} failed; its input is in fuzz/artifacts/{target}"));
        }
    }
    Ok(())
}
