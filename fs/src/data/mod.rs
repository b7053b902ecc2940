//! Files, their data and their names: what an open volume does for programs. Nothing here knows who else uses the volume.
//!
//! A write goes through [`write`] into a [`buffer`]; [`background`] and [`commit`] put buffers into stripes ([`store`]) and name these in one transaction.

pub mod background;
pub mod buffer;
pub mod coding;
pub mod commit;
pub mod counts;
pub mod file;
pub mod ingest;
pub mod limits;
pub mod lookups;
pub mod manifest;
pub mod names;
pub mod read;
pub mod sets;
pub mod store;
pub mod write;
