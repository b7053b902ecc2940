//! The metadata of a volume: names, attributes, extents and chunk sets. They live in a
//! transactional key-value store. Its journal is mirrored on one target more than may fail.
//!
//! - [`kv`]: the port [`kv::Kv`] and its engines in memory and on disk.
//! - [`journal`]: the durable engine. The metadata survives all failures that the data survives.
//! - [`namespace`]: operations on files. Each operation is one transaction.
#![forbid(unsafe_code)]

mod error;
#[cfg(test)]
mod golden;
pub mod journal;
mod keys;
pub mod kv;
pub mod namespace;
mod number;
mod orders;
mod ranks;
mod record;
mod requests;
mod sets;
mod transaction;

pub use error::Error;
pub use namespace::{
    AttributeChange, Attributes, BulkFile, BulkResult, ContentEdit, FILE_CAPABILITIES, KeyEntry, KeyPage, Listed,
    MAX_EXTENTS, MAX_SIZE, New, ROOT, Removed, Rename, RenameMode, Resize, SetTime, check_name, unprivileged,
};
pub use number::MAX_SKIPPED;
pub use record::{DeadStripe, FileKind, SetRecord, StripeRecord, Time, Totals};
pub use requests::IdempotencyKey;

use crate::ranks::{FileNumbers, SetNumbers};
use plan::TxId;
use std::sync::Arc;
use volume::ranked::Ranked;

/// Results of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// How the engine applies a delta to a value; see [`kv::MergeFn`].
pub const MERGE: kv::MergeFn = record::merge;

/// The metadata of a volume.
pub struct Meta {
    kv: Arc<dyn kv::Kv>,
    inos: Ranked<number::Lease, FileNumbers>,
    sets: Ranked<number::Lease, SetNumbers>,
    floors: requests::Floors,
    orders: Arc<orders::Orders>,
}

impl Meta {
    /// Opens the metadata in an engine. In an empty engine, this first creates a root directory
    /// that belongs to `owner` (user id, group id).
    ///
    /// # Errors
    /// When the engine cannot be read or written.
    pub fn open(kv: Arc<dyn kv::Kv>, owner: (u32, u32), now: Time) -> Result<Self> {
        let (inos, sets) = (Ranked::new(number::Lease::inos()), Ranked::new(number::Lease::sets()));
        let orders = Arc::<orders::Orders>::default();
        let kv = Arc::new(orders::Watched { kv, orders: orders.clone() });
        let meta = Self { kv, inos, sets, floors: requests::Floors::default(), orders };
        meta.make_root(owner, now)?;
        Ok(meta)
    }

    /// Waits until all transactions up to and including `seq` are durable.
    ///
    /// # Errors
    /// Returns an error when durability cannot be confirmed.
    pub fn sync(&self, seq: TxId) -> Result<()> {
        Ok(self.kv.sync(seq)?)
    }
}
