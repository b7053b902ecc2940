//! The durable engine: an index in front of a journal on m+1 targets, with snapshots.
//!
//! A commit is validated against memory and the index, and is then in memory (a layer over the index) and in the journal's
//! buffer. The journal thread writes that buffer to all mirrors at once when somebody waits, and soon when nobody does. The checkpointer
//! brings full layers to the index, after they are durable in the journal, and has snapshots of the index written to the mirrors, after
//! which the older journal is removed. So the index is a cache: any one of m+1 mirrors has everything, and a mirror that fails is
//! replaced by another target, with a snapshot of its own. Where there is none left, those that failed are tried again from time to
//! time; while none at all answers, what is committed waits, and no more is. The bytes are described in `frame`.

mod checkpointer;
mod copies;
mod engine;
mod files;
mod frame;
mod inventory;
mod local_wal;
mod options;
mod purge;
mod recover;
mod relocate;
mod replay;
mod restore;
mod resync;
mod retry;
mod shared;
mod snapshot;
mod space;
mod worker;
mod writer;

pub use engine::Journaled;
pub use options::{Limits, Options, Place, Status};
