//! The project's own tasks: `cargo xtask check|test|links|rules|peers|fuzz|conformance|torture` and
//! others. Few dependencies, so that it compiles at once.

mod asan;
mod conformance;
mod console;
mod csi;
mod everything;
mod failover;
mod fuzz;
mod links;
mod lock;
mod mir;
mod monitoring;
mod mpi;
mod package;
mod peers;
mod policy;
mod python;
mod rules;
mod s3;
mod simulate;
mod suite;
mod torture;
mod wrapper;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

const HELP: &str = "\
cargo xtask TASK

  test    all tests; builds the peers they compare with where it can, and says what it skipped and why
  check   format, links, rules, lints and documentation with warnings denied; licences and sources of dependencies, the
          oldest compiler and another processor where that can be checked. It runs no tests
  links   the links of the Markdown pages alone
  rules [--write]  the rules in xtask/rules alone: layers of crates and modules, widths of lines, lengths of files;
          --write writes down counts that fell
  peers   build the other libraries that compatibility tests and benchmarks compare with
  fuzz [SECONDS]   run every fuzz target so long (default 60); installs cargo-fuzz if it must
  alerts  the alert rules of docs/monitoring and their tests, by Prometheus's promtool
  s3      boto3 on an S3 gateway, and gateways that are killed while it writes; gets boto3 from PyPI if it must
  csi     csi-sanity, the conformance tests of CSI, on weft-csi, as root; builds them with Go
  console the page of weft console in a headless Chromium, with screens in target/console, and by keyboard
  package [--deb] [--rpm] [--static] [--oci] [--revision N] [--weft PROGRAM]
          packages of a release build in target/package, by dpkg-deb and rpmbuild (docs/packages.md)
  manifests   packages/kubernetes from its chart
  units   that the systemd units may do no more on a machine than they need
  python  the Python package's wheel, and its tests with pandas, pyarrow, zarr and xarray, which come from PyPI
  mir [FOLDER]  look through what a release build compiles, or the MIR in a folder, for values that rustc 1.95 and 1.96
          free twice
  asan [SECONDS]   the soaks, and every fuzz target for so long (default 30), under AddressSanitizer, with nightly Rust
  conformance DIR [--only pjdfstest|attributes|fsx|programs|PROGRAM] [--minutes N] [--files N] [--reference DIR]
          POSIX tests, random operations and programs in a file system, beside a local one (docs/posix.md)
  failover DIR [--kills N] [--stops N] [--handovers N] [--cuts N] [--deaf N] [--mute N] [--full N]
          [--tls] [--pace MILLISECONDS] [--mounts N] [--open N] [--files N] [--weft PROGRAM]
          how long clients wait when the metadata server that has the volume is killed (default 100 times), stopped (10),
          gives it away (20), is cut off in both directions (10), in that to it (--deaf, 10) or from it (--mute, 10), or
          has a full disk (10), on a cluster of processes, as root; checks every byte that was durable, locks, files
          that stay open, and data that is synced later. --tls: with certificates; --pace: clients rest after each turn;
          --mounts: on so many mounts (2); --open: each keeps so many files open;
          --files: beside so many empty files that nobody uses
  torture DIR [--cluster] [--minutes N] [--seed N] [--writers N] [--weft PROGRAM] [--clean]
          random faults against a release build, as root: disks that are full, hang or go away, processes that are killed and
          stopped; checks every acknowledged byte. It works in DIR/weft-torture, which the next run, or --clean, removes
  simulate --seeds A..B [--minutes N] [--jobs N] [--takeovers] | --seed N [--trace] [--takeovers]
          whole file systems, stores and a metadata server in one simulated world, with faults by a seed; what
          clients see is checked; with --takeovers several servers. A seed is the same run each time; --trace prints it
  simulate --failovers N [--from SEED] [--minutes N] [--jobs N] | --failovers 1 --seed N [--trace]
          nothing but takeovers between three metadata servers, until there were N
  model [--voters N] [--losses M] [--servers N] [--writes N] [--wipes N] [--drops N] [--leases]
        [--change add|remove|replace] [--broken RULE] [--limit N]
          the metadata protocol in all its states (docs/design/011-model.md)
";

fn main() -> ExitCode {
    if let Some(code) = wrapper::ended() {
        return code;
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["test"] => everything::test(),
        ["check"] => check(),
        ["peers"] => build_peers().map(|_| ()),
        ["fuzz"] => fuzz(60),
        ["fuzz", seconds] => seconds_of(seconds).and_then(fuzz),
        ["asan"] => said(optional("AddressSanitizer", asan::run(&root(), 30))),
        ["asan", seconds] => {
            seconds_of(seconds).and_then(|seconds| said(optional("AddressSanitizer", asan::run(&root(), seconds))))
        }
        ["links"] => links::check(&root()),
        ["rules"] => rules::check(&root(), false),
        ["rules", "--write"] => rules::check(&root(), true),
        ["mir"] => mir(),
        ["mir", folder] => look_at_mir(Path::new(folder)),
        ["s3"] => {
            said(cargo(&["build", "--release"], &[]).and_then(|()| optional("S3 clients", s3::check(&root(), &weft()))))
        }
        ["package", ref rest @ ..] => package::run(&root(), rest),
        ["manifests"] => package::manifests(&root(), true),
        ["csi"] => {
            said(cargo(&["build", "--release"], &[]).and_then(|()| optional("CSI", csi::check(&root(), &weft()))))
        }
        ["console"] => said(
            cargo(&["build", "--release"], &[])
                .and_then(|()| optional("the console", console::check(&root(), &weft()))),
        ),
        ["units"] => said(optional("the systemd units", package::check_units(&root()))),
        ["python"] => said(
            cargo(&["build", "--release", "-p", "cli", "-p", "weft-python"], &[])
                .and_then(|()| optional("Python", python::check(&root(), &weft()))),
        ),
        ["alerts"] => said(optional("tests of the alert rules", monitoring::check(&root()))),
        ["conformance", ref rest @ ..] => conformance::run(&root(), rest),
        ["failover", ref rest @ ..] => failover::run(&root(), rest),
        ["failover-clients", ref rest @ ..] => failover::clients::run(rest),
        ["torture", ref rest @ ..] => torture::run(&root(), rest),
        ["simulate", ref rest @ ..] => simulate::run(&root(), rest),
        ["model", ref rest @ ..] => cargo(&[&["run", "--release", "-p", "model", "--"], rest].concat(), &[]),
        ["torture-writers", ref rest @ ..] => torture::writers::run(rest),
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

/// How an error begins when something cannot run here, as opposed to having failed.
const NOT_HERE: &str = "not possible here";

fn fuzz(seconds: u64) -> Result<(), String> {
    fuzz::run(&root(), fuzz::build(&root(), "none", true)?, seconds, "none")
}

fn seconds_of(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text:?} is not a number of seconds"))
}

/// The project's root, wherever the task was called from.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the root").to_path_buf()
}

/// The program as users have it.
fn weft() -> PathBuf {
    root().join("target/release/weft")
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

/// All checks that need no test to run.
fn check() -> Result<(), String> {
    let root = root();
    cargo(&["fmt", "--all", "--check"], &[])?;
    links::check(&root)?;
    rules::check(&root, false)?;
    package::manifests(&root, false)?;
    // No other step compiles these features.
    let lints = [
        "clippy",
        "--workspace",
        "--release",
        "--all-targets",
        "--features",
        "cli/otlp,weft-csi/csi",
        "--",
        "-D",
        "warnings",
    ];
    cargo(&lints, &[])?;
    let documents = ["doc", "--workspace", "--release", "--no-deps", "--document-private-items"];
    cargo(&documents, &[("RUSTDOCFLAGS", "-D warnings")])?;
    // What others can use is complete without the workspace. Their own builds are those above.
    let package = ["package", "--offline", "--no-verify", "--allow-dirty", "--quiet"];
    cargo(&[&package[..], &["-p", "weft-gf", "-p", "weft-ec"]].concat(), &[])?;
    let mut skipped = Vec::new();
    skipped.extend(optional("policy for dependencies", policy::dependencies())?);
    skipped.extend(optional("the oldest compiler", policy::oldest_compiler(&root))?);
    skipped.extend(optional("compiling for another processor", policy::other_processor())?);
    skipped.extend(optional("the systemd units", package::check_units(&root))?);
    skipped.iter().for_each(|what| println!("skipped: {what}"));
    Ok(())
}

/// What was skipped, and why, if that is why something failed.
fn optional(what: &str, done: Result<(), String>) -> Result<Option<String>, String> {
    match done {
        Ok(()) => Ok(None),
        Err(why) if why.starts_with(NOT_HERE) => Ok(Some(format!("{what} ({why})"))),
        Err(why) => Err(why),
    }
}

fn said(skipped: Result<Option<String>, String>) -> Result<(), String> {
    skipped?.iter().for_each(|what| println!("skipped: {what}"));
    Ok(())
}

/// Builds what users run, and checks what the compiler made of it.
fn mir() -> Result<(), String> {
    let folder = root().join("target/mir");
    let place = folder.to_str().ok_or("the project's path is not UTF-8")?;
    cargo(&["build", "--release"], &[("RUSTFLAGS", mir::FLAGS), ("CARGO_TARGET_DIR", place)])?;
    look_at_mir(&folder.join("release/deps"))
}

fn look_at_mir(folder: &Path) -> Result<(), String> {
    let (found, files) = mir::look(folder)?;
    eprintln!("== {files} crates as they were compiled: {} values are given away twice", found.len());
    if found.is_empty() { Ok(()) } else { Err(format!("this compiler frees memory twice here:\n{}", found.join("\n"))) }
}

/// Builds the peers, and returns each that is missing and is compared with, with the reason in one
/// line.
fn build_peers() -> Result<Vec<(String, String)>, String> {
    eprintln!("== peers");
    let mut missing = Vec::new();
    for (name, built) in peers::build(&root()) {
        match built {
            Ok(path) => eprintln!("{name}: {}", path.display()),
            Err(why) => {
                let line = why.lines().next().unwrap_or("unknown reason").to_owned();
                eprintln!("{name}: not built, {line}");
                missing.push((format!("comparison with {name}"), line));
            }
        }
    }
    Ok(missing)
}
