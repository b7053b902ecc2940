//! The durable engine: an index in front of a journal on m+1 targets, with snapshots.
//!
//! A commit is validated against memory and the index. It then goes into memory (a layer over the
//! index) and into the journal's buffer. The journal thread writes that buffer to all mirrors in
//! parallel: at once when a caller waits, otherwise after a short delay. The checkpointer moves
//! full layers to the index after they are durable in the journal. It also has snapshots of the
//! index written to the mirrors, and then the older journal is removed. So the index is a cache:
//! each of the m+1 mirrors has everything. Another target replaces a mirror that fails and gets a
//! snapshot of its own. When no other target is left, the engine retries the failed ones from time
//! to time. While no target answers, committed transactions wait and new ones are refused.
//!
//! - `opening`: scan, replay, resync; `claim`: which opening may write, and for how long.
//! - `engine`, `shared`, `files`: what an open engine is; `frame` describes the bytes.
//! - `mirrors`: the journal thread and those of the mirrors; `snapshots`: the checkpointer.
//! - `standby`: follows another process.

mod claim;
mod cost;
mod engine;
mod files;
mod frame;
mod guard;
mod local_wal;
mod mirrors;
mod opening;
mod options;
mod panics;
mod retries;
mod shared;
mod shelf;
mod snapshots;
mod standby;

pub use engine::Journaled;
pub use opening::survey::Survey;
pub use options::{Access, JournalLimits, MirrorTarget, Options, Standing, Status};
pub use shelf::Shelf;
pub use standby::follow::{FollowOptions, Follower, Hint};
