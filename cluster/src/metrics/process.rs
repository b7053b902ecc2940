//! Metrics of every process: its version and its use of the machine. The names are those of the
//! Prometheus client libraries.

use super::text::Page;

/// Ticks per second in `/proc`. The system always shows programs this value.
const TICKS: f64 = 100.0;
const PAGE_BYTES: u64 = 4096;

pub(super) fn write(page: &mut Page) {
    let version = env!("CARGO_PKG_VERSION");
    page.gauge("weft_build_info", "The version, as a label.").count(&[("version", version)], 1);
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    if let Some(ticks) = processor_ticks(&stat) {
        page.counter("process_cpu_seconds_total", "Processor time taken.").value(&[], ticks as f64 / TICKS);
    }
    let memory = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let resident = memory.split_ascii_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    if let Some(pages) = resident {
        page.gauge("process_resident_memory_bytes", "Memory in use.").count(&[], pages.saturating_mul(PAGE_BYTES));
    }
}

/// User and system time in ticks. The name of the program comes first and may contain anything, but
/// no `)` follows it.
fn processor_ticks(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut words = rest.split_ascii_whitespace().skip(11);
    let user: u64 = words.next()?.parse().ok()?;
    Some(user.saturating_add(words.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::processor_ticks;

    #[test]
    fn processor_time_is_found_behind_any_name() {
        let stat = "77 (a) b (c)) S 1 77 77 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 4 0 1000 1 2";
        assert_eq!(processor_ticks(stat), Some(300));
        assert_eq!(processor_ticks(""), None);
        assert!(processor_ticks(&std::fs::read_to_string("/proc/self/stat").unwrap()).is_some());
    }
}
