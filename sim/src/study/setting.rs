//! A setting of the experiment, and the policies that are compared in it.

use serde::Serialize;

/// The policies that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// Ours: by load, in turns, with its guards.
    Adaptive,
    /// Algorithm 1 of the paper as written: the best score of the last report.
    Algorithm1,
    /// Each client goes round by itself.
    RoundRobin,
    /// By chance.
    Random,
    /// By the straws of CRUSH.
    Crush,
}

impl Policy {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Adaptive, Self::Algorithm1, Self::RoundRobin, Self::Random, Self::Crush];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Adaptive => "adaptive",
            Self::Algorithm1 => "algorithm-1",
            Self::RoundRobin => "round-robin",
            Self::Random => "random",
            Self::Crush => "crush",
        }
    }
}

/// A setting of the experiment. Bytes and seconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Setting {
    /// Nodes: each has a server, a client and a disk for data.
    pub servers: usize,
    /// Whether half of the clients have a second writer.
    pub unbalanced: bool,
    /// Data blocks of a stripe.
    pub k: usize,
    /// Parity blocks.
    pub m: usize,
    /// Of a writer; the paper: 4 GB.
    pub file_bytes: u64,
    /// The paper: 32 MB.
    pub block_bytes: u64,
    /// Of a disk; the paper: 1 TB.
    pub disk_bytes: u64,
    /// Assumed: servers of a sub-network (L1).
    pub in_network: usize,
    /// Assumed: what a disk with one stream writes in a second.
    pub disk_per_second: f64,
    /// Assumed: by which part each further stream slows a disk.
    pub seek: f64,
    /// Assumed: what a writer sends in a second, coded, through FUSE.
    pub writer_per_second: f64,
    /// Assumed: the part of a node's serving that each writer on it takes.
    pub writer_takes: f64,
    /// Assumed: the standard deviation of the nodes' speeds.
    pub speed_spread: f64,
    /// Assumed: seconds for which a node stays fast or slow.
    pub speed_seconds: f64,
    /// Assumed: seconds between two reports.
    pub report_seconds: f64,
    /// Of our policy: how much even space counts beside the load.
    pub evenness: f64,
}

impl Default for Setting {
    fn default() -> Self {
        Self {
            servers: 32,
            unbalanced: false,
            k: 6,
            m: 2,
            file_bytes: 4 << 30,
            block_bytes: 32 << 20,
            disk_bytes: 1_000_000_000_000,
            in_network: 32,
            disk_per_second: 100e6,
            seek: 0.02,
            writer_per_second: 400e6,
            writer_takes: 0.2,
            speed_spread: 0.3,
            speed_seconds: 10.0,
            report_seconds: 1.0,
            evenness: plan::placement::Tuning::default().evenness,
        }
    }
}
