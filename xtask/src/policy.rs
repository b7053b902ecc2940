//! Checks that need tools which are not everywhere: cargo-deny, the oldest supported compiler, the
//! library of another processor. A check that cannot run here is named with its reason.

use crate::{NOT_HERE, cargo};
use std::path::Path;
use std::process::Command;

/// Another processor, and the crates that must compile for it.
const OTHER_TARGET: &str = "aarch64-unknown-linux-gnu";
const FOR_OTHER_TARGET: [&str; 4] = ["-p", "weft-gf", "-p", "weft-ec"];

/// Licences, duplicates and sources of everything that is linked, by `deny.toml`. It asks no
/// network.
///
/// # Errors
/// What breaks the policy; it begins with `NOT_HERE` without cargo-deny.
pub fn dependencies() -> Result<(), String> {
    if output("cargo", &["deny", "--version"]).is_none() {
        return Err(format!("{NOT_HERE}: cargo-deny (cargo install --locked cargo-deny)"));
    }
    cargo(&["deny", "--offline", "check", "licenses", "bans", "sources"], &[])
}

/// Compiles everything with the oldest compiler that Cargo.toml promises.
///
/// # Errors
/// When that fails; it begins with `NOT_HERE` without that compiler.
pub fn oldest_compiler(root: &Path) -> Result<(), String> {
    let manifest = std::fs::read_to_string(root.join("Cargo.toml")).map_err(|why| format!("Cargo.toml: {why}"))?;
    let version = manifest.lines().find_map(|line| line.strip_prefix("rust-version = "));
    let version = version.ok_or("Cargo.toml names no rust-version")?.trim_matches('"');
    let toolchains = output("rustup", &["toolchain", "list"]).unwrap_or_default();
    let is_this = |name: &str| name.strip_prefix(version).is_some_and(|rest| rest.starts_with(['.', '-']));
    let Some(toolchain) = toolchains.split_whitespace().find(|name| is_this(name)) else {
        return Err(format!("{NOT_HERE}: rust {version} (rustup toolchain install {version})"));
    };
    eprintln!("== cargo check with {toolchain}");
    let mut command = Command::new("rustup");
    command.args(["run", toolchain, "cargo", "check", "--quiet", "--workspace"]).current_dir(root);
    command.env("CARGO_TARGET_DIR", root.join("target/oldest")).env_remove("RUSTC").env_remove("CARGO");
    let status = command.status().map_err(|why| format!("rustup: {why}"))?;
    if status.success() { Ok(()) } else { Err(format!("the workspace does not compile with {toolchain}")) }
}

/// Compiles the crates that other programs use for another processor.
///
/// # Errors
/// When that fails; it begins with `NOT_HERE` without its standard library.
pub fn other_processor() -> Result<(), String> {
    let libraries = output("rustc", &["--print", "sysroot"]).unwrap_or_default();
    if !Path::new(libraries.trim()).join("lib/rustlib").join(OTHER_TARGET).join("lib").is_dir() {
        return Err(format!("{NOT_HERE}: its standard library (rustup target add {OTHER_TARGET})"));
    }
    let flags = [("RUSTFLAGS", "-D warnings")];
    cargo(
        &[&["check", "--target", OTHER_TARGET, "--target-dir", "target/other"], &FOR_OTHER_TARGET[..]].concat(),
        &flags,
    )
}

/// What a program prints, if it is there and succeeds.
fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}
