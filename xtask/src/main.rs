//! The project's own tasks: `cargo xtask check|test|peers|fuzz|conformance`. Standard library only, so that it compiles at once.

mod conformance;
mod fuzz;
mod mpi;
mod peers;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

const HELP: &str = "\
cargo xtask TASK

  test    all tests; builds the peers they compare with where it can, and says what it skipped and why
  check   format, lints and documentation with warnings denied, then everything `test` does
  peers   build the other libraries that compatibility tests and benchmarks compare with
  fuzz [SECONDS]   run every fuzz target so long (default 60); installs cargo-fuzz if it must
  conformance DIR [--only pjdfstest|fsx|programs] [--minutes N] [--files N] [--reference DIR]
          POSIX tests, random operations and programs in a file system, beside a local one (docs/posix.md)
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["test"] => test(),
        ["check"] => check().and_then(|()| test()),
        ["peers"] => build_peers().map(|_| ()),
        ["fuzz"] => fuzz::run(&root(), 60, true),
        ["fuzz", seconds] => match seconds.parse() {
            Ok(seconds) => fuzz::run(&root(), seconds, true),
            Err(_) => Err(format!("{seconds:?} is not a number of seconds")),
        },
        ["conformance", ref rest @ ..] => conformance::run(&root(), rest),
        ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            Ok(())
        }
        _ => {
            eprint!("{HELP}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("xtask: {why}");
            ExitCode::FAILURE
        }
    }
}

/// The project's root, wherever the task was called from.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the root").to_path_buf()
}

fn cargo(arguments: &[&str], environment: &[(&str, &str)]) -> Result<(), String> {
    let start = Instant::now();
    eprintln!("== cargo {}", arguments.join(" "));
    let status = Command::new(env!("CARGO"))
        .args(arguments)
        .envs(environment.iter().copied())
        .current_dir(root())
        .status()
        .map_err(|e| format!("cargo could not be started: {e}"))?;
    eprintln!("== {} s", start.elapsed().as_secs());
    if status.success() { Ok(()) } else { Err(format!("cargo {} failed", arguments.join(" "))) }
}

fn check() -> Result<(), String> {
    cargo(&["fmt", "--all", "--check"], &[])?;
    cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"], &[])?;
    cargo(&["doc", "--workspace", "--no-deps", "--document-private-items"], &[("RUSTDOCFLAGS", "-D warnings")])
}

/// Every test. What is optional (peers, fuzzing) is used where it can be had and named where it cannot.
fn test() -> Result<(), String> {
    let missing = build_peers()?;
    // All failures at once: a run takes many minutes.
    cargo(&["test", "--workspace", "--no-fail-fast"], &[])?;
    let mpi = mpi::ready();
    if mpi.is_ok() {
        // Its tests use `weft`, which must lie beside it.
        cargo(&["build", "-p", "cli", "-p", "weft-mpi", "--features", "weft-mpi/mpi"], &[])?;
        cargo(&["test", "-p", "weft-mpi", "--features", "mpi"], &[])?;
    }
    let fuzzed = fuzz::run(&root(), 10, true);
    for (peer, why) in missing {
        println!("skipped: comparison with {peer} ({why})");
    }
    if let Err(why) = mpi {
        println!("skipped: weft-mpi, the archive encoder under MPI ({why})");
    }
    match fuzzed {
        Err(why) if why.starts_with(fuzz::NOT_HERE) => {
            println!("skipped: coverage-guided fuzzing ({why})")
        }
        other => other?,
    }
    Ok(())
}

/// Builds the peers and returns those that are missing, with the reason in one line.
fn build_peers() -> Result<Vec<(String, String)>, String> {
    eprintln!("== peers");
    let mut missing = Vec::new();
    for (name, built) in peers::build(&root()) {
        match built {
            Ok(path) => eprintln!("{name}: {}", path.display()),
            Err(why) => {
                let line = why.lines().next().unwrap_or("unknown reason").to_owned();
                eprintln!("{name}: not built, {line}");
                missing.push((name, line));
            }
        }
    }
    Ok(missing)
}
