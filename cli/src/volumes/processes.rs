//! Servers as processes, for commands that run a whole cluster on this machine.

use crate::failure::Failure;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A server. It is killed when this goes.
pub struct Process(Child);

impl Process {
    /// Ends it at once (SIGKILL).
    pub fn kill(&mut self) {
        let _ = self.0.kill();
    }

    /// The processor time that it took, in seconds; 0 after its end.
    pub fn processor_seconds(&self) -> f64 {
        processor_seconds(&self.0.id().to_string())
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Waits until it ends by itself.
    pub fn wait(mut self) {
        let _ = self.0.wait();
    }
}

/// Ticks per second in `/proc`. The system always shows programs this value.
const TICKS: f64 = 100.0;

/// The processor time of a process by its name in `/proc`.
pub fn processor_seconds(process: &str) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    plan::processors::process_ticks(&stat).map_or(0.0, |ticks| ticks as f64 / TICKS)
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A port that is free now.
pub fn free_port() -> Result<u16, Failure> {
    let free = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
    free.map(|address| address.port()).map_err(|why| Failure::Other(format!("cannot listen: {why}")))
}

/// Starts a server in a directory and waits until it serves.
pub fn serve(place: &Path, arguments: &[&str]) -> Result<Process, Failure> {
    start(place, arguments, &[], None)
}

/// The same with variables of the environment; what it says of errors goes into `log`. It does not
/// get the Ctrl-C of this terminal.
pub fn start(
    place: &Path,
    arguments: &[&str],
    environment: &[(&str, &str)],
    log: Option<&Path>,
) -> Result<Process, Failure> {
    let failed =
        |why: &dyn std::fmt::Display| Failure::Other(format!("cannot start weft {}: {why}", arguments.join(" ")));
    let program = std::env::current_exe().map_err(|why| failed(&why))?;
    let mut command = Command::new(program);
    command.args(arguments).current_dir(place).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    command.envs(environment.iter().copied());
    if let Some(log) = log {
        command.stderr(File::create(log).map_err(|why| failed(&why))?).process_group(0);
    }
    let mut child = Process(command.spawn().map_err(|why| failed(&why))?);
    let mut line = String::new();
    if let Some(output) = child.0.stdout.take() {
        BufReader::new(output).read_line(&mut line).map_err(|why| failed(&why))?;
    }
    if !line.is_empty() {
        return Ok(child);
    }
    let said = log.and_then(|log| std::fs::read_to_string(log).ok()).unwrap_or_default();
    let last = said.lines().last().map(|line| line.trim_start_matches("weft: ").to_owned());
    Err(failed(&last.unwrap_or_else(|| "it ended without a word".into())))
}
