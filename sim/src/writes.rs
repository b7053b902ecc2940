//! Clients that write and read, with the real policies and the real way from reports to loads.

use crate::cluster::Cluster;
use crate::config::{Config, Workload};
use crate::flow::{NOTHING, Network, USES};
use crate::placing::Placing;
use crate::speeds::Speeds;
use crate::table::Table;
use crate::watch::{Phase, Watch};
use plan::TargetId;
use plan::placement::Observed;
use serde::Serialize;

/// What clients saw.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Writes {
    /// Bytes of user data that were written in a second.
    pub written_per_second: f64,
    /// Bytes of user data that were read in a second.
    pub read_per_second: f64,
    /// Both, over time.
    pub bandwidth: Vec<f64>,
    /// Bytes that each store got of what was written: the least, the mean and the most.
    pub got: [f64; 3],
    /// How busy disks were, 0 to 1: the idlest, the mean and the busiest.
    pub busy: [f64; 3],
}

/// Points of the bandwidth over time.
const BINS: usize = 120;
/// Steps of a run, at most, beside reports.
const STEPS: f64 = 100_000.0;
/// Seconds after which speeds change.
const MOOD_SECONDS: f64 = 0.1;

/// The resources of a machine.
struct Machine {
    into: u32,
    out: u32,
    disk: u32,
    processor: u32,
}

/// A chunk set that a writer fills.
struct Open {
    places: Vec<TargetId>,
    left: u64,
}

/// Lets the clients work.
pub fn simulate(config: &Config, work: &Workload, cluster: &Cluster, table: &Table, watch: &Watch) -> Writes {
    watch.begin(Phase::Writes, work.seconds as u64);
    let mut network = Network::default();
    let store = |store: &crate::cluster::Store| Machine {
        into: network.add(store.link, 0.0),
        out: network.add(store.link, 0.0),
        disk: network.add(store.disk, 0.0),
        processor: network.add(store.processor, 0.0),
    };
    let stores: Vec<Machine> = cluster.stores.iter().map(store).collect();
    let links: Vec<[u32; 2]> =
        (0..work.clients).map(|_| [0; 2].map(|_| network.add(work.link_mb_per_second * 1e6, 0.0))).collect();
    let more = (f64::from(work.clients) * work.second_writer_part).round() as u32;
    // The client of each writer.
    let writers: Vec<usize> = (0..work.clients)
        .flat_map(|client| (0..work.writers + u32::from(client < more)).map(move |_| client as usize))
        .collect();
    let mut open: Vec<Option<Open>> = writers.iter().map(|_| None).collect();
    let (mut waits, mut reads) = (vec![0u32; writers.len()], vec![false; writers.len()]);
    let mut placing = Placing::new(config, cluster);
    let mut random = fastrand::Rng::with_seed(config.seed ^ 0x77);
    let mut speeds = Speeds::new(stores.len(), work.speed_spread, work.speed_seconds, config.seed ^ 0x5EED);
    let k = config.volume.k as usize;
    let block = (work.record.0 as f64 / k as f64).max(1.0);
    let mut got = vec![0.0; stores.len()];
    let (mut written, mut read, mut bandwidth) = (0.0, 0.0, vec![0.0; BINS]);
    let (mut now, mut next_report, mut next_mood, mut reports) = (0.0, work.report_seconds, 0.0, 0);
    let mut last: Vec<[f64; 4]> = vec![[0.0; 4]; stores.len()];
    let (mut accesses, mut pieces) = (vec![0u64; stores.len()], vec![0u64; stores.len()]);
    let mut idle: Vec<usize> = (0..writers.len()).collect();
    let mut places = Vec::new();
    while now < work.seconds {
        if now >= next_mood {
            for (number, machine) in stores.iter().enumerate() {
                network.set_speed(machine.disk, cluster.stores[number].disk * speeds.of(number));
            }
            speeds.advance(MOOD_SECONDS);
            next_mood = now + MOOD_SECONDS;
        }
        for writer in idle.drain(..) {
            let [up, down] = links[writers[writer]];
            reads[writer] = random.f64() < work.read_share;
            if reads[writer] {
                table.read(random.usize(0..table.sets()), &mut places);
                for id in places.iter().take(k).flatten() {
                    let from = &stores[usize::from(id.0)];
                    accesses[usize::from(id.0)] += 1;
                    network.send(writer as u32, block, [from.disk, from.processor, from.out, down]);
                    waits[writer] += 1;
                }
            } else {
                let open = &mut open[writer];
                if open.as_ref().is_none_or(|open| (open.left as f64) < block) {
                    *open =
                        Some(Open { places: placing.place(cluster), left: config.volume.chunk.0.max(block as u64) });
                }
                let Some(open) = open else { continue };
                open.left = open.left.saturating_sub(block as u64);
                for id in &open.places {
                    let to = &stores[usize::from(id.0)];
                    accesses[usize::from(id.0)] += 1;
                    got[usize::from(id.0)] += block;
                    let uses: [u32; USES] = [up, to.into, to.processor, to.disk];
                    network.send(writer as u32, block, uses);
                    waits[writer] += 1;
                }
            }
            if waits[writer] == 0 {
                // No store takes anything, or nothing is there to be read.
                network.send(writer as u32, block, [up, NOTHING, NOTHING, NOTHING]);
                waits[writer] += 1;
                reads[writer] = true;
            }
        }
        let until = next_report.min(next_mood).min(work.seconds) - now;
        let bin = ((now / work.seconds * BINS as f64) as usize).min(BINS - 1);
        now += network.advance((work.seconds / STEPS).min(until), until, |owner| {
            let writer = owner as usize;
            waits[writer] -= 1;
            if waits[writer] == 0 {
                let of = if reads[writer] { &mut read } else { &mut written };
                *of += block * k as f64;
                bandwidth[bin] += block * k as f64;
                idle.push(writer);
            }
        });
        if now >= next_report {
            reports += 1;
            watch.add(work.report_seconds as u64);
            let seen: Vec<(TargetId, Observed)> = stores
                .iter()
                .enumerate()
                .map(|(number, machine)| {
                    let total = [machine.into, machine.out, machine.processor].map(|it| network.moved[it as usize]);
                    let [into, out, processor] = total;
                    let sums = [into, out, processor, network.waited[machine.disk as usize]];
                    let since: [f64; 4] = std::array::from_fn(|at| (sums[at] - last[number][at]) / work.report_seconds);
                    last[number] = sums;
                    // Bytes are written in pieces of a MiB, each an access.
                    let until = (network.moved[machine.disk as usize] / f64::from(1 << 20)) as u64;
                    let more = until - std::mem::replace(&mut pieces[number], until);
                    let observed = Observed {
                        number: reports,
                        idle: (1.0 - since[2] / cluster.stores[number].processor).clamp(0.0, 1.0),
                        network: since[0] + since[1],
                        accesses: accesses[number],
                        queue: since[3],
                        measured: (more, since[3] * work.report_seconds),
                        seconds: work.report_seconds,
                        delay: 0.0,
                    };
                    (TargetId(number as u16), observed)
                })
                .collect();
            placing.report(&seen);
            next_report += work.report_seconds;
        }
    }
    let bin_seconds = work.seconds / BINS as f64;
    let busy: Vec<f64> = stores
        .iter()
        .zip(&cluster.stores)
        .map(|(machine, store)| network.moved[machine.disk as usize] / store.disk / now)
        .collect();
    Writes {
        written_per_second: written / now,
        read_per_second: read / now,
        bandwidth: bandwidth.into_iter().map(|bytes| bytes / bin_seconds).collect(),
        got: spread(&got),
        busy: spread(&busy),
    }
}

/// The least, the mean and the most.
pub fn spread(of: &[f64]) -> [f64; 3] {
    let mean = of.iter().sum::<f64>() / of.len().max(1) as f64;
    [of.iter().copied().fold(f64::INFINITY, f64::min), mean, of.iter().copied().fold(0.0, f64::max)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fill::fill;

    fn writes(text: &str) -> Writes {
        let config = Config::parse(text).unwrap();
        let (mut cluster, watch) = (Cluster::new(&config), Watch::default());
        let table = fill(&config, &mut cluster, 1, &watch);
        simulate(&config, config.workload.as_ref().unwrap(), &cluster, &table, &watch)
    }

    /// One client is as fast as its link, less the parity.
    #[test]
    fn a_client_is_limited_by_its_link() {
        let text = "[volume]\nsets = 100\n[workload]\nclients = 1\nlink_mb_per_second = 80.0\nseconds = 20.0\n\
                    speed_spread = 0.0\n";
        let seen = writes(text);
        assert!((seen.written_per_second / 60e6 - 1.0).abs() < 0.03, "{seen:?}");
        let reads = writes(&format!("{text}read_share = 1.0"));
        assert!((reads.read_per_second / 80e6 - 1.0).abs() < 0.03 && reads.written_per_second == 0.0, "{reads:?}");
    }

    /// Many writers fill the disks, and no more.
    #[test]
    fn many_clients_are_limited_by_the_disks() {
        let text = "[volume]\nsets = 100\n[workload]\nclients = 64\nseconds = 20.0\nspeed_spread = 0.0\n";
        let seen = writes(text);
        let most = 32.0 * 180e6 * 0.75;
        assert!(seen.written_per_second < 1.02 * most && seen.written_per_second > 0.7 * most, "{seen:?}");
        assert!(seen.busy[2] <= 1.02, "{seen:?}");
    }

    /// Two of eight stores at a quarter of the speed: placement by load beats placement by turns.
    #[test]
    fn slow_stores_get_less() {
        let of = |policy: &str| {
            writes(&format!(
                "[cluster]\ncabinets = 12\nstores = 2\n[[class]]\npart = 0.25\ndisk_mb_per_second = 45.0\n\
                 [volume]\nsets = 100\npolicy = {policy:?}\n[workload]\nclients = 24\nseconds = 60.0\n"
            ))
        };
        let [adaptive, turns] = ["adaptive", "round-robin"].map(|policy| of(policy).written_per_second);
        assert!(adaptive > 1.1 * turns, "{adaptive} and {turns}");
    }

    #[test]
    fn the_same_file_gives_the_same() {
        let text = "[volume]\nsets = 50\n[workload]\nseconds = 5.0\nread_share = 0.3";
        assert_eq!(writes(text), writes(text));
        assert_ne!(writes(text), writes(&format!("seed = 4\n{text}")));
    }
}
