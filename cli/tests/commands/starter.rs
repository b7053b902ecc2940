//! Runs commands with pipes. That also shows that processes which they leave behind, such as a
//! mount, do not hold the pipes.

use crate::scratch::Ended;
use std::process::{Command, Stdio};

/// Runs a command to its end.
pub fn run(command: &mut Command) -> Ended {
    let ended = command.stdin(Stdio::null()).output().expect("it runs");
    Ended::new(ended.status, ended.stdout, &ended.stderr)
}
