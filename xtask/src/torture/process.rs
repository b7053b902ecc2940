//! Processes of `weft`, and how they end.

use crate::lock::lock;
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A process that is not ready within this time does not start.
const READY_TIMEOUT: Duration = Duration::from_secs(600);

pub struct Process {
    pub name: String,
    program: PathBuf,
    arguments: Vec<OsString>,
    folder: PathBuf,
    child: Mutex<Option<Child>>,
}

impl Process {
    /// One that is not started. What it says goes to `NAME.out` and `NAME.log` in a folder.
    pub fn new(program: &Path, name: String, arguments: Vec<OsString>, folder: &Path) -> Self {
        Self { name, program: program.into(), arguments, folder: folder.into(), child: Mutex::default() }
    }

    fn child(&self) -> std::sync::MutexGuard<'_, Option<Child>> {
        lock(&self.child)
    }

    fn path(&self, what: &str) -> PathBuf {
        self.folder.join(format!("{}.{what}", self.name))
    }

    /// Starts it, and waits until it says that it is ready.
    pub fn start(&self) -> Result<(), String> {
        self.start_beside(|| Ok(()))
    }

    /// As [`Self::start`], with something that goes on while it waits.
    pub fn start_beside(&self, mut beside: impl FnMut() -> Result<(), String>) -> Result<(), String> {
        let error = |why: std::io::Error| format!("{} cannot be started: {why}", self.name);
        let output = File::create(self.path("out")).map_err(error)?;
        let log = File::options().create(true).append(true).open(self.path("log")).map_err(error)?;
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).stdin(Stdio::null()).stdout(output).stderr(log).env("TMPDIR", &self.folder);
        *self.child() = Some(command.spawn().map_err(error)?);
        let begun = Instant::now();
        loop {
            if fs::read(self.path("out")).map_err(error)?.contains(&b'\n') {
                return Ok(());
            }
            if let Some(status) = self.died() {
                return Err(format!("{} does not start, {status}: {}", self.name, self.last_words()));
            }
            if begun.elapsed() > READY_TIMEOUT {
                return Err(format!("{} does not start within {READY_TIMEOUT:?}: {}", self.name, self.last_words()));
            }
            beside()?;
            sleep(Duration::from_millis(5));
        }
    }

    /// How it ended, if it was not told to.
    pub fn died(&self) -> Option<String> {
        let status = self.child().as_mut()?.try_wait().ok()??;
        Some(ending(status))
    }

    /// The last lines of its log.
    pub fn last_words(&self) -> String {
        let log = fs::read(self.path("log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    /// Lines of its log that no healthy process writes.
    pub fn panics(&self) -> Vec<String> {
        let log = fs::read(self.path("log")).unwrap_or_default();
        let is_bad = |line: &&str| {
            ["panicked at", "double free", "corrupted", "AddressSanitizer", "overflowed its stack"]
                .iter()
                .any(|word| line.contains(word))
        };
        String::from_utf8_lossy(&log).lines().filter(is_bad).map(|line| format!("{}: {line}", self.name)).collect()
    }

    /// Sends a signal, as `kill -NAME` does.
    pub fn signal(&self, name: &str) {
        if let Some(child) = &*self.child() {
            let _ = Command::new("kill").arg(format!("-{name}")).arg(child.id().to_string()).status();
        }
    }

    /// With SIGKILL.
    pub fn kill(&self) {
        if let Some(mut child) = self.child().take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Waits until it ends by itself.
    pub fn wait(&self, timeout: Duration) -> Result<(), String> {
        self.wait_beside(timeout, || Ok(()))
    }

    fn wait_beside(&self, timeout: Duration, mut beside: impl FnMut() -> Result<(), String>) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            let Some(status) = self.child().as_mut().and_then(|child| child.try_wait().ok().flatten()) else {
                if self.child().is_none() {
                    return Ok(());
                }
                if begun.elapsed() > timeout {
                    return Err(format!("{} does not end within {timeout:?}: {}", self.name, self.last_words()));
                }
                beside()?;
                sleep(Duration::from_millis(5));
                continue;
            };
            *self.child() = None;
            return match status.success() {
                true => Ok(()),
                false => Err(format!("{} {}: {}", self.name, ending(status), self.last_words())),
            };
        }
    }

    /// With SIGTERM: it ends well. Something goes on while it does.
    pub fn end_beside(&self, timeout: Duration, beside: impl FnMut() -> Result<(), String>) -> Result<(), String> {
        self.signal("TERM");
        self.wait_beside(timeout, beside)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

fn ending(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with status {code}"),
        (_, Some(signal)) => format!("died of signal {signal}"),
        _ => "ended".into(),
    }
}
