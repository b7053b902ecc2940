//! What a policy is, and what it sees.

use super::candidate::TargetCandidate;
use super::score::Parts;
use crate::SetId;

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
