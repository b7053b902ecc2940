//! What was measured, and what follows from it.

use crate::results::Figure;
use clap::ValueEnum;
use plan::placement::PolicyName;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The value of [`Measurement::kind`].
pub const KIND: &str = "weft-placement";
/// The value of [`Measurement::version`].
pub const VERSION: u32 = 1;

/// What clients write (paper 003, section VI.B).
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Load {
    /// Every client has one writer.
    Balanced,
    /// Half of the clients have a second one.
    Unbalanced,
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Balanced => "balanced",
            Self::Unbalanced => "unbalanced",
        })
    }
}

/// What holds stores to their speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum How {
    /// The speed of its disk, by a control group.
    Disk,
    /// A part of a processor, by a control group.
    Cpu,
    /// The speed of its link, in a network namespace.
    Net,
}

/// The limit of every store that is not slowed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Held {
    /// By what.
    pub how: How,
    /// Bytes in a second of a disk or a link, or the part of a processor.
    pub to: f64,
}

/// A run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// [`KIND`].
    pub kind: String,
    /// [`VERSION`].
    pub version: u32,
    /// When, in words.
    pub date: String,
    /// The machine, in words.
    pub machine: String,
    /// The version of the program.
    pub program: String,
    /// Whether so little was written that the figures mean nothing.
    pub quick: bool,
    /// Stores.
    pub stores: u32,
    /// Targets of each store.
    pub disks: u32,
    /// The code as it was given.
    pub code: String,
    /// Clients.
    pub clients: u32,
    /// How long the writers of a round write, before they sync, in seconds.
    pub seconds: f64,
    /// The greatest length of a chunk, in bytes.
    pub chunk_bytes: u64,
    /// User data of a stripe at most, in bytes.
    pub stripe_bytes: u64,
    /// What every store is held to; None where nothing limits them.
    pub held: Option<Held>,
    /// The part of that which a slowed store has.
    pub slow_to: f64,
    /// In the order of the run.
    pub scenarios: Vec<Scenario>,
}

/// One load with some stores slowed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scenario {
    /// What clients write.
    pub load: Load,
    /// How many stores are slowed: the first ones.
    pub slowed: u32,
    /// What each policy reached, in the order of their turns.
    pub policies: Vec<Reached>,
}

/// The rounds of one policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reached {
    /// The policy.
    pub policy: PolicyName,
    /// The rounds.
    pub rounds: Vec<Round>,
}

/// One round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// User data of all writers, in bytes.
    pub bytes: u64,
    /// Until the last writer had synced, in seconds.
    pub seconds: f64,
    /// Chunk sets that were placed.
    pub sets: u64,
    /// Of these, the ones that lack a chunk at the end: a store was too late for them.
    pub lacking: u64,
    /// The bytes of chunks that each store has.
    pub stores: Vec<u64>,
}

impl Scenario {
    /// What a policy reached.
    pub fn of(&self, policy: PolicyName) -> Option<&Reached> {
        self.policies.iter().find(|reached| reached.policy == policy)
    }
}

impl Reached {
    /// User data of all writers in a second, in MiB, over the rounds.
    pub fn bandwidth(&self) -> Figure {
        let of = |round: &Round| round.bytes as f64 / f64::from(1 << 20) / round.seconds.max(1e-9);
        Figure::of(self.rounds.iter().map(of).collect())
    }

    /// How far the fastest and the slowest round are apart, as a part of the median.
    pub fn spread(&self) -> f64 {
        let bandwidth = self.bandwidth();
        (bandwidth.max - bandwidth.min) / bandwidth.median.max(1e-9)
    }

    /// How much faster this is than another policy, round by round: the median of the ratios.
    pub fn ratio(&self, to: &Self) -> f64 {
        self.bandwidth().ratio(&to.bandwidth())
    }

    /// What the emptiest and the fullest store have, beside the mean: medians over the rounds.
    pub fn evenness(&self) -> (f64, f64) {
        let beside = |round: &Round, bytes: Option<&u64>| {
            let mean = round.stores.iter().sum::<u64>() as f64 / round.stores.len().max(1) as f64;
            bytes.map_or(0.0, |&bytes| bytes as f64) / mean.max(1.0)
        };
        let median = |of: &dyn Fn(&Round) -> f64| Figure::of(self.rounds.iter().map(of).collect()).median;
        let least = median(&|round| beside(round, round.stores.iter().min()));
        (least, median(&|round| beside(round, round.stores.iter().max())))
    }

    /// The bytes of each store, all rounds together.
    pub fn stores(&self) -> Vec<u64> {
        let stores = self.rounds.iter().map(|round| round.stores.len()).max().unwrap_or(0);
        let of = |store: usize| self.rounds.iter().filter_map(|round| round.stores.get(store)).sum();
        (0..stores).map(of).collect()
    }

    /// Chunk sets of a round, and how many of them lack a chunk: means.
    pub fn sets(&self) -> (f64, f64) {
        let mean =
            |of: fn(&Round) -> u64| self.rounds.iter().map(of).sum::<u64>() as f64 / self.rounds.len().max(1) as f64;
        (mean(|round| round.sets), mean(|round| round.lacking))
    }
}
