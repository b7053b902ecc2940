//! Opening: `recover` reads what is on the claimed targets, `replay` brings the index up to date,
//! and `resync` makes the mirrors identical. Then the engine serves.

pub(super) mod copies;
pub(super) mod inventory;
pub(super) mod lineage;
pub(super) mod recover;
pub(super) mod replay;
pub(super) mod restore;
pub(super) mod resync;
pub(super) mod survey;
