//! What memory allows: the same reads and writes as a code makes, without its arithmetic, and plain
//! bandwidth.
//!
//! The traffic limit of a shape reads every input once and writes every output once, in tiles as an
//! encoder does or in whole blocks, whichever is faster: the inputs are XORed into the first output
//! by the fastest XOR there is, and the other outputs are filled. So it still does the arithmetic
//! of one plain parity, and writes through the caches like all others here; a code that does better
//! than this limit is not wrong, it is as good as free.

use crate::arena::{Arena, Stripe};
use crate::measure::interleaved;
use crate::results::Figure;
use crate::subject::{Job, Subject};
use crate::threads;
use gf::Kernel;
use serde::Serialize;
use std::hint::black_box;
use std::time::Instant;

/// Bytes of each block that are read before the outputs' are written: with ten blocks, about a
/// first-level cache.
const TILE: usize = 4096;

/// The traffic of a shape as a subject.
pub struct Limit {
    kernel: &'static dyn Kernel,
}

impl Limit {
    /// With the XOR of this kernel.
    pub fn new(kernel: &'static dyn Kernel) -> Self {
        Self { kernel }
    }

    /// Tile by tile or block by block, whichever is faster: a limit should not depend on the way it
    /// is reached.
    fn time(&self, job: &Job, writes: usize) -> f64 {
        let (per_stripe, share) = (job.k + writes, job.stripes / job.threads);
        let (reads, makes) = (Vec::from_iter(0..job.k), Vec::from_iter(job.k..per_stripe));
        threads::seconds(job.threads, |ready| {
            let mut arena = Arena::of_blocks(per_stripe * share, job.block_bytes);
            let stripes = arena.stripes(per_stripe, job.block_bytes).into_iter();
            let mut stripes: Vec<Stripe> = stripes.map(|blocks| Stripe::new(blocks, &reads, &makes)).collect();
            let ways = [TILE, job.block_bytes].map(|tile| {
                stripes.iter_mut().take(1).for_each(|stripe| self.touch(stripe, tile));
                let start = ready();
                for _ in 0..job.iterations {
                    stripes.iter_mut().for_each(|stripe| self.touch(stripe, tile));
                }
                (start, Instant::now())
            });
            // Every worker starts both ways together with all others, so either is a valid span of
            // its own.
            let [tiles, blocks] = ways.map(|(start, end)| end - start);
            (ways[0].0, ways[0].0 + tiles.min(blocks))
        })
    }

    fn touch(&self, stripe: &mut Stripe, tile: usize) {
        let Some((first, others)) = stripe.outputs.split_first_mut() else { return };
        let length = first.len();
        for start in (0..length).step_by(tile) {
            let tile = start..length.min(start + tile);
            self.kernel.xor(&stripe.inputs, first, tile.clone());
            let value = first[start];
            others.iter_mut().for_each(|output| output[tile.clone()].fill(value));
        }
        black_box(&mut stripe.outputs);
    }
}

impl Subject for Limit {
    fn name(&self) -> &str {
        "limit"
    }

    fn version(&self) -> &str {
        ""
    }

    fn kernel(&self) -> &str {
        self.kernel.name()
    }

    fn supports(&self, _: &str) -> bool {
        true
    }

    fn time_encode(&mut self, job: &Job) -> Result<f64, String> {
        Ok(self.time(job, job.m))
    }

    fn time_decode(&mut self, job: &Job, lost: &[usize]) -> Result<f64, String> {
        Ok(self.time(job, lost.len()))
    }
}

/// One way to use memory, measured.
#[derive(Clone, Debug, Serialize)]
pub struct Bandwidth {
    /// What was done.
    pub what: &'static str,
    /// By how many cores at once, each on memory of its own.
    pub cores: usize,
    /// MiB/s of bytes read; a copy writes as many.
    pub figure: Figure,
}

/// The ways, and what one sample of each does on memory of its own.
const WAYS: [&str; 4] = ["read", "copy by 4 KiB", "copy in one call", "XOR 8+1"];

/// Reading, copying and XOR of memory larger than the caches, by one core and by all.
pub fn bandwidths(kernel: &'static dyn Kernel, bytes: usize, rounds: usize) -> Vec<Bandwidth> {
    let cores = threads::cores();
    let mut cases: Vec<(&str, usize)> = WAYS.iter().map(|&way| (way, 1)).collect();
    if cores > 1 {
        cases.extend(WAYS.iter().map(|&way| (way, cores)));
    }
    let figures = interleaved(rounds, cases.len(), |at| {
        let (way, cores) = cases[at];
        // All cores together use memory far larger than the last-level cache, without each needing
        // that much.
        Ok(bandwidth(kernel, way, cores, (bytes / cores).max(bytes / 8)))
    });
    let named = cases.into_iter().zip(figures);
    named.filter_map(|((what, cores), figure)| Some(Bandwidth { what, cores, figure: figure.ok()? })).collect()
}

fn bandwidth(kernel: &dyn Kernel, way: &str, cores: usize, bytes: usize) -> f64 {
    // Copies read one half and write the other; XOR reads eight ninths.
    let (parts, read) = match way {
        "read" => (1, 1),
        "XOR 8+1" => (9, 8),
        _ => (2, 1),
    };
    let part = bytes / parts / TILE * TILE;
    let seconds = threads::seconds(cores, |ready| {
        let mut arena = Arena::of_blocks(parts, part);
        let mut blocks = arena.stripes(parts, part).remove(0);
        let (inputs, output) = blocks.split_at_mut(read);
        let inputs: Vec<&[u8]> = inputs.iter().map(|b| &**b).collect();
        let start = ready();
        match (way, output) {
            ("XOR 8+1", [output]) => kernel.xor(&inputs, output, 0..part),
            ("copy in one call", [output]) => output.copy_from_slice(inputs[0]),
            (_, [output]) => {
                output.chunks_mut(TILE).zip(inputs[0].chunks(TILE)).for_each(|(to, from)| to.copy_from_slice(from))
            }
            _ => _ = black_box(sum(inputs[0])),
        }
        let end = Instant::now();
        black_box(&mut blocks);
        (start, end)
    });
    (read * part * cores) as f64 / (1 << 20) as f64 / seconds
}

/// Reads everything; eight sums at a time keep the adders from being what is measured.
fn sum(bytes: &[u8]) -> u64 {
    let mut sums = [0u64; 8];
    for line in bytes.as_chunks::<64>().0 {
        for (sum, word) in sums.iter_mut().zip(line.as_chunks::<8>().0) {
            *sum = sum.wrapping_add(u64::from_le_bytes(*word));
        }
    }
    sums.iter().fold(0, |a, b| a.wrapping_add(*b))
}
