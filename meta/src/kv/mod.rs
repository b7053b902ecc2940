//! The port to the key-value store of the metadata: an ordered set of keys, changed by guarded
//! transactions.
//!
//! A transaction is validated and becomes visible at once. It becomes durable later, when a caller
//! runs [`Kv::sync`], so many transactions share one write to disk, and a caller waits only if it
//! must. The durable transactions are always a prefix of the committed ones.

mod direct;
mod index;
mod layers;
mod memory;
mod redb;
mod scratch;
mod transaction;

pub use direct::{Direct, Memory, Redb};
pub use index::{Edit, Index, IndexState, Order, View};
pub(crate) use layers::{Layer, Layered};
pub use memory::MemoryIndex;
pub use redb::RedbIndex;
pub use scratch::ScratchIndex;
pub(crate) use transaction::{resolve, scan, scan_with_previous};

use plan::TxId;
use std::fmt;
use std::ops::Range;

/// A key and its value.
pub type Pair = (Vec<u8>, Vec<u8>);

/// The longest key, in bytes.
pub const MAX_KEY_BYTES: usize = 4096;

/// The longest value, in bytes, whether put or made by a merge.
pub const MAX_VALUE_BYTES: usize = 16 << 20;

/// The limit on the total size of all keys and values that one transaction changes, in bytes.
pub const MAX_BATCH_BYTES: usize = 32 << 20;

/// A condition for a transaction to be committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Guard {
    /// The key has exactly this value; with `None` it is absent.
    Value(Vec<u8>, Option<Vec<u8>>),
    /// No key is in the range.
    Empty(Range<Vec<u8>>),
}

/// One change of a transaction. Changes apply in order: a later one sees the result of an earlier
/// one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KvChange {
    /// Sets the key to this value.
    Put(Vec<u8>, Vec<u8>),
    /// Removes the key. A missing key is not an error.
    Delete(Vec<u8>),
    /// Sets the key to what the engine's [`MergeFn`] makes of its current value and this operand.
    /// Needs no guard.
    Merge(Vec<u8>, Vec<u8>),
}

/// A transaction: all its changes are made, or none when a guard fails. Guards are checked against
/// the state before the changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// The conditions.
    pub guards: Vec<Guard>,
    /// The changes to make if they hold.
    pub changes: Vec<KvChange>,
}

/// The result of a committed transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The transaction's number. A batch without changes gets the number of the last transaction
    /// before it.
    pub seq: TxId,
    /// The new value of each merge, in order; `None` where it removed the key.
    pub merged: Vec<Option<Vec<u8>>>,
}

/// Makes a key's new value from its old one (`None`: absent) and an operand; `None` removes the
/// key. An error refuses the transaction, as when the old value cannot be decoded. The engine calls
/// it while it holds its lock, so it must not call the engine, and it must not panic.
pub type MergeFn = fn(key: &[u8], old: Option<&[u8]>, operand: &[u8]) -> Result<Option<Vec<u8>>, KvError>;

/// Receives the pairs of a whole scan, in order; `false` ends the scan.
pub type Visit<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> Result<bool, KvError>;

/// Why an engine could not carry out a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KvError {
    /// A guard failed; nothing changed. Read again and retry.
    Conflict,
    /// No durable storage can be reached, or the engine is closed; the text says why. This lasts
    /// until the engine is opened again.
    Unavailable(String),
    /// There is no space.
    NoSpace,
    /// Stored bytes are not what was written; the text says where.
    Corrupt(String),
    /// The request exceeds a limit; the text says which.
    Invalid(&'static str),
    /// Another opening of the volume has taken over; the text says whose. This one has ended for
    /// ever, and transactions that were not durable may be lost.
    Fenced(String),
    /// The lease of another holder still runs; the text says whose. Try again later.
    Held(String),
    /// Too few targets can be reached to know that nothing durable is missing; the text says which
    /// ones are missing.
    TooFew(String),
    /// A disk of this machine fails or is full; the text says where. On another machine, the volume
    /// may be opened.
    Local(String),
}

/// An ordered set of keys with values, changed by guarded transactions. Reads see every commit that
/// has returned.
pub trait Kv: Send + Sync {
    /// The value of a key.
    ///
    /// # Errors
    /// Returns an error when the engine cannot read.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError>;

    /// The first `limit` pairs of a range, in ascending order, all from one state. A range whose
    /// end is not above its start is empty.
    ///
    /// # Errors
    /// Returns an error when the engine cannot read.
    fn scan(&self, range: Range<&[u8]>, limit: usize) -> Result<Vec<Pair>, KvError>;

    /// The last `limit` pairs of a range, in descending order. With a limit of 1 it finds "the one
    /// at or before".
    ///
    /// # Errors
    /// Returns an error when the engine cannot read.
    fn scan_back(&self, range: Range<&[u8]>, limit: usize) -> Result<Vec<Pair>, KvError>;

    /// The last pair between `floor` and the start of the range, if any, and then the first `limit`
    /// pairs of the range, in ascending order, all from one state.
    ///
    /// # Errors
    /// Returns an error when the engine cannot read.
    fn scan_with_previous(&self, floor: &[u8], range: Range<&[u8]>, limit: usize) -> Result<Vec<Pair>, KvError>;

    /// Passes all pairs of one single state to `visit`, in ascending order, however long that
    /// takes. Commits continue meanwhile. Returns the number of the last transaction in that state.
    ///
    /// # Errors
    /// Returns an error when the engine cannot read, and any error that `visit` returns.
    fn snapshot(&self, visit: Visit<'_>) -> Result<TxId, KvError>;

    /// Makes the changes if the guards hold. The transaction is atomic and visible on return, but
    /// durable only after [`Self::sync`].
    ///
    /// # Errors
    /// `Conflict` when a guard fails; another error when the commit fails. Nothing has changed
    /// then.
    fn commit(&self, batch: Batch) -> Result<Committed, KvError>;

    /// Waits until all transactions up to this one are durable. A number that is not committed yet
    /// counts as the last one.
    ///
    /// # Errors
    /// Returns an error when durability cannot be confirmed: the transactions may or may not
    /// survive.
    fn sync(&self, seq: TxId) -> Result<(), KvError>;
}

impl Batch {
    /// A batch without guards.
    pub fn of(changes: Vec<KvChange>) -> Self {
        Self { guards: Vec::new(), changes }
    }

    /// Adds a guard: the key still has this value.
    pub fn expect(&mut self, key: impl Into<Vec<u8>>, value: Option<Vec<u8>>) -> &mut Self {
        self.guards.push(Guard::Value(key.into(), value));
        self
    }

    /// Adds a put.
    pub fn put(&mut self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> &mut Self {
        self.changes.push(KvChange::Put(key.into(), value.into()));
        self
    }

    /// Adds a removal.
    pub fn delete(&mut self, key: impl Into<Vec<u8>>) -> &mut Self {
        self.changes.push(KvChange::Delete(key.into()));
        self
    }

    /// Adds a merge.
    pub fn merge(&mut self, key: impl Into<Vec<u8>>, operand: impl Into<Vec<u8>>) -> &mut Self {
        self.changes.push(KvChange::Merge(key.into(), operand.into()));
        self
    }
}

impl fmt::Display for KvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflict => f.write_str("another transaction changed what this one relied on"),
            Self::Unavailable(why) => write!(f, "the metadata cannot be reached: {why}"),
            Self::NoSpace => f.write_str("there is no space for the metadata"),
            Self::Corrupt(what) => write!(f, "the metadata is damaged: {what}"),
            Self::Invalid(what) => write!(f, "not a valid request to the metadata: {what}"),
            Self::Fenced(whose) => write!(f, "another opening has taken the volume over: {whose}"),
            Self::Held(whose) => write!(f, "the volume is open elsewhere: {whose}"),
            Self::TooFew(which) | Self::Local(which) => f.write_str(which),
        }
    }
}

impl std::error::Error for KvError {}
