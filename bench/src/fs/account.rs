//! Processor time of the whole system and of one process, as the kernel accounts for it.

use plan::processors::Processors;
use std::fs;

/// Processor seconds so far.
#[derive(Clone, Copy, Debug)]
pub struct Account {
    /// Of all processors, without idle, waiting and stolen time.
    pub system: f64,
    /// Of the server, in user and kernel mode.
    pub server: Option<f64>,
}

impl Account {
    /// What has been used until now.
    pub fn now(server: Option<u32>) -> Self {
        let process = |pid: u32| process(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?);
        let system = fs::read_to_string("/proc/stat").ok().and_then(|text| Processors::parse(&text));
        Self { system: system.map_or(0.0, |processors| seconds(processors.busy)), server: server.and_then(process) }
    }
}

fn seconds(ticks: u64) -> f64 {
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

/// Fields 14 and 15 of `/proc/PID/stat`; the second is a name, which may hold anything but ends
/// with the last bracket.
fn process(text: &str) -> Option<f64> {
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(seconds(ticks(11)? + ticks(12)?))
}

/// The greatest resident memory of a process so far, in bytes.
pub fn peak_memory(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_brackets() {
        let second = rustix::param::clock_ticks_per_second();
        let text = format!("7 (a) S 1 (b)) R 1 1 1 0 -1 0 1 1 1 1 {second} {second} 5 5 20 0 1 0");
        assert_eq!(process(&text), Some(2.0));
        assert_eq!(process("7 (a"), None);
    }

    #[test]
    fn this_process_is_seen_and_a_missing_one_is_not() {
        assert!(Account::now(Some(std::process::id())).server.is_some());
        assert!(Account::now(None).server.is_none() && Account::now(Some(u32::MAX)).server.is_none());
        assert!(peak_memory(std::process::id()) > Some(1 << 16) && peak_memory(u32::MAX).is_none());
    }
}
