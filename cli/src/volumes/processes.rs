//! Servers as processes, for commands that run a whole cluster on this machine.

use crate::failure::Failure;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A server. It is killed when this goes.
pub struct Process(Child);

impl Process {
    /// Ends it at once (SIGKILL).
    pub fn kill(&mut self) {
        let _ = self.0.kill();
    }
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
    let failed =
        |why: &dyn std::fmt::Display| Failure::Other(format!("cannot start weft {}: {why}", arguments.join(" ")));
    let program = std::env::current_exe().map_err(|why| failed(&why))?;
    let mut command = Command::new(program);
    command.args(arguments).current_dir(place).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = Process(command.spawn().map_err(|why| failed(&why))?);
    let mut line = String::new();
    if let Some(output) = child.0.stdout.take() {
        BufReader::new(output).read_line(&mut line).map_err(|why| failed(&why))?;
    }
    if line.is_empty() { Err(failed(&"it ended without a word")) } else { Ok(child) }
}
