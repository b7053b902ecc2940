//! What an engine knows of its targets, and which file is on which.

use super::options::Place;
use super::retry::Retries;
use crate::kv::Seq;
use plan::TargetId;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

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
    pub failed: Vec<(Place, String)>,
    /// When those are tried again.
    pub retries: Retries,
    /// Failed outside of the journal thread, which has yet to drop them, and the thread on which each did.
    pub suspects: Vec<(Place, String, Weak<()>)>,
    /// What was ever written to the journal since the opening.
    pub written: u64,
    /// `written` when the last snapshot began.
    pub written_at_snapshot: u64,
    /// `written` at which the next is due.
    pub due: u64,
    pub snapshot: Seq,
    pub snapshot_bytes: u64,
    pub last_error: Option<String>,
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
        self.failed.iter().any(|(other, _)| same(other, place))
    }

    /// How many mirrors there are among the places, and how many of these have everything.
    pub fn staying(&self) -> (usize, usize) {
        let staying = || self.mirrors.iter().filter(|place| self.has_place(place));
        (staying().count(), staying().filter(|(id, _)| self.snapshot_of(*id).is_some()).count())
    }
}
