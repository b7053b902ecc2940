//! Programs that make networks.

use crate::failure::Failure;
use std::process::Command;

/// Runs a program; returns what it printed.
pub fn tool(words: &[&str]) -> Result<String, Failure> {
    let failed = |why: &dyn std::fmt::Display| Failure::Other(format!("{}: {why}", words.join(" ")));
    let done = Command::new(words[0]).args(&words[1..]).output().map_err(|why| failed(&why))?;
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&done.stderr);
    Err(failed(&said.lines().find(|line| !line.is_empty()).unwrap_or("it failed")))
}
