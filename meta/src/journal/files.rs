//! What an engine knows of its targets and of the files on them.

use super::options::{JournalLimits, MirrorTarget};
use super::retries::Retries;
use plan::{TargetId, TxId};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// The state of the targets and their files.
#[derive(Default)]
pub(super) struct Files {
    /// The targets that may be mirrors, in order of preference.
    pub places: Vec<MirrorTarget>,
    /// Targets of the volume that do not vote. They are claimed, and become no mirrors.
    pub bystanders: Vec<MirrorTarget>,
    /// A mirror that is not in `places` stays until this number of places have everything.
    pub expected: usize,
    /// How many times the journal thread was asked to check the mirrors.
    pub asked: u64,
    pub mirrors: Vec<MirrorTarget>,
    /// The mirrors that have everything.
    pub whole: Vec<MirrorTarget>,
    /// The mirrors that get the state from others at this moment.
    pub copying: BTreeSet<TargetId>,
    /// The targets to which a snapshot is being written.
    pub snapshotting: BTreeSet<TargetId>,
    /// Grows when the mirrors change.
    pub generation: u64,
    /// The first transaction of each segment, in order.
    pub segments: Vec<TxId>,
    /// The complete snapshot on each target.
    pub complete: BTreeMap<TargetId, TxId>,
    pub failed: Vec<Failed>,
    /// Targets that somebody claims at this moment, who is gone afterwards. They become no mirrors
    /// meanwhile.
    pub claiming: Vec<(TargetId, Weak<()>)>,
    /// When the failed targets are retried.
    pub retries: Retries,
    /// Targets that failed outside the journal thread, which has yet to drop them. Each with the
    /// thread on which it failed.
    pub suspects: Vec<(MirrorTarget, io::Error, Weak<()>)>,
    /// Bytes written to the journal since the engine was opened.
    pub written: u64,
    /// The value of `written` when the last snapshot began.
    pub written_at_snapshot: u64,
    /// The value of `written` at which the next snapshot is due.
    pub due: u64,
    pub snapshot: TxId,
    /// Older snapshots were removed from the targets, and the segments that they need.
    pub purged: TxId,
    pub snapshot_bytes: u64,
    /// Bytes written of the snapshot in progress.
    pub underway: u64,
    /// When the last snapshot began, how long it took, and whether it succeeded.
    pub last_try: Option<(Instant, Duration, bool)>,
    pub last_error: Option<String>,
}

/// A target that failed, and why.
#[derive(Clone)]
pub(super) struct Failed {
    pub place: MirrorTarget,
    pub why: String,
    /// It failed only for lack of space: what it has is valid, and can be removed from it.
    pub full: bool,
}

/// Whether two places are the same. A target that was opened again may be a different one.
pub(super) fn same(one: &MirrorTarget, other: &MirrorTarget) -> bool {
    one.0 == other.0 && Arc::ptr_eq(&one.1, &other.1)
}

impl Files {
    /// Whether a target may be a mirror.
    pub fn has_place(&self, place: &MirrorTarget) -> bool {
        self.places.iter().any(|other| same(other, place))
    }

    /// Whether a target has failed.
    pub fn has_failed(&self, place: &MirrorTarget) -> bool {
        self.failed.iter().any(|failed| same(&failed.place, place))
    }

    /// The targets that can become mirrors.
    pub fn spares(&self) -> impl Iterator<Item = &MirrorTarget> {
        let is_mirror = |place: &MirrorTarget| self.mirrors.iter().any(|mirror| mirror.0 == place.0);
        self.places.iter().filter(move |place| !is_mirror(place) && !self.has_failed(place))
    }

    /// For who claims a target: keeps it from becoming a mirror until the result is dropped. `None`
    /// if it is one. If it lost what it had, a claim would make it take what follows.
    pub fn reserve(&mut self, place: &MirrorTarget) -> Option<Arc<()>> {
        if self.mirrors.iter().any(|mirror| mirror.0 == place.0) {
            return None;
        }
        let token = Arc::new(());
        self.claiming.retain(|(_, token)| token.strong_count() > 0);
        self.claiming.push((place.0, Arc::downgrade(&token)));
        Some(token)
    }

    /// Whether somebody claims a target at this moment.
    pub fn is_reserved(&self, id: TargetId) -> bool {
        self.claiming.iter().any(|(other, token)| *other == id && token.strong_count() > 0)
    }

    /// How many bytes the journal has grown since the last snapshot.
    pub fn grown(&self) -> u64 {
        self.written - self.written_at_snapshot
    }

    /// The space, in bytes, that each mirror needs for the next snapshot, and for the journal until
    /// that is complete. A change makes the snapshot grow by no more than it makes the journal
    /// grow.
    pub fn need(&self, limits: &JournalLimits) -> u64 {
        let snapshot = self.snapshot_bytes + self.grown();
        snapshot + snapshot / 8 + 3 * limits.segment_bytes
    }

    /// How many mirrors are among the places, and how many of those have everything.
    pub fn staying(&self) -> (usize, usize) {
        let staying = |all: &[MirrorTarget]| all.iter().filter(|place| self.has_place(place)).count();
        (staying(&self.mirrors), staying(&self.whole))
    }
}
