//! Partition Encoding (ECFS, section III): stripes are coded region by region, the region chosen so
//! that what is read and made stays in cache until its checksum is taken, and regions are shared
//! out over threads.

use crate::code::Code;
use crate::transform::Transform;
#[cfg(feature = "checksums")]
use gf::checksum::Crc64;
use std::ops::Range;
use std::sync::{Mutex, OnceLock, PoisonError};

/// How a stripe is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Bytes of each block coded at a time; None: from the processor's caches.
    pub region_bytes: Option<usize>,
    /// Threads that share one stripe.
    pub threads: usize,
}

impl Default for Partition {
    fn default() -> Self {
        Self { region_bytes: None, threads: 1 }
    }
}

/// Sizes of this processor's data caches in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caches {
    /// First level, one core.
    pub first: usize,
    /// Second level, one core.
    pub second: usize,
}

/// This processor's caches, as the system tells them (feature `cache-sizes`), or cautious guesses.
pub fn caches() -> Caches {
    static CACHES: OnceLock<Caches> = OnceLock::new();
    *CACHES.get_or_init(|| Caches {
        first: cache_bytes("1").unwrap_or(32 << 10),
        second: cache_bytes("2").unwrap_or(256 << 10),
    })
}

#[cfg(feature = "cache-sizes")]
fn cache_bytes(level: &str) -> Option<usize> {
    (0..8).find_map(|index| {
        let read = |name: &str| {
            std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{name}")).ok()
        };
        let fits = read("level")?.trim() == level && read("type")?.trim() != "Instruction";
        let size = read("size")?;
        let kib: usize = size.trim().strip_suffix('K')?.parse().ok()?;
        fits.then_some(kib * 1024)
    })
}

#[cfg(not(feature = "cache-sizes"))]
fn cache_bytes(_: &str) -> Option<usize> {
    None
}

/// A stripe of more second-level caches than this has left the caches near the core when its last
/// byte is made: what was made first is then read from as far away whether it was written through
/// the caches or past them.
const STREAMING_CACHES: usize = 4;

/// Bytes of each block of such a stripe that are coded at a time where a code reads them once: from
/// memory, every change of place costs the processor what it had fetched ahead.
const STREAMED_REGION: usize = 2 << 20;
/// The least number of regions for each thread, so that all threads end together.
const REGIONS_PER_THREAD: usize = 4;

impl Partition {
    /// Bytes of each block that `transform` works on at a time: a multiple of its granularity; all
    /// blocks of a region together take half of the second-level cache. Of a stripe that is not in
    /// the caches, [`Self::run`] takes more at a time.
    pub fn region(&self, transform: &Transform) -> usize {
        let unit = transform.granularity();
        let blocks = (transform.inputs() + transform.outputs()).max(1);
        let from_caches = || {
            let wanted = (caches().second / 2 / blocks).max(1024);
            // A map that works in strides of its own would end every region with a short, slow one.
            (wanted / transform.stride()).max(1) * transform.stride()
        };
        let wanted = self.region_bytes.unwrap_or_else(from_caches).min(1 << 40);
        // Whole cache lines where the unit allows, so that neighbouring regions on two threads
        // seldom share one.
        wanted.next_multiple_of(64).next_multiple_of(unit).max(unit)
    }

    /// Runs a map over whole blocks, region by region, on the threads asked for.
    ///
    /// ```
    /// let code = weft_ec::parse("xor:2+1")?;
    /// let (data, mut parity) = ([vec![1; 1 << 20], vec![2; 1 << 20]], vec![0; 1 << 20]);
    /// let two_threads = weft_ec::partition::Partition { threads: 2, ..Default::default() };
    /// two_threads.run(code.encoder(), &[&data[0], &data[1]], &mut [&mut parity]);
    /// assert!(parity.iter().all(|&byte| byte == 3));
    /// # Ok::<(), weft_ec::InvalidCode>(())
    /// ```
    ///
    /// # Panics
    /// When the blocks are not those of the map, or differ in length.
    pub fn run(&self, transform: &Transform, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        assert!(inputs.len() == transform.inputs() && outputs.len() == transform.outputs(), "blocks of another map");
        let length = inputs.first().map_or(0, |b| b.len());
        assert!(inputs.iter().all(|b| b.len() == length), "blocks differ in length");
        assert!(outputs.iter().all(|b| b.len() == length), "blocks differ in length");
        let streaming = length.saturating_mul(inputs.len() + outputs.len()) > STREAMING_CACHES * caches().second;
        let mut region = self.region(transform);
        if streaming && self.region_bytes.is_none() && transform.is_one_pass() {
            let share = length / (self.threads.max(1) * REGIONS_PER_THREAD);
            region = region.max(STREAMED_REGION.min(share).next_multiple_of(64));
        }
        if self.threads <= 1 || length <= region {
            return each_region(length, region, |at| transform.run_stored(inputs, outputs, at, streaming));
        }
        // Every region of the outputs belongs to the one thread that takes it; the next is taken
        // when the last is done.
        let mut regions: Vec<(Range<usize>, Vec<&mut [u8]>)> = Vec::new();
        each_region(length, region, |at| regions.push((at, Vec::with_capacity(outputs.len()))));
        for output in outputs.iter_mut() {
            output.chunks_mut(region).zip(&mut regions).for_each(|(piece, (_, pieces))| pieces.push(piece));
        }
        let queue = Mutex::new(regions.into_iter());
        std::thread::scope(|scope| {
            for _ in 0..self.threads.min(length.div_ceil(region)) {
                scope.spawn(|| {
                    loop {
                        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).next();
                        let Some((at, mut pieces)) = next else { break };
                        let sources: Vec<&[u8]> = inputs.iter().map(|b| &b[at.clone()]).collect();
                        transform.run_stored(&sources, &mut pieces, 0..at.len(), streaming);
                    }
                });
            }
        });
    }
}

/// Codes the k data blocks of one stripe into its coded blocks and checksums every granule of every
/// stored block while it is in cache. Returns the checksums by position, then granule; the last
/// granule may be short.
///
/// ```
/// let code = weft_ec::parse("rs:2+1")?;
/// let (data, mut parity) = ([[1u8; 6000], [2; 6000]], [0u8; 6000]);
/// let stripe = [&data[0][..], &data[1]];
/// let sums = weft_ec::partition::encode_checksummed(&*code, &stripe, &mut [&mut parity], 4096);
/// assert_eq!(sums[2], [&parity[..4096], &parity[4096..]].map(weft_ec::gf::checksum::crc64));
/// # Ok::<(), weft_ec::InvalidCode>(())
/// ```
///
/// # Panics
/// When `granule_bytes` is zero, or the blocks are not the code's or differ in length.
#[cfg(feature = "checksums")]
pub fn encode_checksummed(
    code: &dyn Code,
    data: &[&[u8]],
    coded: &mut [&mut [u8]],
    granule_bytes: usize,
) -> Vec<Vec<u64>> {
    assert!(granule_bytes > 0, "a granule has bytes");
    let length = data.first().map_or(0, |b| b.len());
    assert!(data.iter().all(|b| b.len() == length) && coded.iter().all(|b| b.len() == length), "blocks differ");
    let first_coded = code.coded().start;
    let mut sums = vec![Granules::new(granule_bytes, length); code.shape().blocks()];
    let region = Partition::default().region(code.encoder());
    each_region(length, region, |at| {
        code.encoder().run_at(data, coded, at.clone());
        if code.systematic() {
            sums.iter_mut().zip(data).for_each(|(sum, block)| sum.add(&block[at.clone()]));
        }
        sums[first_coded..].iter_mut().zip(coded.iter()).for_each(|(sum, block)| sum.add(&block[at.clone()]));
    });
    sums.into_iter().map(Granules::finish).collect()
}

/// The checksums of one block's granules, fed region by region.
#[cfg(feature = "checksums")]
#[derive(Clone)]
struct Granules {
    bytes: usize,
    open: Crc64,
    /// Bytes that the open granule has.
    filled: usize,
    done: Vec<u64>,
}

#[cfg(feature = "checksums")]
impl Granules {
    fn new(bytes: usize, length: usize) -> Self {
        Self { bytes, open: Crc64::default(), filled: 0, done: Vec::with_capacity(length.div_ceil(bytes)) }
    }

    fn add(&mut self, mut piece: &[u8]) {
        while !piece.is_empty() {
            let (now, later) = piece.split_at(piece.len().min(self.bytes - self.filled));
            self.open.update(now);
            self.filled += now.len();
            if self.filled == self.bytes {
                self.close();
            }
            piece = later;
        }
    }

    fn close(&mut self) {
        self.done.push(std::mem::take(&mut self.open).value());
        self.filled = 0;
    }

    fn finish(mut self) -> Vec<u64> {
        if self.filled > 0 {
            self.close();
        }
        self.done
    }
}

fn each_region(length: usize, region: usize, mut body: impl FnMut(Range<usize>)) {
    let mut start = 0;
    while start < length {
        let end = length.min(start + region);
        body(start..end);
        start = end;
    }
}
