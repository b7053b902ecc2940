//! The machine that figures come from: without it a figure means nothing.

use crate::limit::{Bandwidth, bandwidths};
use crate::threads::cores;
use gf::Kernel;
use plan::words::{bytes, count};
use serde::Serialize;

/// What this machine is, and what its memory does, measured in the same run as the codes.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// The processor's name.
    pub processor: String,
    /// The instruction set.
    pub architecture: &'static str,
    /// Cores that this process may use.
    pub cores: usize,
    /// Main memory in bytes, 0 when it is not known.
    pub memory_bytes: u64,
    /// First and second data cache of one core, and the last-level cache (0 when it is not known),
    /// in bytes.
    pub cache_bytes: [usize; 3],
    /// Kernels by which the engine can compute here, slowest first.
    pub kernels: Vec<&'static str>,
    /// The kernel that the engine uses by default.
    pub chosen_kernel: &'static str,
    /// Whether `WEFT_KERNEL` chose it.
    pub kernel_is_forced: bool,
    /// What memory does.
    pub bandwidth: Vec<Bandwidth>,
}

impl Machine {
    /// Describes this machine and measures its memory.
    pub fn measure(kernel: &'static dyn Kernel, bytes: usize, rounds: usize) -> Self {
        let caches = ec::partition::caches();
        Self {
            processor: volume::machine::processor().unwrap_or_else(|| "unknown".into()),
            architecture: std::env::consts::ARCH,
            cores: cores(),
            memory_bytes: memory("MemTotal").unwrap_or(0),
            cache_bytes: [caches.first, caches.second, last_level_cache().unwrap_or(0)],
            kernels: gf::select::listed().iter().map(|k| k.name()).collect(),
            chosen_kernel: kernel.name(),
            kernel_is_forced: std::env::var(gf::select::FORCE_VARIABLE).is_ok_and(|name| !name.is_empty()),
            bandwidth: bandwidths(kernel, bytes, rounds),
        }
    }

    /// The description in sentences, without the measurements.
    pub fn describe(&self) -> String {
        let caches: Vec<String> = self.cache_bytes.iter().filter(|&&b| b > 0).map(|&b| bytes(b as u64)).collect();
        format!(
            "{}, {}, {}, caches {}, memory {}. Kernels: {}; in use: {}{}.",
            self.processor,
            self.architecture,
            count(self.cores, "core"),
            caches.join(" / "),
            bytes(self.memory_bytes),
            self.kernels.join(", "),
            self.chosen_kernel,
            if self.kernel_is_forced { " (forced by WEFT_KERNEL)" } else { "" },
        )
    }
}

/// A line of the system's account of its memory, in bytes.
pub fn memory(name: &str) -> Option<u64> {
    figure("/proc/meminfo", name)
}

/// A line such as `MemTotal: 16 kB` of a file of the system, in bytes.
pub fn figure(path: &str, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

fn last_level_cache() -> Option<usize> {
    let size = std::fs::read_to_string("/sys/devices/system/cpu/cpu0/cache/index3/size").ok()?;
    size.trim().strip_suffix('K')?.parse::<usize>().ok().map(|kib| kib * 1024)
}
