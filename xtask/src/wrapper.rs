//! This program as cargo's RUSTC_WRAPPER in the tests' build: then it is called as
//! `xtask RUSTC ARGUMENT..`. A shell would lose variables such as `CARGO_BIN_EXE_weft-mpi`, which
//! are no names to it.

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::sync::LazyLock;

/// The variable that makes this program the wrapper.
const MARK: &str = "WEFT_AS_USERS";

/// Packages whose tests are optimised: they compute much, or their faults lose data, and they
/// contain generic code of what they test, or, inside of a crate, all of it.
const OPTIMISED: [&str; 9] = ["weft-gf", "weft-ec", "plan", "model", "sim", "volume", "meta", "fs", "cluster"];

/// This program.
static PROGRAM: LazyLock<Option<String>> = LazyLock::new(|| Some(std::env::current_exe().ok()?.to_str()?.to_owned()));

/// What makes this program the wrapper of a build.
pub fn environment() -> Option<[(&'static str, &'static str); 2]> {
    Some([("RUSTC_WRAPPER", PROGRAM.as_deref()?), (MARK, "1")])
}

/// Compiles, if this is the wrapper. Libraries and programs are compiled as users have them. The
/// code of tests is not: it compiles in half the time without optimisation across codegen units,
/// and without a copy of its MIR. Most of it is not optimised at all.
pub fn ended() -> Option<ExitCode> {
    std::env::var_os(MARK)?;
    let mut words = std::env::args_os().skip(1);
    let mut compiler = Command::new(words.next()?);
    let words: Vec<_> = words.collect();
    if words.iter().any(|word| word == "--test") {
        compiler.args(words.iter().filter(|word| *word != crate::mir::FLAGS)).args(["-C", "lto=off"]);
        let package = std::env::var("CARGO_PKG_NAME").unwrap_or_default();
        if !OPTIMISED.contains(&package.as_str()) {
            compiler.args(["-C", "opt-level=0"]);
        }
    } else {
        compiler.args(&words);
    }
    eprintln!("xtask: {}", compiler.exec());
    Some(ExitCode::FAILURE)
}
