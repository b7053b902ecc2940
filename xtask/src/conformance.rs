//! `cargo xtask conformance DIR`: whether the file system at a directory does what file systems do.
//!
//! Everything runs in a local directory as well, and only what works there is asked of DIR: what
//! this machine or its user cannot do is not held against a file system. `docs/posix.md` says what
//! is tested and lists what may differ.

mod accepted;
mod attributes;
mod fsx;
mod pjdfstest;
mod programs;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// How it is called.
pub const USAGE: &str =
    "conformance DIR [--only pjdfstest|attributes|fsx|programs|PROGRAM] [--minutes N] [--files N] [--reference DIR]";

/// What `--only` can ask for, besides one of the programs.
const PARTS: [&str; 4] = ["pjdfstest", "attributes", "fsx", "programs"];

/// What to know before a run.
const HELP: &str = "\
POSIX tests, random operations and programs in a file system, beside a local one. As root, on each of the three kinds of
mount of Weft, at an empty directory DIR:

  a volume of this machine   weft volume create V --code rs:2+1 T1 T2 T3
                             weft mount V DIR -o suid,dev
  a cluster                  weft cluster dev C --stores 3 --code rs:2+1 &
                             weft mount weft://127.0.0.1:7600/C DIR -o suid,dev
  a cluster, written back    weft mount weft://127.0.0.1:7600/C DIR -o suid,dev,writeback

C is the last part of the cluster's directory; the cluster says its address. `weft unmount DIR` ends a mount.
docs/posix.md says what is tested.
";

/// What a check came to.
pub enum Verdict {
    /// As it should be; with a remark, or without.
    Ok(String),
    /// Not as it should be.
    Failed(String),
    /// Not tried.
    Skipped(String),
}

struct Options {
    directory: PathBuf,
    reference: Option<PathBuf>,
    only: Option<String>,
    minutes: u64,
    files: u64,
}

/// Where checks work, and what they came to.
pub struct Session {
    root: PathBuf,
    /// A directory of its own in the file system under test.
    directory: PathBuf,
    /// The same in a local file system.
    reference: PathBuf,
    /// Where each check's output goes.
    logs: PathBuf,
    minutes: u64,
    files: u64,
    failed: Vec<String>,
    skipped: Vec<String>,
    passed: usize,
}

/// Runs the checks and reports each; an error when one failed.
pub fn run(root: &Path, arguments: &[&str]) -> Result<(), String> {
    if arguments.iter().any(|word| ["--help", "-h"].contains(word)) {
        print!("cargo xtask {USAGE}\n\n{HELP}");
        return Ok(());
    }
    let options = parse(arguments)?;
    let state = root.join("target/conformance");
    let logs = state.join("logs");
    // Short, since the name of a socket has a hundred bytes for its whole path.
    let unique = format!("weft-{}", std::process::id());
    let directory = existing(&options.directory)?.join(&unique);
    let reference = match &options.reference {
        Some(reference) => existing(reference)?.join(&unique),
        None => state.join(&unique),
    };
    for folder in [&logs, &directory, &reference] {
        fs::create_dir_all(folder).map_err(|why| format!("{}: {why}", folder.display()))?;
    }
    println!("{} ({}) beside {}", options.directory.display(), file_system(&directory), file_system(&reference));
    let (minutes, files) = (options.minutes, options.files);
    let mut session = Session {
        root: root.to_path_buf(),
        directory,
        reference,
        logs,
        minutes,
        files,
        failed: vec![],
        skipped: vec![],
        passed: 0,
    };
    let only = options.only.as_deref();
    let asked = |part: &str| only.is_none_or(|only| only == part);
    let wanted: Vec<_> = programs::names().filter(|name| asked("programs") || only == Some(name)).collect();
    if !wanted.is_empty() {
        for (tool, package) in programs::missing(&wanted) {
            println!("missing {tool}: root installs the package {package} if that is possible; else it is skipped");
        }
    }
    if asked("pjdfstest") {
        pjdfstest::run(&mut session);
    }
    if asked("attributes") {
        attributes::run(&mut session);
    }
    if asked("fsx") {
        fsx::run(&mut session);
    }
    programs::run(&mut session, &wanted);
    session.end()
}

fn parse(arguments: &[&str]) -> Result<Options, String> {
    let mut options = Options { directory: PathBuf::new(), reference: None, only: None, minutes: 10, files: 50_000 };
    let mut words = arguments.iter();
    while let Some(&word) = words.next() {
        let mut value = || words.next().copied().ok_or(format!("{word} needs a value"));
        let number = |text: &str| text.parse::<u64>().map_err(|_| format!("{text:?} is not a number"));
        match word {
            "--only" => {
                let part = value()?;
                if !PARTS.contains(&part) && !programs::names().any(|name| name == part) {
                    let programs: Vec<_> = programs::names().collect();
                    return Err(format!("--only {part}: use one of {}, {}", PARTS.join(", "), programs.join(", ")));
                }
                options.only = Some(part.to_owned());
            }
            "--minutes" => options.minutes = number(value()?)?,
            "--files" => options.files = number(value()?)?,
            "--reference" => options.reference = Some(PathBuf::from(value()?)),
            _ if word.starts_with('-') || !options.directory.as_os_str().is_empty() => {
                return Err(format!("{word:?} is not understood; cargo xtask {USAGE}"));
            }
            _ => options.directory = PathBuf::from(word),
        }
    }
    if options.directory.as_os_str().is_empty() {
        return Err(format!("which directory? cargo xtask {USAGE}"));
    }
    Ok(options)
}

fn existing(path: &Path) -> Result<PathBuf, String> {
    let full = path.canonicalize().map_err(|why| format!("{}: {why}", path.display()))?;
    if full.is_dir() { Ok(full) } else { Err(format!("{} is not a directory", path.display())) }
}

/// The type of a directory's file system, and what is mounted.
fn file_system(directory: &Path) -> String {
    let output = Command::new("findmnt").args(["-n", "-o", "FSTYPE,SOURCE", "-T"]).arg(directory).output();
    let name =
        output.map_or_else(|_| String::new(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    if name.is_empty() { "unknown file system".into() } else { name }
}

impl Session {
    /// Prints and counts what a check came to.
    fn report(&mut self, name: &str, verdict: Verdict) {
        match verdict {
            Verdict::Ok(more) if more.is_empty() => println!("ok      {name}"),
            Verdict::Ok(more) => println!("ok      {name}: {more}"),
            Verdict::Failed(why) => {
                println!("FAILED  {name}: {why}");
                self.failed.push(name.to_owned());
                return;
            }
            Verdict::Skipped(why) => {
                println!("skipped {name}: {why}");
                self.skipped.push(name.to_owned());
                return;
            }
        }
        self.passed += 1;
    }

    fn log(&self, name: &str) -> PathBuf {
        self.logs.join(format!("{name}.log"))
    }

    /// A crate's program, installed below target/ if it is not there.
    fn installed(&self, name: &str, version: &str) -> Result<PathBuf, String> {
        let place = self.root.join("target/conformance");
        let program = place.join("bin").join(name);
        if program.is_file() {
            return Ok(program);
        }
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["install", "--quiet", "--locked", "--version", version, name, "--root"]).arg(&place);
        let log = self.log(&format!("install-{name}"));
        logged(cargo, &log, Duration::from_secs(1800)).map_err(|why| format!("could not be installed: {why}"))?;
        Ok(program)
    }

    fn end(self) -> Result<(), String> {
        for folder in [&self.directory, &self.reference] {
            if let Err(why) = fs::remove_dir_all(folder) {
                println!("not cleaned up: {}: {why}", folder.display());
            }
        }
        let (failed, skipped) = (self.failed.len(), self.skipped.len());
        println!("{} ok, {failed} failed, {skipped} skipped", self.passed);
        if skipped > 0 {
            println!("not tried: {}", self.skipped.join(", "));
        }
        if failed == 0 { Ok(()) } else { Err(format!("failed: {}", self.failed.join(", "))) }
    }
}

/// Runs a command with its output in a file, and kills it when it takes too long.
fn logged(command: Command, log: &Path, limit: Duration) -> Result<(), String> {
    let written = |why: std::io::Error| format!("{}: {why}", log.display());
    let output = fs::File::options().create(true).append(true).open(log).map_err(written)?;
    let mut timeout = Command::new("timeout");
    timeout.args(["-k", "10", &limit.as_secs().max(1).to_string()]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        timeout.env(name, value.unwrap_or_default());
    }
    if let Some(folder) = command.get_current_dir() {
        timeout.current_dir(folder);
    }
    let error = output.try_clone().map_err(written)?;
    let status = timeout.stdin(Stdio::null()).stdout(output).stderr(error).status();
    let place = log.display();
    match status.map_err(|why| format!("timeout: {why}"))?.code() {
        Some(0) => Ok(()),
        Some(124 | 137) => Err(format!("took longer than {} s, {place}", limit.as_secs())),
        Some(code) => Err(format!("exit status {code}, {place}")),
        None => Err(format!("killed by a signal, {place}")),
    }
}
