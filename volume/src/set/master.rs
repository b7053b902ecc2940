//! Stripes coded by a Master, a store that holds one of their chunks: the client's request, and how
//! the Master carries it out with the same stripe writer as every other writer.
//!
//! The client decides where the stripe begins and everything else that its bytes depend on. So a
//! stripe may be coded twice without harm: by the Master and then by a client that received no
//! answer, or by a Master that stopped halfway. Both write the same bytes to the same place.

use super::buffers::BufferPool;
use super::layout::{MAX_CHUNK_BYTES, can_begin, geometry};
use super::orders::Order;
use super::writer::SetWriter;
use crate::steps::Cost;
use crate::targets::Targets;
use crate::{Error, Result};
use gf::checksum::crc64;
use plan::Position;
use std::sync::Arc;

impl Order<'_> {
    /// Carries out the order as Master: codes the stripe and writes it to the targets of its
    /// layout. Returns the positions that failed, and the cost.
    ///
    /// # Errors
    /// If the data differs from what was sent, or if the order cannot be carried out. Nothing was
    /// written then.
    pub fn carry_out(&self, targets: &Arc<Targets>, pool: &Arc<BufferPool>) -> Result<(Vec<Position>, Cost)> {
        let bad = |what: String| Err(Error::Invalid(format!("a stripe of chunk set {}: {what}", self.layout.set)));
        let (code, length) = (&*self.layout.code, self.data.len());
        if self.layout.places.len() != code.shape().blocks() {
            return bad(format!("{} places for {} blocks", self.layout.places.len(), code.shape().blocks()));
        }
        if length > pool.capacity() || self.manifest_bytes > length {
            return bad(format!("{length} bytes, {} of them a manifest", self.manifest_bytes));
        }
        let block = geometry(code).block_bytes(length);
        if !can_begin(self.record, block) {
            return bad(format!("no record can begin at {}", self.record));
        }
        if crc64(self.data) != self.checksum {
            return bad("its data changed on the way".into());
        }
        let (layout, spare) = (self.layout.clone(), self.spare.min(code.shape().m));
        let writer = SetWriter::resume(targets.clone(), pool.clone(), layout, MAX_CHUNK_BYTES, spare, self.record)
            .created(self.created);
        let (data, manifest) = self.data.split_at(length - self.manifest_bytes);
        let mut buffer = pool.take();
        buffer.extend_from_slice(data);
        match writer.append(buffer, self.sequence, manifest) {
            Ok(done) => Ok((done.missing, done.cost)),
            // The client knows how many blocks are enough.
            Err((Error::TooDegraded { .. } | Error::NoSpace(_), buffer)) => {
                pool.give(buffer);
                let wanted = |position: &Position| self.layout.places[position.index()].is_some();
                Ok((writer.missing().into_iter().filter(wanted).collect(), Cost::default()))
            }
            Err((error, buffer)) => {
                pool.give(buffer);
                Err(error)
            }
        }
    }
}
