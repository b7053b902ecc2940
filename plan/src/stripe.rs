//! The geometry of stripes: from bytes of user data to blocks and back.

use crate::{RecordOffset, SetId};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Where user data is in a stripe that is on the targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Span {
    /// The chunk set.
    pub set: SetId,
    /// Where the stripe's record begins, in every chunk of the set.
    pub record: RecordOffset,
    /// The length of the stripe's blocks.
    pub block: u32,
    /// The first byte of this data in the stripe's data.
    pub start: u32,
}

impl Span {
    /// The stripe that it is in: two spans of one stripe have equal ones.
    pub fn stripe(&self) -> (SetId, RecordOffset) {
        (self.set, self.record)
    }

    /// The span of what begins `bytes` later.
    #[must_use]
    pub fn skip(self, bytes: u64) -> Self {
        Self { start: self.start + bytes as u32, ..self }
    }
}

/// Blocks from this length on have whole pages: below, that would cost too much space.
const LONG_BLOCK: usize = 32 << 10;
const PAGE: usize = 4096;

/// How a code cuts stripes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Data blocks.
    pub k: usize,
    /// Parity blocks.
    pub m: usize,
    /// Block lengths are multiples of it.
    pub unit: usize,
}

/// A part of one data block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The data block, below k.
    pub block: usize,
    /// The bytes of it.
    pub range: Range<usize>,
    /// Where they are in what was asked for.
    pub at: usize,
}

impl Geometry {
    /// Block length of a stripe with `data` bytes: as short as the data (invariant 3), at least one
    /// unit. Long blocks have whole pages, so that no page of a file lies in two blocks, or in two
    /// granules.
    pub fn block_bytes(&self, data: usize) -> usize {
        let short = data.div_ceil(self.k).next_multiple_of(self.unit).max(self.unit);
        if short >= LONG_BLOCK && PAGE.is_multiple_of(self.unit) { short.next_multiple_of(PAGE) } else { short }
    }

    /// The parts of data blocks of `block` bytes that hold the bytes `range` of a stripe, in order.
    pub fn parts(&self, block: usize, range: Range<usize>) -> Vec<Part> {
        let mut parts = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let (number, from) = (at / block, at % block);
            let until = block.min(from + range.end - at);
            parts.push(Part { block: number, range: from..until, at: at - range.start });
            at += until - from;
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parts_cover_the_range_in_order(
            k in 1usize..20, unit in 1usize..70, data in 1usize..5000, cut in any::<(u16, u16)>()
        ) {
            let geometry = Geometry { k, m: 2, unit };
            let block = geometry.block_bytes(data);
            prop_assert!(block.is_multiple_of(unit) && block * k >= data);
            prop_assert!(block == unit || (block - unit) * k < data);
            let (a, b) = (usize::from(cut.0) % (data + 1), usize::from(cut.1) % (data + 1));
            let range = a.min(b)..a.max(b);
            let mut covered = range.start;
            for part in geometry.parts(block, range.clone()) {
                prop_assert!(part.block < k && part.range.end <= block && !part.range.is_empty());
                prop_assert_eq!(part.block * block + part.range.start, covered);
                prop_assert_eq!(part.at, covered - range.start);
                covered += part.range.len();
            }
            prop_assert_eq!(covered, range.end);
        }
    }
}
