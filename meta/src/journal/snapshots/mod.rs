//! Keeping the journal short: committed changes go into the index, and snapshots of it to the
//! mirrors, so that older segments can be removed.

pub(super) mod checkpointer;
pub(super) mod purge;
pub(super) mod snapshot;
pub(super) mod space;
