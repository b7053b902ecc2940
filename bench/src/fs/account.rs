//! Processor time of the whole system and of one process, as the kernel accounts for it.

use plan::processors::process_ticks;
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
        let process = |pid: u32| process_ticks(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?).map(seconds);
        let system = volume::machine::processors();
        Self { system: system.map_or(0.0, |processors| seconds(processors.busy)), server: server.and_then(process) }
    }
}

fn seconds(ticks: u64) -> f64 {
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

/// The greatest resident memory of a process so far, in bytes.
pub fn peak_memory(pid: u32) -> Option<u64> {
    crate::machine::figure(&format!("/proc/{pid}/status"), "VmHWM")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_seen_and_a_missing_one_is_not() {
        assert!(Account::now(Some(std::process::id())).server.is_some());
        assert!(Account::now(None).server.is_none() && Account::now(Some(u32::MAX)).server.is_none());
        assert!(peak_memory(std::process::id()) > Some(1 << 16) && peak_memory(u32::MAX).is_none());
    }
}
