//! Serves the metadata of a volume to clients. Each client has a session.
//!
//! A client codes and writes its data itself, into chunk sets that the server placed for it, and
//! sends transactions that name it. When another client opens a file, the server recalls
//! uncommitted data, so that the opener sees what others wrote before. A session without a
//! heartbeat for the time of its lease ends: its sets are sealed and its openers are dropped.

mod answer;
mod handle;
mod leases;
mod openings;
mod recall;
mod removed;
mod sessions;
mod table;
mod volume;

pub use self::volume::{StripeLimits, Volume};
pub use leases::{Began, Leases};
pub use sessions::Sessions;
