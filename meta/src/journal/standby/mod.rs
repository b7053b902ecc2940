//! Following the journal of an opening in another process.

pub(super) mod follow;
pub(super) mod sightings;
