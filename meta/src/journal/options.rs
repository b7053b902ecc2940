//! What an engine is opened with, and what it says of itself.

use super::frame::VolumeId;
use crate::kv::{Index, KvError, MergeFn, Seq};
use plan::TargetId;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use volume::target::Target;

/// A target of the volume.
pub type Place = (TargetId, Arc<dyn Target>);

/// What an engine is opened with.
pub struct Options {
    /// The volume's id, not all zeroes; what does not carry it is left alone.
    pub volume: VolumeId,
    /// All targets of the volume that can be reached, the preferred ones first.
    pub targets: Vec<Place>,
    /// How many of them shall hold the journal: m+1.
    pub mirrors: usize,
    /// The index. One of another volume is emptied and made again.
    pub index: Box<dyn Index>,
    /// Makes values of operands.
    pub merge: MergeFn,
    /// Sizes and times.
    pub limits: Limits,
    /// Opens even if transactions that were durable are on no target any more, with what is there before them. For an operator who
    /// knows; without it such a volume is refused.
    pub accept_loss: bool,
}

/// Sizes and times of an engine.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// A segment ends about here.
    pub segment_bytes: u64,
    /// So much is written without anybody waiting.
    pub group_bytes: usize,
    /// Commits wait while so much is not written.
    pub pending_bytes: usize,
    /// What was committed is written after this time although nobody waits.
    pub delay: Duration,
    /// So much memory for changes that the index does not have yet; up to three times that at the worst.
    pub overlay_bytes: usize,
    /// A snapshot is made when the journal has grown by this, and by the size of the last snapshot.
    pub snapshot_bytes: u64,
    /// A mirror that takes longer counts as failed.
    pub deadline: Duration,
    /// A target that failed is tried again after this time, while mirrors are lacking; up to 64 times as long if it goes on failing.
    pub retry: Duration,
}

/// How an engine is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The targets that hold the journal now.
    pub mirrors: Vec<TargetId>,
    /// How many there should be.
    pub wanted: usize,
    /// How many hold everything: the journal and a snapshot to begin with.
    pub whole: usize,
    /// Whether fewer than wanted hold everything.
    pub degraded: bool,
    /// Targets that failed and did not come back, and how.
    pub failed: Vec<(TargetId, String)>,
    /// The last thing that went wrong.
    pub last_error: Option<String>,
    /// The same, if it was not mended since.
    pub trouble: Option<String>,
    /// What the journal has grown by since the last snapshot.
    pub journal_bytes: u64,
    /// The last transaction in the newest complete snapshot.
    pub snapshot: Seq,
    /// The size of that snapshot.
    pub snapshot_bytes: u64,
    /// The room that each mirror must keep free for the next snapshot and the journal until then.
    pub need_bytes: u64,
    /// The last transaction that was committed.
    pub committed: Seq,
    /// The last that is durable.
    pub durable: Seq,
}

impl Limits {
    /// For targets of which the smallest has so much room in all: on small ones the journal takes less.
    pub fn for_targets(total: u64) -> Self {
        let all = Self::default();
        let segment_bytes = (total / 64).clamp(1 << 20, all.segment_bytes);
        Self { segment_bytes, snapshot_bytes: 2 * segment_bytes, ..all }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            segment_bytes: 32 << 20,
            group_bytes: 1 << 20,
            pending_bytes: 32 << 20,
            delay: Duration::from_millis(500),
            overlay_bytes: 32 << 20,
            snapshot_bytes: 64 << 20,
            deadline: Duration::from_secs(15),
            retry: Duration::from_secs(5),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { volume, targets, mirrors, limits, accept_loss, .. } = self;
        let mut debug = f.debug_struct("Options");
        debug.field("volume", volume).field("targets", targets).field("mirrors", mirrors);
        debug.field("limits", limits).field("accept_loss", accept_loss).finish_non_exhaustive()
    }
}

/// Whether a target has no room, which is no failure of it.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// The error that a failed target makes.
pub(super) fn unavailable(id: TargetId, error: &io::Error) -> KvError {
    match is_full(error) {
        true => KvError::NoSpace,
        false => KvError::Unavailable(format!("target {}: {error}", id.0)),
    }
}
