//! The options and the status of an engine.

use super::frame::{EpochId, VolumeId};
use crate::kv::{Index, KvError, MergeFn};
use plan::{TargetId, TxId};
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use volume::target::{Claim, Holder, Refusal, Target};

/// A target of the volume.
pub type MirrorTarget = (TargetId, Arc<dyn Target>);

/// The options to open an engine with.
pub struct Options {
    /// The volume's id, not all zeroes. Files that do not carry it are left alone.
    pub volume: VolumeId,
    /// All reachable voters of the volume, in order of preference.
    pub targets: Vec<MirrorTarget>,
    /// All voters of the volume, reachable or not.
    pub voters: Vec<TargetId>,
    /// How many targets may be lost: m. A transaction is durable when m+1 of them have it. The
    /// journal is on m+2 targets if there are as many, so that a slow one delays no commit.
    pub losses: usize,
    /// The generation of the label that lists the voters.
    pub generation: u64,
    /// The process that opens the volume.
    pub holder: Holder,
    /// How long a target waits for this holder before it grants a claim to another one. None if the
    /// targets notice the end of a holder themselves, as directories do.
    pub lease: Option<Duration>,
    /// What the volume is opened for.
    pub access: Access,
    /// The index. An index of another volume is cleared and rebuilt.
    pub index: Box<dyn Index>,
    /// Applies the operands of merges.
    pub merge: MergeFn,
    /// Sizes and times.
    pub limits: JournalLimits,
    /// Opens the volume however few targets there are, and even if no target has durable
    /// transactions any more: then with the state before those. This is for an operator who accepts
    /// the loss; otherwise such a volume is refused.
    pub accept_loss: bool,
    /// The directory of the local WAL, if there is to be one
    /// ([`Journaled::keep_local_wal`](super::Journaled::keep_local_wal)). An opening that fails
    /// leaves files in it: the next one knows that no other machine opened the volume.
    pub local_wal: Option<PathBuf>,
}

/// What a volume is opened for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Writing: needs N-m of its N targets, and m+1.
    #[default]
    Write,
    /// Reading: needs N-m targets, whose changes the caller keeps in memory.
    Read,
    /// As `Read`, by a caller who needs the contents only and not the number of copies.
    ReadFiles,
    /// As `ReadFiles`, but with the transactions that can be found. Newer ones may be missing.
    PossiblyOld,
}

/// Sizes and times of an engine.
#[derive(Clone, Copy, Debug)]
pub struct JournalLimits {
    /// The approximate size of a segment, in bytes.
    pub segment_bytes: u64,
    /// This much is written at once, in bytes, even when no caller waits.
    pub group_bytes: usize,
    /// Commits wait while this much is not written, in bytes.
    pub pending_bytes: usize,
    /// A committed transaction is written after this time even when no caller waits.
    pub delay: Duration,
    /// Memory for changes that the index does not have yet, in bytes; up to three times that in the
    /// worst case.
    pub overlay_bytes: usize,
    /// A snapshot is made when the journal has grown by this, in bytes, and by the size of the last
    /// snapshot.
    pub snapshot_bytes: u64,
    /// A mirror that takes longer counts as failed.
    pub deadline: Duration,
    /// How long to wait before a failed target is retried while mirrors are missing; up to 64 times
    /// as long if it keeps failing.
    pub retry: Duration,
}

/// What an engine knows of its claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// No other opening can have taken the volume over.
    Fresh,
    /// The lease was not renewed in time: another opening may have taken over.
    Late,
    /// Another opening has taken over.
    Fenced,
    /// The engine has failed, and its lease has run out: it never goes on.
    Failed,
}

/// The status of an engine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The targets that hold the journal now.
    pub mirrors: Vec<TargetId>,
    /// How many there must be: m+1. There is one more where there are as many targets.
    pub wanted: usize,
    /// How many hold everything: the journal and a snapshot to start from.
    pub whole: usize,
    /// The number of this opening.
    pub epoch: u64,
    /// Durable transactions may have been lost when the volume was opened, which was accepted.
    pub lossy: bool,
    /// Whether fewer than wanted hold everything.
    pub degraded: bool,
    /// Targets that failed and did not come back, and why.
    pub failed: Vec<(TargetId, String)>,
    /// The last error.
    pub last_error: Option<String>,
    /// The last error, unless it has been resolved since.
    pub trouble: Option<String>,
    /// How many bytes the journal has grown since the last snapshot.
    pub journal_bytes: u64,
    /// The last transaction in the newest complete snapshot.
    pub snapshot: TxId,
    /// The size of that snapshot, in bytes.
    pub snapshot_bytes: u64,
    /// The space, in bytes, that each mirror must keep free for the next snapshot and the journal
    /// until then.
    pub need_bytes: u64,
    /// The last committed transaction.
    pub committed: TxId,
    /// The last durable transaction.
    pub durable: TxId,
}

impl JournalLimits {
    /// Limits for targets of which the smallest has a capacity of `total` bytes: on small targets
    /// the journal takes less space.
    pub fn for_targets(total: u64) -> Self {
        let all = Self::default();
        let segment_bytes = (total / 64).clamp(1 << 20, all.segment_bytes);
        Self { segment_bytes, snapshot_bytes: 2 * segment_bytes, ..all }
    }
}

impl Default for JournalLimits {
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
        let Self { volume, targets, losses, access, limits, accept_loss, .. } = self;
        let mut debug = f.debug_struct("Options");
        debug.field("volume", volume).field("targets", targets).field("losses", losses).field("access", access);
        debug.field("limits", limits).field("accept_loss", accept_loss).finish_non_exhaustive()
    }
}

/// The claims that an opening has.
pub(super) struct Granted {
    pub epoch: EpochId,
    /// The claim that is renewed, and that further targets are asked for.
    pub claim: Claim,
    /// For each place, if it granted the claim: the epoch that it had before, if any.
    pub before: Vec<Option<Option<EpochId>>>,
    /// Places that are new or have lost what they had: they have no claim, among others that have
    /// one, or one with a mark. They do not count.
    pub blank: Vec<usize>,
    /// Why the others did not, and which voters are not among the places.
    pub missing: Vec<(TargetId, String)>,
}

/// Whether a target has no space, which does not count as a failure.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// The error for a failed target.
pub(super) fn unavailable(id: TargetId, error: &io::Error) -> KvError {
    if let Some(fenced) = fenced(error) {
        return fenced;
    }
    match is_full(error) {
        true => KvError::NoSpace,
        false => KvError::Unavailable(format!("target {}: {error}", id.0)),
    }
}

/// What a failed operation says about the claim, if it is about the claim.
pub(super) fn fenced(error: &io::Error) -> Option<KvError> {
    Refusal::fenced(error).map(|_| KvError::Fenced(error.to_string()))
}

/// The error after a panic in a caller's thread.
pub(in crate::journal) fn defect() -> KvError {
    KvError::Unavailable("a defect in a change of the metadata, please report it".into())
}

/// The error of a closed engine.
pub(in crate::journal) fn closed() -> KvError {
    KvError::Unavailable("the metadata is closed".into())
}
