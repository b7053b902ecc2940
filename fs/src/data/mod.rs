//! Files, their names and their content: what an open volume offers to programs.
//!
//! A write goes through [`mod@write`] into a [`buffer`]. A commit ([`commit`]) packs buffers into
//! stripes ([`packer`], [`store`]) and names them in one transaction. Other users of the volume are
//! behind the trait [`sharing::Sharing`].

pub mod balance;
pub mod buffer;
pub mod bulk_load;
pub mod claims;
pub mod coding;
pub mod commit;
pub mod counts;
pub mod file;
pub mod join;
pub mod known;
pub mod lacking;
pub mod layouts;
pub mod listing;
pub mod lookups;
pub mod manifest;
pub mod memory;
pub mod names;
pub mod open_sets;
pub mod packer;
pub mod pauses;
pub mod read;
pub mod set_load;
pub mod sets;
pub mod sharing;
pub mod space;
pub mod store;
pub mod superseded;
pub mod topology;
pub mod windows;
pub mod write;
