//! What a Master is asked for, and what it answers. A Master is a store that codes stripes for
//! others.

use super::layout::SetLayout;
use crate::format::Timestamp;
use crate::steps::Cost;
use crate::target::TargetFile;
use plan::{Position, RecordOffset, StripeSeq, TargetId};
use std::io;
use std::time::Duration;

/// A stripe for a Master to code and write.
#[derive(Clone, Copy, Debug)]
pub struct Order<'a> {
    /// Where its blocks go. Positions without a place are not written.
    pub layout: &'a SetLayout,
    /// When the set was created.
    pub created: Timestamp,
    /// Where its record begins.
    pub record: RecordOffset,
    /// Identifies it in the volume.
    pub sequence: StripeSeq,
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
    pub failed: Vec<(Position, io::Error)>,
    /// The boot numbers of the machines that took the other blocks, as far as the Master knows; see
    /// [`Master::wrote`].
    pub boots: Vec<(Position, u64)>,
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

    /// Notes that another process wrote to a file of this one's target. `boot` is the number of the
    /// boot of the target's machine at that time. If the machine is started again before a sync,
    /// the sync fails.
    ///
    /// # Errors
    /// If it was started again after an earlier write to that file that was not synced.
    fn wrote(&self, file: TargetFile, boot: u64) -> io::Result<()>;

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

/// The result of a rebuild.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RebuildReport {
    /// Bytes of blocks that were rebuilt.
    pub bytes: u64,
    /// How many of these bytes the processes of targets rebuilt.
    pub delegated: u64,
    /// Blocks that were checked against a survivor they were not computed from.
    pub witnessed: u64,
    /// Blocks without such a survivor.
    pub unwitnessed: u64,
}

impl RebuildReport {
    pub(super) fn add(&mut self, more: Self) {
        self.bytes += more.bytes;
        self.delegated += more.delegated;
        self.witnessed += more.witnessed;
        self.unwitnessed += more.unwitnessed;
    }
}

/// The position of a block and its destination.
pub(super) type Wanted = (Position, TargetId);

/// Stripes of a set with blocks to rebuild.
#[derive(Clone, Copy, Debug)]
pub struct RebuildOrder<'a> {
    /// Where the existing blocks are.
    pub layout: &'a SetLayout,
    /// The stripes, by record and block length.
    pub stripes: &'a [(RecordOffset, u32)],
    /// The positions to rebuild, and the targets that hold their new chunks.
    pub wanted: &'a [Wanted],
}
