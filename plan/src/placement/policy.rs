//! What a policy is, and what it sees.

use super::score::Parts;
use crate::domain::Domain;
use crate::membership::TargetState;
use crate::{SetId, TargetId};

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

/// How busy a target and its server are.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// The part of the processors that is idle, 0 to 1.
    pub idle: f64,
    /// The part of the network that is used, 0 to 1.
    pub network: f64,
    /// Accesses, of which older ones count less.
    pub temperature: f64,
    /// How many chunks it has beyond its share of those that were placed lately; below 0 if it has
    /// fewer. This needs no report: what is placed counts at once.
    pub ahead: f64,
    /// How old all this is, in intervals between reports.
    pub age: f64,
}

/// Targets that a set can go to, as a policy sees them.
#[derive(Debug)]
pub struct View<'a> {
    /// The targets.
    pub targets: &'a [TargetCandidate],
    /// The domain of each at the level that counts, as a number below the number of domains. The
    /// numbers are in the order of the domains' names.
    pub domains: Vec<usize>,
    /// How many chunks each domain may get.
    pub room: Vec<usize>,
}

/// Prefers targets. Pure: the same arguments give the same order.
pub trait Policy: Send + Sync {
    /// The targets in the order in which a set of `width` chunks would rather have them, each once,
    /// by their place in the view.
    fn rank(&self, view: &View<'_>, set: SetId, width: usize) -> Vec<usize>;

    /// The score of each target of the view; None for a policy that looks at no load.
    fn scores(&self, view: &View<'_>) -> Option<Vec<Parts>>;
}
