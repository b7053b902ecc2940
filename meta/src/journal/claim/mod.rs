//! Which opening may change the volume: claims on the targets, and the lease that keeps them.

pub(super) mod bystanders;
pub(super) mod claims;
pub(super) mod hold;
pub(super) mod lease;
pub(super) mod quorums;
pub(super) mod renewal;
pub(super) mod witnesses;
