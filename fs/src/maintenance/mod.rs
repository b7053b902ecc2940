//! Background work where the metadata is: freeing space, verifying and repairing chunks, adding and
//! removing targets.

pub mod census;
pub mod chunk_contents;
pub mod cleanup;
pub mod collect;
pub mod compact;
pub mod drain;
pub mod explain;
pub mod fsck;
pub mod inline;
pub mod members;
pub mod orphan_chunks;
pub mod presence;
pub mod probe;
pub mod rebalance;
pub mod recover;
pub mod rejoin;
pub mod reopen;
pub mod repair;
pub mod status;
pub mod targets;
pub mod verify;
pub mod votes;
