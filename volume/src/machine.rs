//! What Linux says of the machine.

use plan::processors::Processors;
use std::fs::read_to_string;

/// What its processors did since its start.
pub fn processors() -> Option<Processors> {
    Processors::parse(&read_to_string("/proc/stat").ok()?)
}

/// The name of its first processor.
pub fn processor() -> Option<String> {
    let text = read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// Its name, at most 64 bytes, with a line break behind it; nothing where the system has none.
pub fn host() -> String {
    read_to_string("/proc/sys/kernel/hostname").unwrap_or_default()
}
