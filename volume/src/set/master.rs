//! A stripe that is coded by its Master, a store that has one of its chunks: what the client asks of it, and what the Master does then, with the stripe
//! writer that everybody uses.
//!
//! The client says where the stripe begins and everything else that its bytes depend on. So a stripe that is coded twice, by the Master and then by a client that
//! heard nothing of it, or by a Master that was stopped in between, has the same bytes at the same place: that does no harm.

use super::{BufferPool, LONGEST_CHUNK, RebuildOrder, RebuildReport, SetLayout, SetWriter, can_begin, geometry};
use crate::format::Timestamp;
use crate::steps::Cost;
use crate::targets::Targets;
use crate::{Error, Result};
use gf::checksum::crc64;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// A stripe that a Master is to code and to write.
#[derive(Clone, Copy, Debug)]
pub struct Order<'a> {
    /// Where its blocks go; positions without a place are not written.
    pub layout: &'a SetLayout,
    /// When the set was begun.
    pub created: Timestamp,
    /// Where its record begins.
    pub record: u32,
    /// Identifies it in the volume.
    pub sequence: u64,
    /// User data, and the manifest behind it.
    pub data: &'a [u8],
    /// How much of that is the manifest.
    pub manifest_bytes: usize,
    /// CRC-64/NVME of the data, as it was where it comes from.
    pub checksum: u64,
    /// How many positions beyond k are waited for before others count as late.
    pub spare: usize,
}

/// What a Master did.
#[derive(Debug, Default)]
pub struct Distributed {
    /// Positions that it was asked to write and did not, and why.
    pub failed: Vec<(usize, io::Error)>,
    /// What it took there.
    pub cost: Cost,
}

/// Why a Master did nothing that is known of.
#[derive(Debug)]
pub enum NoMaster {
    /// It does not answer; it may have written any of the blocks.
    Silent(io::Error),
    /// It does not want to, and wrote nothing.
    Unwilling(String),
}

/// A process that codes stripes for others and sends their blocks to where they belong, and makes lost ones again.
pub trait Master: Send + Sync {
    /// Has it code a stripe and write its blocks. `addresses` are those of the positions that are to be written. After `patience` without an answer it is silent.
    ///
    /// # Errors
    /// When it does not.
    fn distribute(
        &self,
        order: &Order<'_>,
        addresses: &[Option<String>],
        patience: Duration,
    ) -> std::result::Result<Distributed, NoMaster>;

    /// Has it make blocks of stripes again, of those at the addresses `sources` by position, and write them to the new chunks at the addresses `destinations`,
    /// in the order of what is wanted.
    ///
    /// # Errors
    /// When it does not, for whatever reason; it may have written any of the blocks.
    fn rebuild(
        &self,
        order: &RebuildOrder<'_>,
        sources: &[Option<String>],
        destinations: &[String],
    ) -> std::result::Result<RebuildReport, NoMaster>;
}

impl Order<'_> {
    /// What a Master does: codes the stripe and writes it to the targets of its layout. Returns the positions that failed, and what it took.
    ///
    /// # Errors
    /// When the data is not what was sent, or the order cannot be carried out; nothing was written then.
    pub fn carry_out(&self, targets: &Arc<Targets>, pool: &Arc<BufferPool>) -> Result<(Vec<usize>, Cost)> {
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
        let writer = SetWriter::resume(targets.clone(), pool.clone(), layout, LONGEST_CHUNK, spare, self.record)
            .created(self.created);
        let (data, manifest) = self.data.split_at(length - self.manifest_bytes);
        let mut buffer = pool.take();
        buffer.extend_from_slice(data);
        match writer.append(buffer, self.sequence, manifest) {
            Ok(done) => Ok((done.missing, done.cost)),
            // Whoever asked knows how many are enough.
            Err((Error::TooDegraded { .. } | Error::NoSpace(_), buffer)) => {
                pool.give(buffer);
                let wanted = |position: &usize| self.layout.places[*position].is_some();
                Ok((writer.missing().into_iter().filter(wanted).collect(), Cost::default()))
            }
            Err((error, buffer)) => {
                pool.give(buffer);
                Err(error)
            }
        }
    }
}
