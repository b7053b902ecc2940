//! Chunk sets: the k+m chunks that hold the blocks of the same stripes.
//!
//! A stripe is written to all its chunks at the same offset, its record; so where a stripe is, is one number.

mod headers;
mod master;
mod pages;
mod reader;
mod rebuild;
mod verify;
mod writer;

pub(crate) use headers::{Headers, Key};
pub use master::{Distributed, Master, NoMaster, Order};
pub use reader::{ReadReport, read, read_manifest};
pub use rebuild::{RebuildOrder, RebuildReport, rebuild};
pub use verify::{BlockState, Scanned, StripeReport, scan, verify_stripe};
pub use writer::{Appended, BufferPool, SetWriter, StripeBuffer};

use crate::format::{CHUNK_HEADER_BYTES, StripeHeader, VolumeId};
use crate::target::TargetFile;
use ec::Code;
use plan::{Geometry, TargetId};
use std::ops::Range;
use std::sync::Arc;

/// Where the chunks of a set are, and how its stripes are coded.
#[derive(Clone, Debug)]
pub struct SetLayout {
    /// The volume.
    pub volume: VolumeId,
    /// The chunk set.
    pub set: u64,
    /// The code of its stripes.
    pub code: Arc<dyn Code>,
    /// Where its chunks are, by position; None where there is none.
    pub places: Vec<Option<TargetId>>,
}

impl SetLayout {
    /// How its stripes are cut.
    pub fn geometry(&self) -> Geometry {
        geometry(&*self.code)
    }

    /// The file of a position.
    pub fn file(&self, position: usize) -> TargetFile {
        TargetFile::Chunk { set: self.set, position: position as u16 }
    }

    fn blocks(&self) -> usize {
        self.code.shape().blocks()
    }
}

/// No chunk is longer.
const LONGEST_CHUNK: u32 = 1 << 30;

/// Whether a record with a block of so many bytes can begin there.
fn can_begin(record: u32, block: usize) -> bool {
    let (begin, longest) = (record as usize, LONGEST_CHUNK as usize);
    let fits = || block <= longest && begin + StripeHeader::record_bytes(block) <= longest;
    begin >= CHUNK_HEADER_BYTES && begin.is_multiple_of(StripeHeader::alignment(block)) && fits()
}

/// How a code cuts stripes.
fn geometry(code: &dyn Code) -> Geometry {
    let shape = code.shape();
    Geometry { k: shape.k, m: shape.m, unit: code.unit() }
}

/// The bytes of a chunk that a record takes.
pub fn record_range(record: u32, block: u32) -> Range<u64> {
    let begin = u64::from(record);
    begin..begin + StripeHeader::record_bytes(block as usize) as u64
}
