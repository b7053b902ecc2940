//! Runs commands with pipes, which also shows that whatever they leave behind, such as a mount, does not hold them.

use crate::scratch::Ended;
use std::process::{Command, Stdio};

/// Runs a command to its end.
pub fn run(command: &mut Command) -> Ended {
    let ended = command.stdin(Stdio::null()).output().expect("it runs");
    Ended::new(ended.status, ended.stdout, &ended.stderr)
}
