//! A model of the experiment of paper 003 (ECFS), section VI.B: 32 nodes, each a server with one
//! disk and a client; every client writes a file of 4 GB in 6+2 with blocks of 32 MB, and in the
//! unbalanced case half of the clients write a second one. Prints the aggregate bandwidth by policy
//! (figures 8 and 10) and how even the space is (figures 9 and 11).
//!
//! What the paper does not say is assumed: a disk writes 100 MB/s, less with many streams; the
//! speed of a node changes by chance and slowly; a writer on a node takes a part of what the node
//! could serve. A writer begins the next stripe when all blocks of the last one are stored.
//!
//! ```text
//! cargo run --release -p plan --example write_bandwidth
//! ```

use plan::membership::TargetState;
use plan::placement::temperature::{Tau, Temperatures};
use plan::placement::{
    Crush, Load, Placer, Policy, Prime, Random, Report, RoundRobin, Rules, TargetCandidate, Tuning, place,
};
use plan::{SetId, TargetId};

const NODES: usize = 32;
const BLOCK: f64 = 32.0;
const WIDTH: usize = 8;
/// MB of data in a file, and in a stripe.
const FILE: f64 = 4096.0;
const STRIPE: f64 = 6.0 * BLOCK;
/// MB/s of a disk with one stream, and how much more streams cost.
const DISK: f64 = 100.0;
const SEEK: f64 = 0.02;
/// MB/s that a writer can send, coded.
const WRITER: f64 = 400.0;
const STEP: f64 = 0.05;
/// Steps between two reports: a second.
const REPORT_STEPS: u64 = 20;
/// MB of a disk.
const CAPACITY: f64 = 1e6;
/// MB of an access.
const ACCESS: f64 = 1.0;

/// What differs between runs.
#[derive(Clone, Copy)]
struct Setting {
    unbalanced: bool,
    /// The spread of the nodes' speeds.
    spread: f64,
    /// For how many seconds a node stays fast or slow.
    lasts: f64,
    /// The part of a node's serving that each writer on it takes.
    writer_takes: f64,
    seed: u64,
}

enum Chooser {
    Policy(Box<dyn Policy>),
    Adaptive(Box<Placer>),
}

struct Block {
    writer: usize,
    server: usize,
    left: f64,
}

/// MB/s of all writers, and how far the fullest and the emptiest server are from the mean.
fn run(setting: Setting, mut chooser: Chooser) -> (f64, f64) {
    let mut random = fastrand::Rng::with_seed(setting.seed);
    let mut normal = move || ((0..3).map(|_| random.f64()).sum::<f64>() - 1.5) * 2.0;
    let writers: Vec<usize> = (0..NODES).chain(0..if setting.unbalanced { NODES / 2 } else { 0 }).collect();
    let mut file_left = vec![FILE; writers.len()];
    let mut open = vec![0usize; writers.len()];
    let mut blocks: Vec<Block> = Vec::new();
    let mut mood: Vec<f64> = (0..NODES).map(|_| normal()).collect();
    let (mut used, mut moved) = (vec![0.0; NODES], vec![0.0; NODES]);
    let mut heat = Temperatures::new(Tau::Tuned);
    let rules = Rules { width: WIDTH, spare: 2, domain_level: None, need: 1 };
    let mut candidates: Vec<TargetCandidate> = (0..NODES as u16)
        .map(|id| TargetCandidate {
            id: TargetId(id),
            free: CAPACITY as u64,
            total: CAPACITY as u64,
            domain: None,
            state: TargetState::Up,
            load: None,
        })
        .collect();
    if let Chooser::Adaptive(placer) = &mut chooser {
        placer.handle_members(&candidates);
    }
    let (mut set, mut finished) = (0, 0.0);
    let keep = (-STEP / setting.lasts).exp();
    for step in 0.. {
        for writer in
            (0..writers.len()).filter(|&writer| open[writer] == 0 && file_left[writer] > 0.0).collect::<Vec<_>>()
        {
            let data = file_left[writer].min(STRIPE);
            file_left[writer] -= data;
            let places = match &mut chooser {
                Chooser::Policy(policy) => place(&**policy, &candidates, &rules, SetId(set)),
                Chooser::Adaptive(placer) => placer.place(SetId(set)),
            };
            set += 1;
            for server in places.into_iter().flatten().map(|id| usize::from(id.0)) {
                blocks.push(Block { writer, server, left: data / 6.0 });
                used[server] += data / 6.0;
                open[writer] += 1;
            }
        }
        if blocks.is_empty() {
            finished = step as f64 * STEP;
            break;
        }
        let mut streams = [0usize; NODES];
        blocks.iter().for_each(|block| streams[block.server] += 1);
        let mut writing = [0usize; NODES];
        (0..writers.len()).filter(|&writer| open[writer] > 0).for_each(|writer| writing[writers[writer]] += 1);
        let speed = |node: usize| {
            let by_chance = (1.0 + setting.spread * mood[node]).clamp(0.2, 2.0);
            let left = 1.0 - setting.writer_takes * writing[node] as f64;
            DISK * by_chance * left / (1.0 + SEEK * streams[node].saturating_sub(1) as f64)
        };
        let speeds: Vec<f64> = (0..NODES).map(speed).collect();
        for block in &mut blocks {
            let rate = (speeds[block.server] / streams[block.server] as f64).min(WRITER / WIDTH as f64);
            moved[block.server] += (rate * STEP).min(block.left);
            block.left -= rate * STEP;
        }
        blocks.iter().filter(|block| block.left <= 0.0).for_each(|block| open[block.writer] -= 1);
        blocks.retain(|block| block.left > 0.0);
        for mood in &mut mood {
            *mood = keep * *mood + (1.0 - keep * keep).sqrt() * normal();
        }
        if step % REPORT_STEPS == REPORT_STEPS - 1 {
            let accesses = |(id, moved): (u16, &f64)| (TargetId(id), (moved / ACCESS) as u64);
            heat.handle_interval(&(0..).zip(&moved).map(accesses).collect::<Vec<_>>());
            let seconds = STEP * REPORT_STEPS as f64;
            let mean_streams = (streams.iter().sum::<usize>() as f64 / NODES as f64).max(0.1);
            for node in 0..NODES {
                let busy = setting.writer_takes * writing[node] as f64;
                // The network status: how much waits for the server, 1/2 as usual. The links
                // themselves are never full in this setting.
                let waiting = streams[node] as f64 / (streams[node] as f64 + mean_streams);
                let report = Report {
                    idle: (1.0 - busy - 0.3 * moved[node] / seconds / DISK).max(0.0),
                    network: waiting,
                    temperature: heat.of(TargetId(node as u16)),
                    free: (CAPACITY - used[node]) as u64,
                    total: CAPACITY as u64,
                };
                let Report { idle, network, temperature, free, .. } = report;
                candidates[node].free = free;
                candidates[node].load = Some(Load { idle, network, temperature, ..Load::default() });
                if let Chooser::Adaptive(placer) = &mut chooser {
                    placer.handle_report(TargetId(node as u16), &report);
                }
                moved[node] = 0.0;
            }
            if let Chooser::Adaptive(placer) = &mut chooser {
                placer.handle_interval();
            }
        }
    }
    let mean = used.iter().sum::<f64>() / NODES as f64;
    let uneven = used.iter().map(|used| (used / mean - 1.0).abs()).fold(0.0, f64::max);
    (writers.len() as f64 * FILE / finished, uneven)
}

fn main() {
    // In MB, as everything here.
    let tuning = |draws: u16, evenness: f64| Tuning { draws, evenness, chunk_bytes: 32, ..Tuning::default() };
    let placer = |tuning: Tuning, seed: u64| {
        let rules = Rules { width: WIDTH, spare: 2, domain_level: None, need: 1 };
        Chooser::Adaptive(Box::new(Placer::new(rules, tuning, seed)))
    };
    let chooser = |name: &str, seed: u64| match name {
        "random" => Chooser::Policy(Box::new(Random { seed })),
        "crush" => Chooser::Policy(Box::new(Crush { seed })),
        "round-robin" => Chooser::Policy(Box::new(RoundRobin)),
        "prime" => Chooser::Policy(Box::new(Prime::default())),
        "adaptive, no evenness" => placer(tuning(8, 0.0), seed),
        "adaptive, sharp" => placer(Tuning { sharpness: 24.0, ..tuning(8, 32.0) }, seed),
        _ => placer(tuning(8, 32.0), seed),
    };
    let names = ["random", "crush", "round-robin", "prime", "adaptive", "adaptive, no evenness", "adaptive, sharp"];
    const SEEDS: u64 = 2;
    for (spread, lasts) in [(0.0, 10.0), (0.15, 10.0), (0.3, 10.0), (0.5, 10.0)] {
        for unbalanced in [false, true] {
            println!(
                "speeds spread by {spread}, for {lasts} s, {}",
                if unbalanced { "unbalanced" } else { "balanced" }
            );
            let mut base = (0.0, 0.0);
            for name in names {
                let results: Vec<(f64, f64)> = (0..SEEDS)
                    .map(|seed| {
                        run(Setting { unbalanced, spread, lasts, writer_takes: 0.2, seed }, chooser(name, seed))
                    })
                    .collect();
                let rate = results.iter().map(|result| result.0).sum::<f64>() / SEEDS as f64;
                let uneven = results.iter().map(|result| result.1).sum::<f64>() / SEEDS as f64;
                match name {
                    "random" => base.0 = rate,
                    "round-robin" => base.1 = rate,
                    _ => {}
                }
                let over = |base: f64| {
                    if base > 0.0 { format!("{:+5.1} %", 100.0 * (rate / base - 1.0)) } else { String::new() }
                };
                println!(
                    "  {name:22} {rate:6.0} MB/s  over random {:8} over round-robin {:8} uneven by {:4.1} %",
                    over(base.0),
                    over(base.1),
                    100.0 * uneven
                );
            }
        }
    }
}
