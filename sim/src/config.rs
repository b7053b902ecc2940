//! What is simulated: a small TOML file. Every value is checked, so that whatever a file says, the
//! simulation neither overflows nor takes memory without bound.

mod checks;

use plan::placement::{Placement, PolicyName, Scoring};
use serde::{Deserialize, Deserializer, Serialize};

/// The most stores: a target's number has 16 bits, and some are kept for growth.
pub const MAX_STORES: u64 = 60_000;

/// A length in bytes: a number, or text such as `16T` and `64MiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Bytes(pub u64);

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a number of bytes such as 1048576 or \"64MiB\"")]
        enum Either {
            Number(u64),
            Text(String),
        }
        match Either::deserialize(from)? {
            Either::Number(bytes) => Ok(Self(bytes)),
            Either::Text(text) => plan::sizes::bytes(&text).map(Self).map_err(serde::de::Error::custom),
        }
    }
}

/// A simulation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// From which all chance comes.
    pub seed: u64,
    /// The stores.
    pub cluster: Cluster,
    /// Stores that differ from the others.
    pub class: Vec<Class>,
    /// The chunk sets and how they are placed.
    pub volume: Volume,
    /// What is added and removed, one after the other.
    pub growth: Vec<Growth>,
    /// What fails; without it nothing is simulated over years.
    pub failures: Option<Failures>,
    /// What clients do; without it no bandwidth is simulated.
    pub workload: Option<Workload>,
}

/// The stores, each with one disk, as a tree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Cluster {
    /// Sub-networks.
    pub networks: u32,
    /// Rows of each.
    pub rows: u32,
    /// Cabinets of each row.
    pub cabinets: u32,
    /// Stores of each cabinet.
    pub stores: u32,
    /// The capacity of a disk.
    pub disk: Bytes,
    /// MB a second of a disk.
    pub disk_mb_per_second: f64,
    /// MB a second of a store's link, each way.
    pub link_mb_per_second: f64,
    /// MB a second that a store's processors can take in or give out.
    pub processor_mb_per_second: f64,
    /// Sizes of a torus that connects the stores, beside the tree of what fails together. They have
    /// places in the order of their numbers, the last dimension counting first. It changes no
    /// speed: hops are counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub torus: Option<Vec<u16>>,
}

impl Default for Cluster {
    fn default() -> Self {
        Self {
            networks: 1,
            rows: 1,
            cabinets: 4,
            stores: 8,
            disk: Bytes(16_000_000_000_000),
            disk_mb_per_second: 180.0,
            link_mb_per_second: 1250.0,
            processor_mb_per_second: 2000.0,
            torus: None,
        }
    }
}

/// Stores that differ. What is not said is as in the cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Class {
    /// Which part of all stores, 0 to 1; they are spread evenly among the others.
    pub part: f64,
    /// The capacity of a disk.
    pub disk: Option<Bytes>,
    /// MB a second of a disk.
    pub disk_mb_per_second: Option<f64>,
    /// MB a second of a store's link, each way.
    pub link_mb_per_second: Option<f64>,
    /// MB a second that a store's processors can take in or give out.
    pub processor_mb_per_second: Option<f64>,
}

/// The chunk sets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Volume {
    /// Data chunks of a set.
    pub k: u32,
    /// Parity chunks: what a set, and so a domain, can lose.
    pub m: u32,
    /// Chunk sets.
    pub sets: u64,
    /// The length of a chunk.
    pub chunk: Bytes,
    /// By which policy they are placed.
    pub policy: PolicyName,
    /// What is a failure domain: 1 sub-network, 2 row, 3 cabinet, 4 store.
    pub domain_level: u8,
    /// What scores are made of, for `adaptive` and `prime`.
    pub scoring: Option<Scoring>,
    /// How many placers place the sets, each its part of them. Results depend on this, and not on
    /// the number of threads.
    pub placers: u32,
}

impl Default for Volume {
    fn default() -> Self {
        Self {
            k: 6,
            m: 2,
            sets: 20_000,
            chunk: Bytes(64 << 20),
            policy: PolicyName::Adaptive,
            domain_level: 3,
            scoring: None,
            placers: 4,
        }
    }
}

impl Volume {
    /// Chunks of a set.
    pub fn width(&self) -> usize {
        (self.k + self.m) as usize
    }

    /// The policy and its settings.
    pub fn placement(&self) -> Placement {
        Placement { policy: self.policy, domain_level: Some(self.domain_level), scoring: self.scoring }
    }
}

/// A step of growth: one of `add_stores` and `drain`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Growth {
    /// Stores to add, in new cabinets.
    pub add_stores: u32,
    /// Rather in the cabinets that there are, in turn.
    pub spread: bool,
    /// The capacity of their disks, if another one.
    pub disk: Option<Bytes>,
    /// The domain to empty, such as `net0/row0/cabinet1` or a store in it.
    pub drain: Option<String>,
    /// MB a second that rebalancing may move in all.
    pub limit_mb_per_second: f64,
}

impl Default for Growth {
    fn default() -> Self {
        // What weft rebalance has for a limit: 32 MiB.
        Self { add_stores: 0, spread: false, disk: None, drain: None, limit_mb_per_second: 33.554_432 }
    }
}

/// What fails, how it is found and repaired. Times between failures are exponential.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Failures {
    /// Years of a run.
    pub years: u32,
    /// Runs, each with other chances.
    pub runs: u32,
    /// Mean years until a store is lost with its data; 0: never.
    pub server_mtbf_years: f64,
    /// Hours until an empty one is in its place.
    pub replace_hours: f64,
    /// Days between two looks at whether chunks are to be moved onto stores that were replaced; 0:
    /// they stay empty.
    pub rebalance_days: f64,
    /// Mean years until all stores of a cabinet are away, and come back with their data; 0: never.
    pub cabinet_mtbf_years: f64,
    /// Hours for which a cabinet is away.
    pub cabinet_hours: f64,
    /// Times a year that several stores are lost at once; 0: never.
    pub correlated_per_year: f64,
    /// The number of stores that are lost together; chance picks them.
    pub correlated_stores: u32,
    /// Sectors that become unreadable, for each terabyte in a year.
    pub latent_errors_per_tb_year: f64,
    /// Days between two verifications of a chunk, which find them.
    pub scrub_days: f64,
    /// Minutes until a silent store counts as out.
    pub detection_minutes: f64,
    /// The part of disks and links that repair takes, 0 to 1.
    pub repair_share: f64,
    /// Sets that are repaired at a time; 0: as many as the product does.
    pub repairs_at_a_time: u32,
}

impl Default for Failures {
    fn default() -> Self {
        Self {
            years: 1,
            runs: 20,
            server_mtbf_years: 10.0,
            replace_hours: 24.0,
            rebalance_days: 7.0,
            cabinet_mtbf_years: 0.0,
            cabinet_hours: 2.0,
            correlated_per_year: 0.0,
            correlated_stores: 2,
            latent_errors_per_tb_year: 0.0,
            scrub_days: 14.0,
            detection_minutes: 10.0,
            repair_share: 0.25,
            repairs_at_a_time: 0,
        }
    }
}

/// What clients do. Each writer writes a record, and the next one when all of its blocks are
/// stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Workload {
    /// Machines with clients.
    pub clients: u32,
    /// Writers on each.
    pub writers: u32,
    /// The part of the clients that has one more.
    pub second_writer_part: f64,
    /// Bytes that are written, or read, at a time; each block of the stripe has its k-th part.
    pub record: Bytes,
    /// The part of records that are read.
    pub read_share: f64,
    /// Seconds that are simulated.
    pub seconds: f64,
    /// MB a second of a client's link, each way.
    pub link_mb_per_second: f64,
    /// Seconds between two reports of a store.
    pub report_seconds: f64,
    /// By which part the speeds of stores change by chance (standard deviation).
    pub speed_spread: f64,
    /// Seconds for which a store stays fast or slow.
    pub speed_seconds: f64,
}

impl Default for Workload {
    fn default() -> Self {
        Self {
            clients: 16,
            writers: 1,
            second_writer_part: 0.0,
            record: Bytes(6 << 20),
            read_share: 0.0,
            seconds: 60.0,
            link_mb_per_second: 1250.0,
            report_seconds: 1.0,
            speed_spread: 0.2,
            speed_seconds: 10.0,
        }
    }
}

impl Config {
    /// From the text of a file.
    ///
    /// # Errors
    /// One line that says what is wrong, with the key.
    pub fn parse(text: &str) -> Result<Self, String> {
        let config: Self = basic_toml::from_str(text).map_err(|why| why.to_string().replace('\n', " "))?;
        config.check()?;
        Ok(config)
    }

    /// With another seed, or another number of runs of failures.
    ///
    /// # Errors
    /// One line, when that is too much.
    pub fn with(mut self, seed: Option<u64>, runs: Option<u32>) -> Result<Self, String> {
        self.seed = seed.unwrap_or(self.seed);
        if let (Some(failures), Some(runs)) = (&mut self.failures, runs) {
            failures.runs = runs;
        }
        self.check()?;
        Ok(self)
    }

    /// Stores at the beginning.
    pub fn stores(&self) -> u64 {
        let Cluster { networks, rows, cabinets, stores, .. } = self.cluster;
        [networks, rows, cabinets, stores].into_iter().fold(1u64, |all, each| all.saturating_mul(each.into()))
    }

    /// Stores at the end of all growth, also those that left.
    pub fn most_stores(&self) -> u64 {
        self.growth.iter().fold(self.stores(), |all, step| all.saturating_add(step.add_stores.into()))
    }
}

#[cfg(test)]
mod tests;
