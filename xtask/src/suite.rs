//! Builds test programs and runs several of them at a time: most tests wait for servers and disks
//! rather than compute.

use crate::{mir, wrapper};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

/// How many programs that compute run at once.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from)
}

/// The environment of the tests' build. Libraries and programs are those that users have.
pub fn as_users() -> Vec<(&'static str, &'static str)> {
    wrapper::environment().into_iter().flatten().chain(mir::environment()).collect()
}

/// The environment of all tests. Most wait for others, so there are more of them at a time than
/// processors. Ranks of locks are checked (volume/src/ranked.rs).
pub const TESTS: [(&str, &str); 2] = [("RUST_TEST_THREADS", "4"), ("WEFT_CHECK_LOCKS", "1")];

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

/// Test programs that wait to be run.
#[derive(Default)]
struct Queue {
    programs: Mutex<(Vec<Program>, bool)>,
    changed: Condvar,
}

impl Queue {
    fn push(&self, program: Program) {
        self.programs.lock().expect("no thread panics").0.push(program);
        self.changed.notify_one();
    }

    /// No more programs come.
    fn close(&self) {
        self.programs.lock().expect("no thread panics").1 = true;
        self.changed.notify_all();
    }

    /// The next program, when there is one; none after the last. Those that take longest come
    /// first.
    fn pop(&self) -> Option<Program> {
        let waits = |(programs, closed): &mut (Vec<Program>, bool)| programs.is_empty() && !*closed;
        let mut held =
            self.changed.wait_while(self.programs.lock().expect("no thread panics"), waits).expect("no thread panics");
        let place = |program: &Program| {
            LONGEST_PROGRAMS.iter().position(|name| *name == program.name).unwrap_or(LONGEST_PROGRAMS.len())
        };
        let next = (0..held.0.len()).min_by_key(|&index| place(&held.0[index]))?;
        Some(held.0.remove(next))
    }
}

/// Compiles what each `cargo test ARGUMENTS` would run, and runs each program as soon as it is
/// there, `at_once` at a time. Each build has a kind, which names its programs, too. `then` follows
/// the compiling. What is compiled yields to what runs.
///
/// # Errors
/// Everything that failed.
pub fn build_and_run(
    root: &Path,
    builds: &[(&str, Vec<&str>)],
    at_once: usize,
    then: impl FnOnce() -> Result<(), String> + Send,
) -> Result<(), String> {
    let queue = Queue::default();
    std::thread::scope(|scope| {
        let built = scope.spawn(|| {
            let built = builds.iter().try_for_each(|(kind, arguments)| build(root, kind, arguments, &queue));
            queue.close();
            built.and_then(|()| then())
        });
        let ran = run_all(root, &queue, at_once, &TESTS);
        let built = built.join().expect("it does not panic");
        match (built, ran) {
            (Err(built), Err(ran)) => Err(format!("{built}; {ran}")),
            (built, ran) => built.and(ran),
        }
    })
}

fn build(root: &Path, kind: &str, arguments: &[&str], queue: &Queue) -> Result<(), String> {
    let start = Instant::now();
    eprintln!("== cargo test --no-run {}", arguments.join(" "));
    let mut cargo = Command::new("nice")
        .args(["-n", "10", env!("CARGO"), "test", "--no-run", "--message-format=json-render-diagnostics"])
        .args(arguments)
        .envs(as_users())
        .current_dir(root)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|why| format!("cargo could not be started: {why}"))?;
    let lines = BufReader::new(cargo.stdout.take().expect("it is piped")).lines();
    let mut held = Held::default();
    let push = |program: Program| queue.push(Program { name: program.name.clone() + kind, ..program });
    for made in lines.map_while(Result::ok).filter_map(|line| made(&line)) {
        held.take(made).into_iter().for_each(push);
    }
    held.tests.into_iter().for_each(push);
    let status = cargo.wait().map_err(|why| format!("cargo: {why}"))?;
    eprintln!("== compiled in {} s", start.elapsed().as_secs());
    if status.success() { Ok(()) } else { Err(format!("cargo test --no-run {} failed", arguments.join(" "))) }
}

/// Tests whose package has a program, until that is compiled: they run it, and some run `weft`
/// beside it.
#[derive(Default)]
struct Held {
    programs: BTreeSet<String>,
    tests: Vec<Program>,
}

impl Held {
    /// What can be run now.
    fn take(&mut self, made: Made) -> Vec<Program> {
        match made {
            Made::Test(program) if program.is_outside() => self.tests.push(program),
            Made::Test(program) => return vec![program],
            Made::Program(package) => _ = self.programs.insert(package),
        }
        let is_ready = |test: &mut Program| {
            self.programs.contains(test.package()) && self.programs.contains("cli") || !test.has_program()
        };
        self.tests.extract_if(.., is_ready).collect()
    }
}

impl Program {
    /// `fs` of `fs::soak`.
    fn package(&self) -> &str {
        self.name.split("::").next().unwrap_or_default()
    }

    /// Whether these are tests outside of the crate.
    fn is_outside(&self) -> bool {
        self.name.contains("::")
    }

    fn has_program(&self) -> bool {
        ["src/main.rs", "src/bin"].iter().any(|path| self.folder.join(path).exists())
    }
}

/// What a line of cargo's messages tells of.
enum Made {
    Test(Program),
    /// A program, by its package.
    Program(String),
}

fn made(line: &str) -> Option<Made> {
    let message: Value = serde_json::from_str(line).ok()?;
    if message["reason"] != "compiler-artifact" {
        return None;
    }
    let path = message["executable"].as_str()?.into();
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
    let package = folder.file_name()?.to_str()?.to_owned();
    let (target, kind) = (message["target"]["name"].as_str()?, &message["target"]["kind"][0]);
    if message["profile"]["test"] != true {
        return (kind == "bin").then_some(Made::Program(package));
    }
    let name = if kind == "test" { format!("{package}::{target}") } else { package };
    Some(Made::Test(Program { name, path, folder, arguments: Vec::new() }))
}

/// Runs them all, `at_once` at a time, even if some fail, and prints the output of those that
/// failed. Their output is kept in `target/test-output`.
pub fn run(root: &Path, programs: Vec<Program>, at_once: usize, environment: &[(&str, &str)]) -> Result<(), String> {
    let queue = Queue::default();
    programs.into_iter().for_each(|program| queue.push(program));
    queue.close();
    run_all(root, &queue, at_once, environment)
}

fn run_all(root: &Path, queue: &Queue, at_once: usize, environment: &[(&str, &str)]) -> Result<(), String> {
    let start = Instant::now();
    let folder = root.join("target/test-output");
    fs::create_dir_all(&folder).map_err(|why| format!("{}: {why}", folder.display()))?;
    eprintln!("== programs run {at_once} at a time; what they say is in {}", folder.display());
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                while let Some(program) = queue.pop() {
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
        let folder =
            std::env::temp_dir().join(format!("weft-suite-{}-{}", std::process::id(), name.replace("::", "-")));
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
    fn what_takes_longest_begins_first_and_a_closed_queue_ends() {
        let queue = Queue::default();
        std::thread::scope(|scope| {
            let first = scope.spawn(|| queue.pop());
            queue.push(shell("waited", ""));
            assert_eq!(first.join().unwrap().unwrap().name, "waited");
        });
        ["short", "cli::commands", "fs::suite"].into_iter().for_each(|name| queue.push(shell(name, "")));
        queue.close();
        let order: Vec<String> = std::iter::from_fn(|| queue.pop()).map(|program| program.name).collect();
        assert_eq!(order, ["fs::suite", "cli::commands", "short"]);
    }

    #[test]
    fn tests_of_programs_wait_for_these() {
        let with_program = shell("one::runs", "");
        fs::create_dir_all(with_program.folder.join("src/bin")).unwrap();
        let (folder, mut held) = (with_program.folder.clone(), Held::default());
        let names = |ready: Vec<Program>| ready.into_iter().map(|program| program.name).collect::<Vec<_>>();
        assert_eq!(names(held.take(Made::Test(shell("one", "")))), ["one"]);
        assert_eq!(names(held.take(Made::Test(shell("other::test", "")))), ["other::test"]);
        assert!(held.take(Made::Test(with_program)).is_empty());
        assert!(held.take(Made::Program("one".into())).is_empty());
        assert_eq!(names(held.take(Made::Program("cli".into()))), ["one::runs"]);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn test_programs_are_known_by_package_and_name() {
        let line = r#"{"reason":"compiler-artifact","manifest_path":"/p/fs/Cargo.toml","target":{"name":"soak","kind":["test"]},
            "profile":{"test":true},"executable":"/p/target/debug/deps/soak-1"}"#;
        let Some(Made::Test(found)) = made(line) else { panic!("a test program") };
        assert_eq!((found.name.as_str(), found.folder.to_str()), ("fs::soak", Some("/p/fs")));
        assert!(made(&line.replace("true", "false")).is_none());
        assert!(made(&line.replace("\"/p/target/debug/deps/soak-1\"", "null")).is_none());
        assert!(made("warning: something").is_none());
        let line = line.replace("true", "false").replace("[\"test\"]", "[\"bin\"]");
        assert!(matches!(made(&line), Some(Made::Program(package)) if package == "fs"));
    }
}
