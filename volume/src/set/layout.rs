//! Where the chunks of a set are, and where records may begin in them.

use crate::format::{CHUNK_HEADER_BYTES, StripeHeader, VolumeId};
use crate::target::TargetFile;
use ec::Code;
use plan::stripe::Part;
use plan::{Geometry, Position, RecordOffset, SetId, Span, TargetId};
use std::ops::Range;
use std::sync::Arc;

/// The location of the chunks of a set, and the code of its stripes.
#[derive(Clone, Debug)]
pub struct SetLayout {
    /// The volume.
    pub volume: VolumeId,
    /// The chunk set.
    pub set: SetId,
    /// The code of its stripes.
    pub code: Arc<dyn Code>,
    /// The target of each chunk, by position; None for a position without a chunk.
    pub places: Vec<Option<TargetId>>,
}

impl SetLayout {
    /// The geometry of its stripes.
    pub fn geometry(&self) -> Geometry {
        geometry(&*self.code)
    }

    /// The chunk file of a position.
    pub fn file(&self, position: Position) -> TargetFile {
        TargetFile::Chunk { set: self.set, position }
    }

    /// The parts of data blocks that `length` bytes from a span on are in; None if they end behind
    /// the stripe.
    pub(super) fn parts(&self, span: Span, length: usize) -> Option<Vec<Part>> {
        let (begin, block) = (span.start as usize, span.block as usize);
        let fits = begin + length <= block * self.code.shape().k && self.places.len() == self.blocks();
        fits.then(|| self.geometry().parts(block, begin..begin + length))
    }

    pub(super) fn blocks(&self) -> usize {
        self.code.shape().blocks()
    }
}

/// The maximum length of a chunk, in bytes.
pub(super) const MAX_CHUNK_BYTES: u32 = 1 << 30;

/// Whether a record whose block has `block` bytes can begin at `record`.
pub(super) fn can_begin(record: RecordOffset, block: usize) -> bool {
    let (begin, longest) = (record.0 as usize, MAX_CHUNK_BYTES as usize);
    let fits = || block <= longest && begin + StripeHeader::record_bytes(block) <= longest;
    begin >= CHUNK_HEADER_BYTES && begin.is_multiple_of(StripeHeader::alignment(block)) && fits()
}

/// The stripe geometry of a code.
pub(super) fn geometry(code: &dyn Code) -> Geometry {
    let shape = code.shape();
    Geometry { k: shape.k, m: shape.m, unit: code.unit() }
}

/// The byte range of a record in its chunk.
pub fn record_range(record: RecordOffset, block: u32) -> Range<u64> {
    let begin = u64::from(record.0);
    begin..begin + StripeHeader::record_bytes(block as usize) as u64
}
