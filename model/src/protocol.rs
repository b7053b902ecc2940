//! The protocol with its bounds, and what all of its steps ask.

use crate::bounds::{Bounds, Broken};
use crate::state::{Epoch, State, Voter};

/// The protocol, or one with a broken rule.
#[derive(Clone, Copy, Debug)]
pub struct Protocol {
    /// Its bounds.
    pub bounds: Bounds,
    /// The rule that is broken.
    pub broken: Option<Broken>,
}

impl Protocol {
    pub(crate) fn voters<'a>(&self, state: &'a State) -> &'a [Voter] {
        &state.voters[..self.bounds.targets()]
    }

    pub(crate) fn quorum(&self, new: bool) -> usize {
        self.bounds.quorum(new) - usize::from(self.broken == Some(Broken::Quorum))
    }

    /// Whether two epochs are the same.
    pub(crate) fn same(&self, one: Epoch, other: Epoch) -> bool {
        one.number == other.number && (one.id == other.id || self.broken == Some(Broken::Ids))
    }
}
