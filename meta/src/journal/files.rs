//! What an engine knows of its targets, and which file is on which.

use super::options::{Limits, Place};
use super::retry::Retries;
use crate::kv::Seq;
use plan::TargetId;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// What is where.
#[derive(Default)]
pub(super) struct Files {
    /// The targets that may be mirrors, the preferred ones first.
    pub places: Vec<Place>,
    /// A mirror that is not one of them stays until so many of them have everything.
    pub expected: usize,
    /// How often the journal thread was asked to look at the mirrors.
    pub asked: u64,
    pub mirrors: Vec<Place>,
    /// Goes up when the mirrors change.
    pub generation: u64,
    /// The first transaction of every segment, in order.
    pub segments: Vec<Seq>,
    /// The complete snapshot that a target has.
    pub complete: BTreeMap<TargetId, Seq>,
    pub failed: Vec<Failed>,
    /// When those are tried again.
    pub retries: Retries,
    /// Failed outside of the journal thread, which has yet to drop them, and the thread on which each did.
    pub suspects: Vec<(Place, io::Error, Weak<()>)>,
    /// What was ever written to the journal since the opening.
    pub written: u64,
    /// `written` when the last snapshot began.
    pub written_at_snapshot: u64,
    /// `written` at which the next is due.
    pub due: u64,
    pub snapshot: Seq,
    pub snapshot_bytes: u64,
    /// What is written of the snapshot that is being made.
    pub underway: u64,
    /// When the last snapshot began, how long it took, and whether it was made.
    pub last_try: Option<(Instant, Duration, bool)>,
    pub last_error: Option<String>,
}

/// A target that failed, and how.
#[derive(Clone)]
pub(super) struct Failed {
    pub place: Place,
    pub why: String,
    /// It only had no room: what it has is sound, and can be removed from it.
    pub full: bool,
}

/// Whether two places are the same: a target that was opened anew may be another one.
pub(super) fn same(one: &Place, other: &Place) -> bool {
    one.0 == other.0 && Arc::ptr_eq(&one.1, &other.1)
}

impl Files {
    /// The newest snapshot, if that target has it and with it everything.
    pub fn snapshot_of(&self, id: TargetId) -> Option<Seq> {
        self.complete.get(&id).copied().filter(|&last| last == self.snapshot)
    }

    /// Whether a target may be a mirror.
    pub fn has_place(&self, place: &Place) -> bool {
        self.places.iter().any(|other| same(other, place))
    }

    /// Whether a target failed.
    pub fn has_failed(&self, place: &Place) -> bool {
        self.failed.iter().any(|failed| same(&failed.place, place))
    }

    /// What the journal has grown by since the last snapshot.
    pub fn grown(&self) -> u64 {
        self.written - self.written_at_snapshot
    }

    /// The room that each mirror needs for the next snapshot, and for the journal until that is made. No change of the journal makes the snapshot longer
    /// than it is itself.
    pub fn need(&self, limits: &Limits) -> u64 {
        let snapshot = self.snapshot_bytes + self.grown();
        snapshot + snapshot / 8 + 3 * limits.segment_bytes
    }

    /// How many mirrors there are among the places, and how many of these have everything.
    pub fn staying(&self) -> (usize, usize) {
        let staying = || self.mirrors.iter().filter(|place| self.has_place(place));
        (staying().count(), staying().filter(|(id, _)| self.snapshot_of(*id).is_some()).count())
    }
}
