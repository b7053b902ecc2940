//! The options of `weft bench placement`, and what cannot be.

use crate::failure::{Failure, Outcome};
use crate::unprotected;
use bench::placement::{How, Load};
use clap::Args;
use plan::placement::PolicyName;
use plan::sizes;
use std::path::PathBuf;

/// How long a writer of `--quick` writes, in seconds.
const QUICK_SECONDS: f64 = 0.5;

/// Placement policies on a cluster of processes: bandwidth, and space of each store
#[derive(Args)]
#[command(after_help = "Examples:
  weft bench placement
  # Both loads, for longer, with the figures in files.
  weft bench placement --load balanced,unbalanced \\
      --seconds 15 --rounds 5 --json-file result.json \\
      --html placement.html
  # One question: two of eight stores at a quarter of
  # their speed, by load and in turns.
  weft bench placement --slow 2 --slow-to 1/4 \\
      --policies adaptive,round-robin --load balanced
  # As root: by the processors instead of the network.
  weft bench placement --how cpu
  weft bench placement --quick --json
  # The paper's experiment, simulated with 32 servers.
  weft bench placement --simulated --servers 32

Stores, a metadata server and clients run as processes on this machine, new ones for each turn. Every client writes \
for a while and syncs; with the unbalanced load, half of them have a second writer. Each store is held to the same \
speed, so that the stores are what limits and not this machine; --slow slows the first of them further. A client \
chooses between stores only where there are more targets than a code has blocks: so each store has two.

--how net makes network namespaces (root, ip, tc), cpu and disk take control groups (root); with disk, each store has \
a file system of its own on a loop device (mkfs.ext4, mount). Chunks are short, so that \
many sets are placed in a short time. The paper's own figures stand beside ours.")]
pub struct Arguments {
    /// Storage servers
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=200))]
    pub stores: u32,
    /// Targets of each store; with several, a store is a domain
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub disks: u32,
    /// The code
    #[arg(long, value_name = "CODE", default_value = "rs:6+2")]
    pub code: String,
    /// Clients, each a process
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=200))]
    pub clients: u32,
    /// How long the writers of a round write, before they sync [default: 4]
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub seconds: Option<f64>,
    /// Rounds, in which everything takes its turn; medians count [default: 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// Policies, in the order of their turns: adaptive, random, round-robin, crush, prime
    #[arg(long, value_name = "POLICY", value_delimiter = ',', default_value = "adaptive,random,round-robin,crush")]
    pub policies: Vec<PolicyName>,
    /// What clients write: balanced, unbalanced (half of them have a second writer)
    #[arg(long, value_name = "LOAD", value_delimiter = ',', default_value = "balanced")]
    pub load: Vec<Load>,
    /// How many stores are slowed, each in turn [default: 0,2 where that is possible]
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub slow: Vec<u32>,
    /// The part of its speed that a slowed store has
    #[arg(long, value_name = "PART", default_value = "1/4", value_parser = part)]
    pub slow_to: f64,
    /// What holds stores to their speed: net, cpu or disk [default: net where that is possible]
    #[arg(long, value_name = "HOW")]
    pub how: Option<How>,
    /// Bytes a second of the link, or the disk, of a store that is not slowed
    #[arg(long, value_name = "SIZE", default_value = "25M", value_parser = sizes::bytes)]
    pub speed: u64,
    /// The greatest length of a chunk: the shorter, the more sets are placed
    #[arg(long, value_name = "SIZE", default_value = "2MiB", value_parser = sizes::length::<u32>)]
    pub chunk_bytes: u32,
    /// User data of a stripe at most: short, so that what waits at a slow store comes within the
    /// second after which it is given up [default: 512KiB; with --how disk, blocks of 256KiB, which
    /// stores write to the disk at once]
    #[arg(long, value_name = "SIZE", value_parser = sizes::length::<usize>)]
    pub stripe_bytes: Option<usize>,
    /// Where to create the temporary directory with everything [default: that of the system]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// One short round: whether it works, not how fast
    #[arg(long, conflicts_with_all = ["seconds", "rounds"])]
    pub quick: bool,
    /// Simulate the paper's experiment instead, with many servers; nothing is measured
    #[arg(long, conflicts_with_all = ["slow", "how", "seconds", "rounds", "dir"])]
    pub simulated: bool,
    /// With --simulated, how many servers [default: 8,16,32,128,1024]
    #[arg(
        long, value_name = "N", value_delimiter = ',', requires = "simulated",
        value_parser = clap::value_parser!(u32).range(1..=100_000)
    )]
    pub servers: Vec<u32>,
    /// With --simulated, runs of each, with other chances [default: 4]
    #[arg(
        long, value_name = "N", requires = "simulated",
        value_parser = clap::value_parser!(u32).range(1..=1000)
    )]
    pub seeds: Option<u32>,
    /// Also write the result to a file
    #[arg(long, value_name = "FILE")]
    pub json_file: Option<PathBuf>,
    /// Also write the figures to a file, a line for each policy
    #[arg(long, alias = "csv-file", value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Also write a page with charts, beside the paper's figures
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// This process is a client of the bench: the volume to write to
    #[arg(long, hide = true)]
    pub writer: Option<PathBuf>,
    /// Writers of this client
    #[arg(long, hide = true, default_value_t = 1)]
    pub writers: u32,
}

/// How much is measured, and in which pieces.
pub struct Sizes {
    pub seconds: f64,
    pub rounds: u32,
    pub chunk_bytes: u32,
    pub stripe_bytes: usize,
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=3600.0).contains(seconds));
    seconds.ok_or_else(|| "give seconds from 0.1 to 3600".into())
}

/// A part as `1/4` or `0.25`.
fn part(text: &str) -> Result<f64, String> {
    let number = |text: &str| text.parse::<f64>().ok();
    let part = match text.split_once('/') {
        Some((part, whole)) => number(part).zip(number(whole)).map(|(part, whole)| part / whole),
        None => number(text),
    };
    part.filter(|part| (0.01..=1.0).contains(part)).ok_or_else(|| "give a part from 1/100 to 1, such as 1/4".into())
}

impl Arguments {
    /// The files that it writes.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.json_file, &self.csv, &self.html].into_iter().flatten()
    }

    /// How much is measured, and in which pieces. Shorter blocks than those of `--how disk` wait in
    /// memory, and no disk is slow before a sync.
    ///
    /// # Errors
    /// When the code cannot be parsed.
    pub fn sizes(&self) -> Result<Sizes, Failure> {
        let (seconds, rounds) = match self.quick {
            true => (QUICK_SECONDS, 1),
            false => (self.seconds.unwrap_or(4.0), self.rounds.unwrap_or(2)),
        };
        let stripe = match self.how {
            Some(How::Disk) => unprotected::parse(&self.code)?.shape().k * (256 << 10),
            _ => 512 << 10,
        };
        let (chunk_bytes, stripe_bytes) = (self.chunk_bytes, self.stripe_bytes.unwrap_or(stripe));
        Ok(Sizes { seconds, rounds, chunk_bytes, stripe_bytes })
    }

    pub fn check(&self) -> Outcome {
        let wrong = |what: String| Err(Failure::Usage(what));
        let shape = unprotected::parse(&self.code)?.shape();
        let (blocks, targets) = (shape.blocks(), self.stores * self.disks);
        if blocks > targets as usize {
            return wrong(format!("{} has {blocks} blocks, and there are {targets} targets: more --stores", self.code));
        }
        if let Some(slow) = self.slow.iter().find(|&&slow| slow > self.stores) {
            return wrong(format!("--slow {slow}: there are {} stores", self.stores));
        }
        let repeated = |at: usize| self.policies[..at].contains(&self.policies[at]);
        if let Some(at) = (0..self.policies.len()).find(|&at| repeated(at)) {
            return wrong(format!("--policies has {} twice", self.policies[at]));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_fractions_or_numbers() {
        assert_eq!([part("1/4"), part("0.5"), part("1")], [Ok(0.25), Ok(0.5), Ok(1.0)]);
        for bad in ["", "0", "2", "-1/4", "1/0", "1/4/2", "x", "nan", "4/1"] {
            assert!(part(bad).is_err(), "{bad}");
        }
        assert_eq!(seconds("0.5"), Ok(0.5));
        assert!(["0", "-1", "nan", "inf", "soon"].into_iter().all(|bad| seconds(bad).is_err()));
    }
}
