//! The soaks, and the fuzzers, under AddressSanitizer, which takes a nightly compiler.

use crate::fuzz;
use std::path::Path;
use std::process::Command;

/// Tests that read and write beside faults.
const SOAKS: [&[&str]; 3] = [
    &["-p", "volume", "--test", "hanging", "--test", "sets", "--test", "masters"],
    &["-p", "fs", "--test", "soak", "--test", "suite", "--", "soak", "clients::", "restarts::"],
    &["-p", "cluster", "--lib", "--", "simulated"],
];

/// Runs the soaks, and every fuzz target for `seconds`.
///
/// # Errors
/// What failed; it begins with `NOT_HERE` when there is no nightly compiler.
pub fn run(root: &Path, seconds: u64) -> Result<(), String> {
    let host = fuzz::host()?;
    for soak in SOAKS {
        let mut command = Command::new("rustup");
        command.args(["run", "nightly", "cargo", "test", "--release", "--no-fail-fast", "--target", &host]).args(soak);
        // Threads that still wait for targets that hang when a test ends have their memory.
        command.env("ASAN_OPTIONS", "detect_leaks=0").env("RUSTFLAGS", "-Zsanitizer=address");
        command.env("CARGO_TARGET_DIR", root.join("target/asan")).env_remove("RUSTC").current_dir(root);
        eprintln!("== with AddressSanitizer: cargo test {}", soak.join(" "));
        let status = command.status().map_err(|why| format!("rustup: {why}"))?;
        if !status.success() {
            return Err(format!("cargo test {} failed with AddressSanitizer", soak.join(" ")));
        }
    }
    fuzz::run(root, fuzz::build(root, "address", true)?, seconds, "address")
}
