//! What is done with the chunks of a set that gets no more stripes.

use super::layout::SetLayout;
use crate::targets::{Batch, Targets};
use plan::{Position, TargetId};
use std::time::Duration;

/// Chunks that their targets describe, in the background: see [`crate::target::Target::seal`].
/// Nothing depends on it, so that a target that fails or hangs does no harm.
pub struct Sealing(Batch<Position, ()>);

impl std::fmt::Debug for Sealing {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str("Sealing")
    }
}

impl Sealing {
    /// Begins with all chunks of a set.
    pub fn of_set(targets: &Targets, layout: &SetLayout) -> Self {
        Self::of_chunks(targets, layout, Position::placed(&layout.places))
    }

    /// Begins with some chunks of a set.
    pub(super) fn of_chunks(
        targets: &Targets,
        layout: &SetLayout,
        chunks: impl Iterator<Item = (Position, TargetId)>,
    ) -> Self {
        let mut batch = Batch::new();
        for (position, id) in chunks {
            let file = layout.file(position);
            batch.run(targets, position, id, move |target| target.seal(file));
        }
        Self(batch)
    }

    /// Waits until the targets have done it, or for at most so long since it began.
    pub fn wait(self, limit: Duration) {
        self.0.without_late(limit);
    }
}
