//! Processor time of the whole system and of one process, as the kernel accounts for it.

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
        Self { system: system().unwrap_or(0.0), server: server.and_then(process) }
    }
}

fn seconds(ticks: u64) -> f64 {
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

/// `/proc/stat` counts user, nice, system, idle, iowait, irq, softirq, steal, guest and guest_nice; the last two
/// are in the first two already.
fn system() -> Option<f64> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let counts: Vec<u64> = text.lines().next()?.split_whitespace().skip(1).flat_map(str::parse).collect();
    Some([0, 1, 2, 5, 6].iter().filter_map(|&at| counts.get(at)).map(|&ticks| seconds(ticks)).sum())
}

/// Fields 14 and 15 of `/proc/PID/stat`; the second is a name, which may hold anything but ends with the last bracket.
fn process(pid: u32) -> Option<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
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
    fn time_passes_and_memory_is_used() {
        let pid = std::process::id();
        let before = Account::now(Some(pid));
        let mut sum = 0u64;
        while Account::now(Some(pid)).server <= before.server {
            sum = (0..1_000_000).fold(sum, |sum, i| std::hint::black_box(sum ^ i));
        }
        assert!(Account::now(None).system > before.system && peak_memory(pid) > Some(1 << 16), "{sum}");
        assert!(Account::now(None).server.is_none() && Account::now(Some(u32::MAX)).server.is_none());
    }
}
