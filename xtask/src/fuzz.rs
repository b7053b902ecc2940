//! Runs the fuzz targets of `fuzz/`, which cargo-fuzz builds with a nightly compiler.

use crate::NOT_HERE;
use crate::peers::output_of;
use crate::suite::{self, Program};
use crate::wrapper;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// The compiler's name for this kind of machine, as the nightly compiler says it.
///
/// # Errors
/// Why there is no nightly compiler; it begins with `NOT_HERE`.
pub fn host() -> Result<String, String> {
    let said = output_of(Command::new("rustup").args(["run", "nightly", "rustc", "-vV"]))
        .map_err(|_| format!("{NOT_HERE}: a nightly compiler (rustup toolchain install nightly)"))?;
    let host = said.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or("rustc does not say its host".into())
}

/// Compiles every target with a sanitizer (`none`, `address`). Installs cargo-fuzz first if it is
/// missing. A build that is not `urgent` runs at a low priority, and what it makes is slower; it
/// has a folder of its own.
///
/// # Errors
/// What failed; it begins with `NOT_HERE` when there is no nightly compiler or no cargo-fuzz.
pub fn build(root: &Path, sanitizer: &str, urgent: bool) -> Result<Vec<Program>, String> {
    let host = host()?;
    let has_it = Command::new("cargo").args(["fuzz", "--version"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !has_it.is_ok_and(|status| status.success()) {
        let installed = Command::new("cargo").args(["install", "--locked", "cargo-fuzz"]).status();
        if !installed.is_ok_and(|status| status.success()) {
            return Err(format!("{NOT_HERE}: cargo-fuzz, and `cargo install cargo-fuzz` failed"));
        }
    }
    // Cargo does not build again for another wrapper.
    let folder = root.join(if urgent { "fuzz/target" } else { "fuzz/target/short" });
    let start = Instant::now();
    eprintln!("== cargo fuzz build --sanitizer {sanitizer}");
    let status = Command::new("nice")
        .args(["-n", if urgent { "0" } else { "10" }, "cargo", "+nightly", "fuzz", "build"])
        .args(["--sanitizer", sanitizer, "--target", &host, "--target-dir"])
        .arg(&folder)
        .envs((!urgent).then(wrapper::fuzz_environment).into_iter().flatten().flatten())
        .current_dir(root)
        .status()
        .map_err(|why| format!("cargo fuzz build: {why}"))?;
    eprintln!("== {} s", start.elapsed().as_secs());
    if !status.success() {
        return Err("cargo fuzz build failed".into());
    }
    let listed = output_of(Command::new("cargo").args(["+nightly", "fuzz", "list"]).current_dir(root))?;
    let built = folder.join(host).join("release");
    let program = |target: &str| Program {
        name: target.into(),
        path: built.join(target),
        folder: root.join("fuzz"),
        arguments: Vec::new(),
    };
    Ok(listed.lines().map(program).collect())
}

/// Runs every target for `seconds`, as many at once as there are processors. A target begins with
/// the inputs in `fuzz/seeds/TARGET`; what it finds beyond them goes to `fuzz/corpus/TARGET`, which
/// is not kept in git.
///
/// # Errors
/// The targets that failed, after the output of all.
pub fn run(root: &Path, mut targets: Vec<Program>, seconds: u64, sanitizer: &str) -> Result<(), String> {
    for program in &mut targets {
        let [corpus, artifacts] = ["corpus", "artifacts"].map(|kind| program.folder.join(kind).join(&program.name));
        for folder in [&corpus, &artifacts] {
            fs::create_dir_all(folder).map_err(|why| format!("{}: {why}", folder.display()))?;
        }
        let seeds = program.folder.join("seeds").join(&program.name);
        // A sanitizer's own memory counts, too. Threads that nobody waits for have some while they
        // end, which looks like a leak now and then; what is lost each time comes to the limit.
        program.arguments = vec![
            format!("-artifact_prefix={}/", artifacts.display()),
            format!("-max_total_time={seconds}"),
            "-detect_leaks=0".into(),
            format!("-rss_limit_mb={}", if sanitizer == "none" { 512 } else { 2048 }),
        ];
        let folders = [Some(&corpus), seeds.is_dir().then_some(&seeds)].into_iter().flatten();
        program.arguments.extend(folders.map(|folder| folder.display().to_string()));
        program.name = format!("fuzz::{}", program.name);
    }
    let environment: &[_] = if sanitizer == "address" { &[("ASAN_OPTIONS", "detect_odr_violation=0")] } else { &[] };
    suite::run(root, targets, suite::processors(), environment)
        .map_err(|why| format!("{why}; the inputs are in fuzz/artifacts, for cargo +nightly fuzz run TARGET INPUT"))
}
