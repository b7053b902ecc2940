//! A stripe that was coded, and the headers that go with its blocks.

use super::buffers::StripeBuffer;
use super::layout::SetLayout;
use super::pages::Pages;
use crate::format::{ChunkHeader, RECORD_ALIGNMENT, Timestamp};
use crate::target::{Durable, Target, TargetFile};
use plan::{Position, RecordOffset};
use std::io::{self, IoSlice};
use std::time::Duration;

/// A stripe that is ready to be written.
pub(super) struct Encoded {
    pub buffer: StripeBuffer,
    pub block: usize,
    /// Per position, the header of the chunk (with the first stripe only) and that of the record.
    pub headers: Pages,
    pub header_bytes: usize,
    pub first: bool,
    /// How long coding took.
    pub parity: Duration,
}

impl Encoded {
    fn block(&self, position: Position, first_coded: usize) -> &[u8] {
        let at = position.index();
        match at.checked_sub(first_coded) {
            Some(coded) => &self.buffer.coded[coded * self.block..(coded + 1) * self.block],
            None => &self.buffer.data[at * self.block..(at + 1) * self.block],
        }
    }

    /// Writes the record of a position, with the chunk's header if the record is the first.
    pub fn write(
        &self,
        position: Position,
        first_coded: usize,
        target: &dyn Target,
        file: TargetFile,
        record: RecordOffset,
    ) -> io::Result<Duration> {
        const ZEROES: [u8; RECORD_ALIGNMENT] = [0; RECORD_ALIGNMENT];
        let block = self.block(position, first_coded);
        let padding = &ZEROES[..block.len().next_multiple_of(RECORD_ALIGNMENT) - block.len()];
        let at = position.index() * self.header_bytes;
        let header = &self.headers[at..at + self.header_bytes];
        let offset = if self.first { 0 } else { u64::from(record.0) };
        target.write(file, offset, &[header, block, padding].map(IoSlice::new), Durable::Later)
    }
}

/// The headers of the chunks of a set, by position.
pub(super) fn chunk_headers(layout: &SetLayout, created: Timestamp) -> Vec<Vec<u8>> {
    let shape = layout.code.shape();
    let header = |position: usize| ChunkHeader {
        volume: layout.volume,
        set: layout.set,
        position: Position::at(position),
        shape: (shape.k as u16, shape.m as u16),
        code: layout.code.spec().to_string(),
        unit: layout.code.unit() as u32,
        created,
    };
    (0..shape.blocks()).map(|position| header(position).encode()).collect()
}
