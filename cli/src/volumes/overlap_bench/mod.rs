//! `weft bench overlap`: sending a stripe while its parity is made (ECFS, section III, figure 7),
//! beside encoding it whole and then sending it, and beside Weft's way: stripes that are encoded
//! whole while earlier ones are sent.
//!
//! Each node is a storage server and a client, as in the paper: two processes.

mod engine;
mod model;
mod node;
mod show;

use crate::failure::{Failure, Outcome};
use crate::model::speed::{self, Speed};
use crate::volumes::bench_lab::{Common, Lab, STORES, WRITE_COST};
use crate::volumes::processes::{Process, free_port, start};
use crate::{interrupt, unprotected};
use clap::Args;
use engine::Way;
use node::{Job, Node};
use plan::sizes;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;
use volume::Shown;

const QUICK_SECONDS: f64 = 0.4;

/// Coding beside sending: ECFS's overlap inside a stripe, conventional encoding, stripes in flight
#[derive(Args)]
#[command(after_help = "Examples:
  weft bench overlap
  # As root: each node behind a link of 200 Mbit/s, so that
  # the network limits and not this machine's processors.
  weft bench overlap --net 200M
  # The conventional way alone, with the paper's blocks.
  weft bench overlap --conventional --nodes 8 \\
      --block-bytes 32M
  weft bench overlap --quick --json

Every node is a process that writes and a storage server. conventional: a stripe is encoded whole, then sent, \
then the next one begins. partition: regions of data leave as they fill, each is folded into the parities \
while it is in the cache, and parity leaves last; one stripe at a time, as in the paper. in-flight: Weft's \
way, a stripe is encoded whole, and the next ones while it is sent. All send the same bytes. Nodes beyond \
those of this machine are modelled, from the speed of coding that is measured here and the paper's speed of a \
node.")]
pub struct Arguments {
    /// Numbers of nodes, each with a storage server and a writer
    #[arg(
        long, value_name = "N", value_delimiter = ',', default_value = "6,8,12,16",
        value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=64)
    )]
    nodes: Vec<usize>,
    /// Ways, in the order of their turns
    #[arg(long, value_name = "WAY", value_delimiter = ',', default_value = "conventional,partition,in-flight")]
    ways: Vec<Way>,
    /// The same as --ways conventional
    #[arg(long, conflicts_with = "ways")]
    conventional: bool,
    /// The code
    #[arg(long, value_name = "CODE", default_value = "rs:4+2")]
    code: String,
    /// The length of a block; the paper has 32M
    #[arg(long, value_name = "SIZE", default_value = "4MiB", value_parser = sizes::length::<usize>)]
    block_bytes: usize,
    /// Stripes in flight, for the way of that name
    #[arg(
        long, value_name = "N", default_value_t = 2,
        value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=16)
    )]
    in_flight: usize,
    /// How long the nodes of a round write, before they sync
    #[arg(long, value_name = "S", default_value_t = 3.0)]
    seconds: f64,
    /// Rounds, in which everything takes its turn; medians count
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// The link of each node in bits a second, such as 200M; takes root, ip, tc [default: loopback]
    #[arg(long, value_name = "SPEED", value_parser = speed::parse)]
    net: Option<Speed>,
    #[command(flatten)]
    common: Common,
    /// This process is a node of the bench: what it does
    #[arg(long, hide = true)]
    node: Option<String>,
}

/// What nodes reached together in one way: MB/s of user data of each round.
pub struct Reached {
    pub nodes: usize,
    pub way: Way,
    pub rates: Vec<f64>,
}

impl Arguments {
    fn check(&self, force: bool) -> Outcome {
        self.common.check(force)?;
        let wrong = |what: String| Err(Failure::Usage(what));
        let code = unprotected::parse(&self.code)?;
        let blocks = code.shape().blocks();
        if !code.systematic() || code.shape().m == 0 {
            return wrong(format!("{}: data cannot leave before parity where all blocks are coded", self.code));
        }
        if let Some(nodes) = self.nodes.iter().find(|nodes| **nodes < blocks) {
            return wrong(format!("--nodes {nodes}: {} takes {blocks}, one for each block of a stripe", self.code));
        }
        if self.block_bytes < 4096 || !self.block_bytes.is_multiple_of(4096) || self.block_bytes > 64 << 20 {
            return wrong("--block-bytes is in whole pages, 4 KiB to 64 MiB".into());
        }
        if !(0.1..=3600.0).contains(&self.seconds) {
            return wrong("--seconds is from 0.1 to 3600".into());
        }
        // Blocks of all nodes, twice: nodes have what they receive, too.
        let most = self.nodes.iter().max().copied().unwrap_or(0) as u64;
        let need = most * (self.in_flight as u64 + 1) * 2 * (blocks * self.block_bytes) as u64;
        match memory() {
            Some(there) if need > there / 2 => wrong(format!(
                "{most} nodes with such blocks take up to {}, more than half of the memory that is free: fewer \
                 --nodes, a smaller --block-bytes or --in-flight",
                crate::show::bytes(need)
            )),
            _ => Ok(()),
        }
    }

    fn ways(&self) -> Vec<Way> {
        if self.conventional { vec![Way::Conventional] } else { self.ways.clone() }
    }
}

pub fn run(arguments: &Arguments, force: bool, as_json: bool) -> Outcome {
    if let Some(job) = &arguments.node {
        return node::run(job);
    }
    arguments.check(force)?;
    let control = interrupt::control(false);
    let parent = arguments.common.parent();
    let (mut nodes, mut rounds, mut seconds) = (arguments.nodes.clone(), arguments.rounds, arguments.seconds);
    if arguments.common.quick {
        nodes.truncate(2);
        (rounds, seconds) = (1, QUICK_SECONDS);
    }
    let coding = model::coding_rates(&*ec::parse(&arguments.code)?, arguments.block_bytes);
    let lab = match arguments.net {
        Some(speed) => {
            let most = nodes.iter().max().copied().unwrap_or(0) as u32;
            let lab = Lab::build(&parent, most, Duration::ZERO, "--net")?;
            if !lab.limit(speed)?.reachable {
                return Err(Failure::Other(format!("--net {} cannot be had on this machine", speed.words())));
            }
            Some(lab)
        }
        None => None,
    };
    let watched = std::io::stderr().is_terminal() && !as_json;
    let ways = arguments.ways();
    let each = nodes.iter().flat_map(|&nodes| ways.iter().map(move |&way| Reached { nodes, way, rates: Vec::new() }));
    let mut all: Vec<Reached> = each.collect();
    let mut stages = 0;
    for round in 1..=rounds {
        for reached in &mut all {
            control.go_on().map_err(Failure::Work)?;
            if watched {
                eprintln!("round {round} of {rounds}, {} nodes, {}", reached.nodes, reached.way.name());
            }
            let place = parent.join(format!("{WRITE_COST}{}-{stages}", std::process::id()));
            stages += 1;
            reached.rates.push(stage(arguments, &place, lab.as_ref(), reached, seconds)?);
        }
    }
    show::report(arguments, &all, coding, force, as_json)
}

/// The memory of this machine that programs can have, in bytes.
fn memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}

/// Everything of a round: its directory is removed when it goes.
struct Place(PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs nodes once. Returns what they wrote together, in MB/s.
fn stage(arguments: &Arguments, place: &Path, lab: Option<&Lab>, what: &Reached, seconds: f64) -> Result<f64, Failure> {
    let failed = |path: &Path, why: std::io::Error| Failure::Other(format!("{}: {why}", Shown(path)));
    std::fs::create_dir(place).map_err(|why| failed(place, why))?;
    let _place = Place(place.into());
    let (mut stores, mut targets): (Vec<Process>, Vec<String>) = (Vec::new(), Vec::new());
    for number in 0..what.nodes {
        let disk = format!("disk{number}");
        std::fs::create_dir(place.join(&disk)).map_err(|why| failed(&place.join(&disk), why))?;
        let listen = match lab {
            Some(_) => Lab::address(STORES + number).to_string(),
            None => format!("127.0.0.1:{}", free_port()?),
        };
        let begin = || start(place, &["serve", "store", "--listen", &listen, &disk], &[], None);
        stores.push(match lab {
            Some(lab) => lab.inside(STORES + number, begin)?,
            None => begin()?,
        });
        targets.push(format!("store://{listen}/{disk}"));
    }
    let job = |node| Job {
        targets: targets.clone(),
        node,
        code: arguments.code.clone(),
        block_bytes: arguments.block_bytes,
        way: what.way,
        in_flight: arguments.in_flight,
        seconds,
    };
    let mut nodes: Vec<Node> =
        (0..what.nodes).map(|node| Node::start(place, lab, &job(node))).collect::<Result<_, _>>()?;
    nodes.iter_mut().try_for_each(Node::go)?;
    let (mut bytes, mut longest) = (0, 0.0f64);
    for node in nodes {
        let written = node.wait()?;
        bytes += written.bytes;
        longest = longest.max(written.seconds);
    }
    Ok(bytes as f64 / longest / 1e6)
}
