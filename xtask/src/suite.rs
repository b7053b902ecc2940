//! Builds test programs and runs several of them at a time: most tests wait for servers and disks
//! rather than compute.

use crate::mir;
use serde_json::Value;
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How many programs that compute run at once.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from)
}

/// Assertions in a build of the profile that users have: a compiler's fault once showed in
/// optimised builds only.
pub const ASSERTIONS: [(&str, &str); 2] =
    [("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true"), ("CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS", "true")];

/// The environment of the tests' build with assertions. All other flags are those of the build for
/// users, so that both have the same dependencies, build scripts and macros.
pub fn with_assertions() -> Vec<(&'static str, &'static str)> {
    let wrapper = ("RUSTC_WRAPPER", concat!(env!("CARGO_MANIFEST_DIR"), "/with-assertions.sh"));
    ASSERTIONS.into_iter().chain(mir::environment()).chain([wrapper]).collect()
}

/// A program hangs when it says nothing for this long. The longest test takes half a minute on an
/// idle machine.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(900);
/// The programs that take longest begin first, so that none is left to run alone at the end.
const LONGEST_PROGRAMS: [&str; 6] =
    ["fs::suite", "simulate::seeds", "cli::cluster", "cli::commands", "fs::soak", "mpi::mpirun"];

/// A test program: `fs::soak`, where it lies, and the folder of its package, which it runs in.
pub struct Program {
    pub name: String,
    pub path: PathBuf,
    pub folder: PathBuf,
    pub arguments: Vec<String>,
}

/// Compiles what `cargo test ARGUMENTS` would run. A build that is not `urgent` runs at a low
/// priority.
pub fn build(
    root: &Path,
    arguments: &[&str],
    environment: &[(&str, &str)],
    urgent: bool,
) -> Result<Vec<Program>, String> {
    let start = Instant::now();
    eprintln!("== cargo test --no-run {}", arguments.join(" "));
    let mut cargo = Command::new("nice")
        .args(["-n", if urgent { "0" } else { "10" }, env!("CARGO")])
        .args(["test", "--no-run", "--message-format=json-render-diagnostics"])
        .args(arguments)
        .envs(environment.iter().copied())
        .current_dir(root)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|why| format!("cargo could not be started: {why}"))?;
    let lines = BufReader::new(cargo.stdout.take().expect("it is piped")).lines();
    let mut programs: Vec<Program> = lines.map_while(Result::ok).filter_map(|line| program(&line)).collect();
    let status = cargo.wait().map_err(|why| format!("cargo: {why}"))?;
    eprintln!("== {} s", start.elapsed().as_secs());
    if !status.success() {
        return Err(format!("cargo test --no-run {} failed", arguments.join(" ")));
    }
    programs.sort_by_key(|program| {
        LONGEST_PROGRAMS.iter().position(|name| *name == program.name).unwrap_or(LONGEST_PROGRAMS.len())
    });
    Ok(programs)
}

/// The test program that a line of cargo's messages tells of.
fn program(line: &str) -> Option<Program> {
    let message: Value = serde_json::from_str(line).ok()?;
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let path = message["executable"].as_str()?.into();
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
    let package = folder.file_name()?.to_str()?.to_owned();
    let (target, kind) = (message["target"]["name"].as_str()?, &message["target"]["kind"][0]);
    let name = if kind == "test" { format!("{package}::{target}") } else { package };
    Some(Program { name, path, folder, arguments: Vec::new() })
}

/// Runs them all, so many at once, even if some fail, and prints the output of those that failed.
/// Their output is kept in `target/test-output`.
pub fn run(root: &Path, programs: Vec<Program>, at_once: usize, environment: &[(&str, &str)]) -> Result<(), String> {
    let start = Instant::now();
    let (folder, count) = (root.join("target/test-output"), programs.len());
    fs::create_dir_all(&folder).map_err(|why| format!("{}: {why}", folder.display()))?;
    eprintln!("== {count} programs, {at_once} at a time; what they say is in {}", folder.display());
    let (waiting, failed) = (Mutex::new(VecDeque::from(programs)), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                while let Some(program) = { waiting.lock().expect("no thread panics").pop_front() } {
                    let output = folder.join(format!("{}.txt", program.name.replace("::", "-")));
                    let begun = Instant::now();
                    let ended = run_one(&program, &output, environment);
                    let said = fs::read(&output).unwrap_or_default();
                    let said = String::from_utf8_lossy(&said);
                    let mut failed = failed.lock().expect("no thread panics");
                    report(&program.name, &said, begun.elapsed(), &ended);
                    if ended.is_err() {
                        failed.push(program.name);
                    }
                }
            });
        }
    });
    eprintln!("== {} s", start.elapsed().as_secs());
    let failed = failed.into_inner().expect("no thread panics");
    if failed.is_empty() { Ok(()) } else { Err(format!("tests failed: {}", failed.join(", "))) }
}

fn run_one(program: &Program, output: &Path, environment: &[(&str, &str)]) -> Result<(), String> {
    let error = |why: std::io::Error| format!("{}: {why}", output.display());
    let file = File::create(output).map_err(error)?;
    let mut child = Command::new(&program.path)
        .args(&program.arguments)
        .envs(environment.iter().copied())
        .env("CARGO_MANIFEST_DIR", &program.folder)
        .env("RUST_BACKTRACE", "1")
        .current_dir(&program.folder)
        .stdin(Stdio::null())
        .stdout(file.try_clone().map_err(error)?)
        .stderr(file)
        .spawn()
        .map_err(|why| format!("{}: {why}", program.path.display()))?;
    match wait(&mut child, output)? {
        status if status.success() => Ok(()),
        status => Err(status.to_string()),
    }
}

/// Waits for its end, as long as it says something now and then.
fn wait(child: &mut Child, output: &Path) -> Result<ExitStatus, String> {
    let (mut heard, mut length) = (Instant::now(), 0);
    loop {
        if let Some(status) = child.try_wait().map_err(|why| why.to_string())? {
            return Ok(status);
        }
        let now = fs::metadata(output).map_or(0, |data| data.len());
        if now != length {
            (heard, length) = (Instant::now(), now);
        }
        if heard.elapsed() > SILENCE_TIMEOUT {
            let stacks = Command::new("gdb")
                .args(["-batch", "-ex", "thread apply all bt 12", "-p", &child.id().to_string()])
                .output()
                .map_or(String::new(), |said| String::from_utf8_lossy(&said.stdout).into_owned());
            _ = child.kill().and_then(|()| child.wait());
            return Err(format!("it said nothing for {} s and was killed\n{stacks}", SILENCE_TIMEOUT.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A line for a program whose tests passed, everything of one that failed. A fuzzer has no tests,
/// but says how many inputs it tried.
fn report(name: &str, said: &str, took: Duration, ended: &Result<(), String>) {
    let passed = said.lines().filter(|line| line.starts_with("test ") && line.ends_with("... ok")).count();
    let tried = said.lines().rfind(|line| line.starts_with("Done "));
    let passed = tried.map_or_else(|| format!("{passed} tests"), str::to_owned);
    match ended {
        Ok(()) => println!("ok     {:6.1} s  {name}: {passed}", took.as_secs_f64()),
        Err(why) => println!("FAILED {:6.1} s  {name}: {why}\n{said}", took.as_secs_f64()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(name: &str, script: &str) -> Program {
        let folder = std::env::temp_dir().join(format!("weft-suite-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("program");
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&path, mode).unwrap();
        Program { name: name.into(), path, folder, arguments: Vec::new() }
    }

    #[test]
    fn all_run_and_those_that_fail_are_named() {
        let mut programs = vec![
            shell("good", "echo test a ... ok"),
            shell("bad", "exit 3"),
            shell("worse", "kill -SEGV $$"),
            shell("last", "test $(basename $PWD) = $(basename $(dirname $0)) && test $GIVEN = yes && test $1 = one"),
        ];
        programs[3].arguments = vec!["one".into()];
        let root = programs[0].folder.clone();
        let folders: Vec<PathBuf> = programs.iter().map(|program| program.folder.clone()).collect();
        let failed = run(&root, programs, 3, &[("GIVEN", "yes")]).unwrap_err();
        assert!(failed.contains("bad") && failed.contains("worse"), "{failed}");
        assert!(!failed.contains("good") && !failed.contains("last"), "{failed}");
        assert_eq!(fs::read_to_string(root.join("target/test-output/good.txt")).unwrap(), "test a ... ok\n");
        folders.iter().for_each(|folder| fs::remove_dir_all(folder).unwrap());
    }

    #[test]
    fn test_programs_are_known_by_package_and_name() {
        let line = r#"{"reason":"compiler-artifact","manifest_path":"/p/fs/Cargo.toml","target":{"name":"soak","kind":["test"]},
            "profile":{"test":true},"executable":"/p/target/debug/deps/soak-1"}"#;
        let found = program(line).unwrap();
        assert_eq!((found.name.as_str(), found.folder.to_str()), ("fs::soak", Some("/p/fs")));
        assert!(program(&line.replace("true", "false")).is_none());
        assert!(program(&line.replace("\"/p/target/debug/deps/soak-1\"", "null")).is_none());
        assert!(program("warning: something").is_none());
    }
}
