//! One run of the paper's experiment (section VI.B), as a model.

use super::choose::{Chooser, Stripe};
use super::setting::{Policy, Setting};
use crate::flow::{NOTHING, Network};
use crate::speeds::Speeds;
use plan::TargetId;
use plan::placement::Observed;

/// What a run gave.
#[derive(Clone, Debug)]
pub struct Ran {
    /// Bytes of user data a second, from the beginning to the end of the last writer.
    pub until_last: f64,
    /// The sum of the writers' own speeds, as IOzone adds them up.
    pub of_writers: f64,
    /// Bytes on each server.
    pub space: Vec<u64>,
}

struct Writer {
    node: usize,
    /// Bytes that are still to be written.
    left: u64,
    /// Blocks of the stripe on their way.
    waits: u32,
    /// Servers of the stripe so far, and its number.
    stripe: Vec<TargetId>,
    number: u64,
    /// The size of its blocks.
    block: u64,
    /// Blocks that it has placed.
    placed: u64,
    ended: Option<f64>,
}

/// Bytes are written in pieces of a MiB, each an access.
fn pieces_until(bytes: f64) -> u64 {
    (bytes / f64::from(1 << 20)) as u64
}

/// The shortest step, in seconds.
const STEP: f64 = 0.02;
/// Seconds after which speeds change.
const MOOD_SECONDS: f64 = 0.25;

/// Lets all writers write their files.
pub fn run(setting: &Setting, policy: Policy, seed: u64) -> Ran {
    let nodes = setting.servers;
    let mut network = Network::default();
    let disks: Vec<u32> = (0..nodes).map(|_| network.add(setting.disk_per_second, setting.seek)).collect();
    let second = if setting.unbalanced { nodes / 2 } else { 0 };
    let mut writers: Vec<Writer> = (0..nodes)
        .chain(0..second)
        .map(|node| Writer {
            node,
            left: setting.file_bytes,
            waits: 0,
            stripe: Vec::new(),
            number: 0,
            block: 0,
            placed: 0,
            ended: None,
        })
        .collect();
    let senders: Vec<u32> = writers.iter().map(|_| network.add(setting.writer_per_second, 0.0)).collect();
    let mut chooser = Chooser::new(policy, setting, seed);
    let mut speeds = Speeds::new(nodes, setting.speed_spread, setting.speed_seconds, seed ^ 0x5EED);
    let (mut now, mut next_mood, mut next_report) = (0.0, 0.0, setting.report_seconds);
    let mut space = vec![0u64; nodes];
    let (mut stripes, mut reports) = (0, 0);
    let mut last = vec![[0.0; 2]; nodes];
    let mut free: Vec<usize> = (0..writers.len()).collect();
    let busy = |writers: &[Writer]| {
        let mut busy = vec![0u32; nodes];
        writers.iter().filter(|writer| writer.ended.is_none()).for_each(|writer| busy[writer.node] += 1);
        busy
    };
    loop {
        // What writers on a node leave of its speed.
        let left = |writing: u32| (1.0 - setting.writer_takes * f64::from(writing)).max(0.1);
        if now >= next_mood {
            for (node, writing) in busy(&writers).into_iter().enumerate() {
                network.set_speed(disks[node], setting.disk_per_second * speeds.of(node) * left(writing));
            }
            speeds.advance(MOOD_SECONDS);
            next_mood = now + MOOD_SECONDS;
        }
        for at in free.drain(..) {
            let writer = &mut writers[at];
            let count = match writer.stripe.len() {
                // Parity follows when the data is stored (section V.B).
                sent if sent == setting.k => setting.m,
                _ => {
                    if writer.left == 0 {
                        writer.ended = Some(now);
                        continue;
                    }
                    writer.stripe.clear();
                    (writer.number, stripes) = (stripes, stripes + 1);
                    let data = writer.left.min(setting.block_bytes * setting.k as u64);
                    writer.left -= data;
                    writer.block = data.div_ceil(setting.k as u64);
                    setting.k
                }
            };
            for _ in 0..count {
                let Writer { node, number, placed, .. } = *writer;
                let server = chooser.next(&Stripe { node, number, before: placed, used: &writer.stripe });
                writer.stripe.push(server);
                writer.placed += 1;
                let server = usize::from(server.0);
                space[server] += writer.block;
                network.send(at as u32, writer.block as f64, [senders[at], disks[server], NOTHING, NOTHING]);
                writer.waits += 1;
            }
        }
        if network.is_idle() {
            break;
        }
        let until = next_mood.min(next_report) - now;
        now += network.advance(STEP.min(until), until, |owner| {
            let writer = &mut writers[owner as usize];
            writer.waits -= 1;
            if writer.waits == 0 {
                free.push(owner as usize);
            }
        });
        if now >= next_report {
            reports += 1;
            let writing = busy(&writers);
            let seen: Vec<(TargetId, Observed)> = (0..nodes)
                .map(|node| {
                    let sums = [network.moved[disks[node] as usize], network.waited[disks[node] as usize]];
                    let [moved, queue] = std::array::from_fn(|at| (sums[at] - last[node][at]) / setting.report_seconds);
                    let pieces = pieces_until(sums[0]) - pieces_until(last[node][0]);
                    last[node] = sums;
                    let observed = Observed {
                        number: reports,
                        idle: (1.0 - setting.writer_takes * f64::from(writing[node])).max(0.0),
                        network: moved,
                        accesses: pieces_until(sums[0]),
                        queue,
                        measured: (pieces, queue * setting.report_seconds),
                        seconds: setting.report_seconds,
                        delay: 0.0,
                    };
                    (TargetId(node as u16), observed)
                })
                .collect();
            chooser.report(&seen, &space);
            next_report += setting.report_seconds;
        }
    }
    let all = writers.len() as f64 * setting.file_bytes as f64;
    let own = |writer: &Writer| setting.file_bytes as f64 / writer.ended.unwrap_or(now).max(1e-9);
    Ran { until_last: all / now.max(1e-9), of_writers: writers.iter().map(own).sum(), space }
}
