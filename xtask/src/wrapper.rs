//! This program as cargo's RUSTC_WRAPPER in the tests' build: then it is called as
//! `xtask RUSTC ARGUMENT..`. A shell would lose variables such as `CARGO_BIN_EXE_weft-mpi`, which
//! are no names to it.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::sync::LazyLock;

/// The variables that make this program the wrapper: of the tests' build, and of that of the fuzz
/// targets.
const MARK: &str = "WEFT_AS_USERS";
const FUZZ_MARK: &str = "WEFT_FUZZ_SOON";

/// Packages whose tests are optimised: they compute much, or their faults lose data, and they
/// contain generic code of what they test, or, inside of a crate, all of it.
const OPTIMISED: [&str; 9] = ["weft-gf", "weft-ec", "plan", "model", "sim", "volume", "meta", "fs", "cluster"];

/// This program.
static PROGRAM: LazyLock<Option<String>> = LazyLock::new(|| Some(std::env::current_exe().ok()?.to_str()?.to_owned()));

/// What makes this program the wrapper of the tests' build.
pub fn environment() -> Option<[(&'static str, &'static str); 2]> {
    Some([("RUSTC_WRAPPER", PROGRAM.as_deref()?), (MARK, "1")])
}

/// What makes it the wrapper of a build of fuzz targets that run for a short time.
pub fn fuzz_environment() -> Option<[(&'static str, &'static str); 2]> {
    Some([("RUSTC_WRAPPER", PROGRAM.as_deref()?), (FUZZ_MARK, "1")])
}

/// Compiles, if this is the wrapper.
pub fn ended() -> Option<ExitCode> {
    let is = |mark: &str| std::env::var_os(mark).is_some();
    let mut words = std::env::args_os().skip(1);
    let mut command = match (is(MARK), is(FUZZ_MARK)) {
        (true, _) => for_tests(words.next()?, &words.collect::<Vec<_>>()),
        (false, true) => for_short_fuzzing(words.next()?, words),
        (false, false) => return None,
    };
    eprintln!("xtask: {}", command.exec());
    Some(ExitCode::FAILURE)
}

/// Libraries and programs are compiled as users have them. The code of tests is not: it compiles in
/// half the time without optimisation across codegen units, and without a copy of its MIR. Most of
/// it is not optimised at all.
fn for_tests(compiler: OsString, words: &[OsString]) -> Command {
    let mut compiler = Command::new(compiler);
    if words.iter().any(|word| word == "--test") {
        compiler.args(words.iter().filter(|word| *word != crate::mir::FLAGS)).args(["-C", "lto=off"]);
        let package = std::env::var("CARGO_PKG_NAME").unwrap_or_default();
        if !OPTIMISED.contains(&package.as_str()) {
            compiler.args(["-C", "opt-level=0"]);
        }
    } else {
        compiler.args(words);
    }
    compiler
}

/// What is fuzzed for seconds only need not be fast: cargo-fuzz wants one codegen unit, which takes
/// one processor, and all debug information.
fn for_short_fuzzing(compiler: OsString, words: impl Iterator<Item = OsString>) -> Command {
    let mut command = Command::new(compiler);
    command.args(words.map(|word| match word.to_str() {
        Some("-Ccodegen-units=1") => "-Ccodegen-units=8".into(),
        Some("debuginfo=2") => "debuginfo=line-tables-only".into(),
        _ => word,
    }));
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(command: &Command) -> Vec<&str> {
        command.get_args().map(|word| word.to_str().unwrap()).collect()
    }

    #[test]
    fn libraries_are_compiled_as_users_have_them() {
        let words = ["--crate-name", "fs", "fs/src/lib.rs", crate::mir::FLAGS];
        assert_eq!(given(&for_tests("rustc".into(), &words.map(OsString::from))), words);
    }

    #[test]
    fn what_is_fuzzed_for_seconds_is_compiled_in_parallel() {
        let words = ["-C", "debuginfo=2", "-Ccodegen-units=1", "x.rs"].map(OsString::from).into_iter();
        let short = ["-C", "debuginfo=line-tables-only", "-Ccodegen-units=8", "x.rs"];
        assert_eq!(given(&for_short_fuzzing("rustc".into(), words)), short);
    }
}
