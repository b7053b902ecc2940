//! Names, attributes, extents and chunk sets, over a transactional key-value store with a journal that is mirrored on
//! as many targets as may fail, and one.
//!
//! - [`kv`]: the port [`kv::Kv`] and its engines in memory and on disk.
//! - [`journal`]: the engine that makes them survive what the data survives.
//! - [`namespace`]: operations on files, each one transaction.
#![forbid(unsafe_code)]

mod error;
pub mod journal;
mod keys;
pub mod kv;
pub mod namespace;
mod number;
pub mod port;
pub mod ranked;
mod record;
mod requests;
mod sets;
mod transaction;

pub use error::Error;
pub use kv::Seq;
pub use namespace::{
    Attributes, Change, ContentEdit, FILE_CAPABILITIES, Listed, MAX_SIZE, MOST_EXTENTS, New, Put, ROOT, Removed,
    Rename, RenameMode, Resize, SetTime, Whole, check_name, unprivileged,
};
pub use record::{Kind, SetRecord, StripeRecord, Time, Totals};
pub use requests::Once;
pub use sets::DeadStripe;

use std::sync::{Arc, Mutex};

/// Results of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// How the engine changes values by deltas; see [`kv::MergeFn`].
pub const MERGE: kv::MergeFn = record::merge;

/// The metadata of a volume.
pub struct Meta {
    kv: Arc<dyn kv::Kv>,
    inos: Mutex<number::Lease>,
    sets: Mutex<number::Lease>,
    floors: requests::Floors,
}

impl Meta {
    /// The metadata in an engine; in an empty one, a root directory is made first, which belongs to `owner`, a user and a group.
    ///
    /// # Errors
    /// When the engine cannot be read or written.
    pub fn open(kv: Arc<dyn kv::Kv>, owner: (u32, u32), now: Time) -> Result<Self> {
        let (inos, sets) = (Mutex::new(number::Lease::inos()), Mutex::new(number::Lease::sets()));
        let meta = Self { kv, inos, sets, floors: requests::Floors::default() };
        meta.make_root(owner, now)?;
        Ok(meta)
    }

    /// Returns when everything up to a transaction is durable.
    ///
    /// # Errors
    /// When that is not sure.
    pub fn sync(&self, seq: Seq) -> Result<()> {
        Ok(self.kv.sync(seq)?)
    }
}
