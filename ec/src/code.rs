//! The port that every erasure code stands behind.
//!
//! A stripe has `shape.blocks()` stored blocks of equal length, a multiple of `unit()`. In a
//! systematic code the positions `0..k` hold the data itself and `k..k+m` the parity; in a
//! non-systematic one every stored block is coded.

use crate::spec::{Shape, Spec};
use crate::transform::Transform;
use std::fmt;
use std::sync::Arc;

/// A linear erasure code of one shape.
pub trait Code: Send + Sync + fmt::Debug {
    /// The canonical spec; parsing it gives this code again.
    fn spec(&self) -> &Spec;

    /// Data and parity blocks of a stripe.
    fn shape(&self) -> Shape;

    /// Whether the data blocks are stored as they are.
    fn systematic(&self) -> bool {
        true
    }

    /// Block lengths are multiples of this many bytes.
    fn unit(&self) -> usize;

    /// Any this many lost blocks can be repaired (m for an MDS code).
    fn tolerates(&self) -> usize {
        self.shape().m
    }

    /// The stored positions that `encoder` computes: the parity of a systematic code, else all.
    fn coded(&self) -> std::ops::Range<usize> {
        let Shape { k, .. } = self.shape();
        if self.systematic() { k..self.shape().blocks() } else { 0..self.shape().blocks() }
    }

    /// The map from the k data blocks to the coded blocks.
    fn encoder(&self) -> &Transform;

    /// How the stored blocks `lost` are rebuilt from the stored blocks `have`, and from which of
    /// them. Only `lost` blocks are rebuilt; blocks in neither list count as unavailable. Fewer
    /// blocks are read where the code allows.
    ///
    /// # Errors
    /// When some block of `lost` does not follow from `have`.
    ///
    /// # Panics
    /// When a block is out of range or named twice: a programmer error.
    fn repair(&self, lost: &[usize], have: &[usize]) -> Result<Arc<Repair>, Unrecoverable>;

    /// How the data blocks `data` (numbers below k) are made from the stored blocks `have`:
    /// `repair` for a systematic code, which copies nothing that is stored as it is, so `data` and
    /// `have` may not overlap there.
    ///
    /// # Errors
    /// As `repair`.
    fn read(&self, data: &[usize], have: &[usize]) -> Result<Arc<Repair>, Unrecoverable>;

    /// `coded += column j of the code * block`: one step of Partition Encoding (ECFS, equation 3).
    /// Summed over all data blocks in any order, into blocks that began as zeroes, it is `encode`;
    /// with `block` the XOR of a data block's old and new content it updates the parity.
    ///
    /// # Panics
    /// When `j` is not below k, or the blocks differ in length.
    fn accumulate(&self, j: usize, block: &[u8], coded: &mut [&mut [u8]]);

    /// Codes the k data blocks into the coded blocks.
    ///
    /// # Panics
    /// When the blocks are not the code's or differ in length.
    fn encode(&self, data: &[&[u8]], coded: &mut [&mut [u8]]) {
        self.encoder().run(data, coded);
    }

    /// The XOR program that the encoder runs, for the codes that have one.
    fn program(&self) -> Option<&crate::xor::Program> {
        None
    }
}

/// One block that a repair reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// Its position in the stripe.
    pub block: usize,
    /// How many of the block's `of` equal parts the repair uses.
    pub parts: usize,
    /// The parts that a block has: 1 for byte codes, the bit planes of a bit-matrix code.
    pub of: usize,
}

/// A repair that is ready to run, and what it will read.
#[derive(Debug)]
pub struct Repair {
    reads: Vec<Read>,
    makes: Vec<usize>,
    transform: Transform,
}

impl Repair {
    pub(crate) fn new(reads: Vec<Read>, makes: Vec<usize>, transform: Transform) -> Self {
        Self { reads, makes, transform }
    }

    /// The blocks it reads, in the order that `run` takes them.
    pub fn reads(&self) -> &[Read] {
        &self.reads
    }

    /// The blocks it makes, in the order that `run` gives them: as they were asked for.
    pub fn makes(&self) -> &[usize] {
        &self.makes
    }

    /// The map from the blocks read to the blocks made.
    pub fn transform(&self) -> &Transform {
        &self.transform
    }

    /// Makes the blocks.
    pub fn run(&self, reads: &[&[u8]], makes: &mut [&mut [u8]]) {
        self.transform.run(reads, makes);
    }
}

/// A pattern that the code cannot repair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unrecoverable {
    /// The blocks that do not follow from what is there.
    pub blocks: Vec<usize>,
    /// How many blocks are there.
    pub have: usize,
    /// How many blocks suffice wherever the losses are (k; an LRC may need fewer, or more).
    pub need: usize,
}

impl fmt::Display for Unrecoverable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.have {
            1 => write!(f, "1 block is there")?,
            have => write!(f, "{have} blocks are there")?,
        }
        if self.have < self.need {
            write!(f, " and {} are needed", self.need)
        } else {
            write!(f, ", but this code cannot make blocks {:?} from them", self.blocks)
        }
    }
}

impl std::error::Error for Unrecoverable {}
