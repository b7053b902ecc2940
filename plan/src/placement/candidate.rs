//! What placement knows of targets.

use crate::TargetId;
use crate::domain::Domain;
use crate::membership::TargetState;

/// What placement knows of a target.
#[derive(Clone, Debug, PartialEq)]
pub struct TargetCandidate {
    /// The target.
    pub id: TargetId,
    /// Bytes that it can still take.
    pub free: u64,
    /// Its capacity in bytes; 0 if that is not known.
    pub total: u64,
    /// What it fails together with; without one it is a domain of its own.
    pub domain: Option<Domain>,
    /// How it is.
    pub state: TargetState,
    /// How busy it is, if that was measured.
    pub load: Option<Load>,
}

/// Whether so little is free that it is left for when nothing else is: less than a twentieth. What
/// is written already must find its place, and so must repairs.
pub(super) const fn is_nearly_full(free: u64, total: u64) -> bool {
    free < total / 20
}

/// How busy a target and its server are.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// The part of the processors that is idle, 0 to 1.
    pub idle: f64,
    /// The part of the network that is used, 0 to 1.
    pub network: f64,
    /// Accesses, of which older ones count less.
    pub temperature: f64,
    /// Accesses that waited for it or ran on it, on average.
    pub queue: f64,
    /// How long an access takes that waits for no other one, in seconds.
    pub service: f64,
    /// How long its server takes to answer, in seconds.
    pub answer: f64,
    /// Chunks placed on it that are in no queue yet. This needs no report: what is placed counts at
    /// once.
    pub placed: f64,
    /// How many chunks it has beyond its share of those that were placed lately; below 0 if it has
    /// fewer. This needs no report: what is placed counts at once.
    pub ahead: f64,
    /// What it got of late beyond its even part, as a multiple of what is small: from intervals to
    /// minutes, where [`Self::ahead`] is the next turn.
    pub lead: f64,
    /// How old all this is, in intervals between reports.
    pub age: f64,
}
