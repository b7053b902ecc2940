//! Nodes that this machine cannot have, and what the published gain says of the paper's nodes.
//!
//! A formula and not the simulator: the published rate of a node already has in it what a
//! simulation would add, shared disks and links. What differs between the ways is the time of
//! coding, which clients of the simulator do not have.

use super::engine::REGION_BYTES;
use ec::Code;
use ec::partition::Partition;
use std::time::{Duration, Instant};

/// What figure 7 has for 32 nodes: MB/s with partition encoding, and its gain.
pub const PUBLISHED_NODES: usize = 32;
pub const PUBLISHED_RATE: f64 = 1115.0;
pub const PUBLISHED_GAIN: f64 = 0.347;

/// How long the speed of coding is measured.
const MEASURED: Duration = Duration::from_millis(300);

/// MB/s of user data that one core codes.
#[derive(Clone, Copy, Debug)]
pub struct CodingRates {
    /// Whole stripes, as where they are sent afterwards.
    pub whole: f64,
    /// One region of a block after the other, as where they are sent meanwhile.
    pub by_region: f64,
}

/// Measures how fast one core codes stripes of such blocks.
pub fn coding_rates(code: &dyn Code, block_bytes: usize) -> CodingRates {
    let k = code.shape().k;
    let data = vec![vec![0xA5u8; block_bytes]; k];
    let mut coded = vec![vec![0u8; block_bytes]; code.coded().len()];
    let inputs: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    let mut outputs: Vec<&mut [u8]> = coded.iter_mut().map(Vec::as_mut_slice).collect();
    let whole = rate(k * block_bytes, || Partition::default().run(code.encoder(), &inputs, &mut outputs));
    let by_region = rate(k * block_bytes, || {
        for (number, block) in inputs.iter().enumerate() {
            for (at, region) in block.chunks(REGION_BYTES).enumerate() {
                let range = at * REGION_BYTES..at * REGION_BYTES + region.len();
                let mut parities: Vec<&mut [u8]> = outputs.iter_mut().map(|block| &mut block[range.clone()]).collect();
                code.accumulate(number, region, &mut parities);
            }
        }
    });
    CodingRates { whole, by_region }
}

/// MB/s of something that codes this number of bytes each time.
fn rate(bytes: usize, mut work: impl FnMut()) -> f64 {
    work();
    let begun = Instant::now();
    let mut times = 0;
    while times == 0 || begun.elapsed() < MEASURED {
        work();
        times += 1;
    }
    (times * bytes) as f64 / begun.elapsed().as_secs_f64() / 1e6
}

/// What nodes reach that have processors of their own, in MB/s: with sending and coding one after
/// the other, and with one beside the other. `sends` and `codes` are MB/s of user data of a node.
pub fn nodes(count: usize, sends: f64, codes: f64) -> (f64, f64) {
    let conventional = 1.0 / (1.0 / sends + 1.0 / codes);
    (count as f64 * conventional, count as f64 * sends.min(codes))
}

/// The speed at which the paper's nodes coded, in MB/s, if coding was what the overlap hid.
pub fn published_coding() -> f64 {
    let sends = PUBLISHED_RATE / PUBLISHED_NODES as f64;
    sends / PUBLISHED_GAIN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_gain_comes_back() {
        let sends = PUBLISHED_RATE / PUBLISHED_NODES as f64;
        let (conventional, overlapped) = nodes(PUBLISHED_NODES, sends, published_coding());
        assert!((overlapped - PUBLISHED_RATE).abs() < 1e-6, "{overlapped}");
        assert!((overlapped / conventional - 1.0 - PUBLISHED_GAIN).abs() < 1e-9);
        assert!((99.0..102.0).contains(&published_coding()), "{}", published_coding());
        // Who codes more slowly than it sends is limited by coding.
        assert!((nodes(2, 100.0, 50.0).1 - 100.0).abs() < 1e-9);
    }
}
