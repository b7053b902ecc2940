//! Metrics of every process: its version and its use of the machine. The names are those of the
//! Prometheus client libraries.

use super::text::Page;
use plan::processors::process_ticks;

/// Ticks per second in `/proc`. The system always shows programs this value.
const TICKS: f64 = 100.0;
const PAGE_BYTES: u64 = 4096;

pub(super) fn write(page: &mut Page) {
    let version = env!("CARGO_PKG_VERSION");
    page.gauge("weft_build_info", "The version, as a label.").count(&[("version", version)], 1);
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    if let Some(ticks) = process_ticks(&stat) {
        page.counter("process_cpu_seconds_total", "Processor time taken.").value(&[], ticks as f64 / TICKS);
    }
    let memory = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let resident = memory.split_ascii_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    if let Some(pages) = resident {
        page.gauge("process_resident_memory_bytes", "Memory in use.").count(&[], pages.saturating_mul(PAGE_BYTES));
    }
}
