//! Runs the fuzz targets of `fuzz/` with cargo-fuzz, which needs a nightly compiler.

use std::path::Path;
use std::process::{Command, Stdio};

/// How an error begins when the tools are missing, as opposed to a target having failed.
pub const NOT_HERE: &str = "not installed";

/// Runs every target for `seconds`; installs cargo-fuzz first if `install` says so.
pub fn run(root: &Path, seconds: u64, install: bool) -> Result<(), String> {
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
    for target in String::from_utf8_lossy(&listed.stdout).lines() {
        eprintln!("== fuzz {target}, {seconds} s");
        let limit = format!("-max_total_time={seconds}");
        let status = Command::new("cargo")
            .args(["+nightly", "fuzz", "run", "--sanitizer", "none", target, "--", &limit, "-rss_limit_mb=512"])
            .current_dir(root)
            .status()
            .map_err(|e| format!("cargo fuzz run: {e}"))?;
        if !status.success() {
            return Err(format!("fuzz target {target} failed; its input is in fuzz/artifacts/{target}"));
        }
    }
    Ok(())
}
