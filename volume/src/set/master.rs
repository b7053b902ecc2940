//! Stripes coded by a Master, a store that holds one of their chunks: the client's request, and how
//! the Master carries it out with the same stripe writer as every other writer.
//!
//! The client decides where the stripe begins and everything else that its bytes depend on. So a
//! stripe may be coded twice without harm: by the Master and then by a client that received no
//! answer, or by a Master that stopped halfway. Both write the same bytes to the same place.

use super::{BufferPool, MAX_CHUNK_BYTES, RebuildOrder, RebuildReport, SetLayout, SetWriter, can_begin, geometry};
use crate::format::Timestamp;
use crate::steps::Cost;
use crate::targets::Targets;
use crate::{Error, Result};
use gf::checksum::crc64;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// A stripe for a Master to code and write.
#[derive(Clone, Copy, Debug)]
pub struct Order<'a> {
    /// Where its blocks go. Positions without a place are not written.
    pub layout: &'a SetLayout,
    /// When the set was created.
    pub created: Timestamp,
    /// Where its record begins.
    pub record: u32,
    /// Identifies it in the volume.
    pub sequence: u64,
    /// The user data, followed by the manifest.
    pub data: &'a [u8],
    /// The length of the manifest at the end of `data`, in bytes.
    pub manifest_bytes: usize,
    /// CRC-64/NVME of the data, computed where the data comes from.
    pub checksum: u64,
    /// How many positions beyond k to wait for before others count as late.
    pub spare: usize,
}

/// The result of a Master's work.
#[derive(Debug, Default)]
pub struct Distributed {
    /// Requested positions that were not written, and why.
    pub failed: Vec<(usize, io::Error)>,
    /// The cost of the stripe on the Master.
    pub cost: Cost,
}

/// Why a Master reported no work done.
#[derive(Debug)]
pub enum NoMaster {
    /// It does not answer; it may have written any of the blocks.
    Silent(io::Error),
    /// It declined, and wrote nothing.
    Unwilling(String),
}

/// A process that codes stripes for others and sends their blocks to their targets, and that
/// rebuilds lost blocks.
pub trait Master: Send + Sync {
    /// Lets the Master code a stripe and write its blocks. `addresses` holds the addresses of the
    /// positions to write. If it does not answer within `timeout`, it counts as silent.
    ///
    /// # Errors
    /// If the Master did not do it.
    fn distribute(
        &self,
        order: &Order<'_>,
        addresses: &[Option<String>],
        timeout: Duration,
    ) -> std::result::Result<Distributed, NoMaster>;

    /// Lets the Master rebuild blocks of stripes from those at the addresses `sources` (by
    /// position), and write them to the new chunks at the addresses `destinations`, in the order of
    /// the wanted blocks.
    ///
    /// # Errors
    /// If the Master did not do it, for any reason; it may have written any of the blocks.
    fn rebuild(
        &self,
        order: &RebuildOrder<'_>,
        sources: &[Option<String>],
        destinations: &[String],
    ) -> std::result::Result<RebuildReport, NoMaster>;
}

impl Order<'_> {
    /// Carries out the order as Master: codes the stripe and writes it to the targets of its
    /// layout. Returns the positions that failed, and the cost.
    ///
    /// # Errors
    /// If the data differs from what was sent, or if the order cannot be carried out. Nothing was
    /// written then.
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
