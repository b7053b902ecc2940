//! The port behind which the metadata lives: an ordered set of keys, changed by guarded transactions.
//!
//! A transaction is validated and visible at once and durable later, when somebody asks with [`Kv::sync`]; so many transactions
//! share one write to the disk, and who need not wait does not. What became durable is always a prefix of what was committed.

mod direct;
mod index;
mod layers;
mod memory;
mod redb;
mod scratch;
mod transaction;

pub use direct::Direct;
pub use index::{Edit, Index, IndexState, Order, View};
pub(crate) use layers::{Layer, Layered};
pub use memory::MemoryIndex;
pub use redb::RedbIndex;
pub use scratch::ScratchIndex;
pub(crate) use transaction::{resolve, scan, scan_with_previous};

use std::fmt;
use std::ops::Range;

/// Everything in memory, gone with the process.
pub type Memory = Direct<MemoryIndex>;

/// A redb file by itself, for tools: without a journal, one lost file is everything.
pub type Redb = Direct<RedbIndex>;

/// The number of a committed transaction: 1, 2, and so on. 0 stands before the first.
pub type Seq = u64;

/// A key and its value.
pub type Pair = (Vec<u8>, Vec<u8>);

/// The longest key.
pub const MAX_KEY_BYTES: usize = 4096;

/// The longest value, put or made by a merge.
pub const MAX_VALUE_BYTES: usize = 16 << 20;

/// The sum of all keys and values that one transaction may change.
pub const MAX_BATCH_BYTES: usize = 32 << 20;

/// What must still be so for a transaction to be committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Guard {
    /// The key has exactly this value; with none it is absent.
    Value(Vec<u8>, Option<Vec<u8>>),
    /// No key lies in the range.
    Empty(Range<Vec<u8>>),
}

/// One change of a transaction. They count one after the other, so a later one sees what an earlier one made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Gives the key this value.
    Put(Vec<u8>, Vec<u8>),
    /// Removes the key; one that is absent is no error.
    Delete(Vec<u8>),
    /// Gives the key what the engine's [`MergeFn`] makes of its value and this operand, without a guard.
    Merge(Vec<u8>, Vec<u8>),
}

/// A transaction: all its changes, or none when a guard fails. Guards are checked against the state before the changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// What must be so.
    pub guards: Vec<Guard>,
    /// What then changes.
    pub changes: Vec<Change>,
}

/// What became of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Its number; a batch without changes gets that of the last transaction before it.
    pub seq: Seq,
    /// The new value of each merge, in order; `None` where it removed the key.
    pub merged: Vec<Option<Vec<u8>>>,
}

/// Makes a key's new value of its old one (`None`: absent) and an operand; `None` removes the key. It is called with the engine
/// locked, so it must not call the engine, and it must not panic.
pub type MergeFn = fn(key: &[u8], old: Option<&[u8]>, operand: &[u8]) -> Option<Vec<u8>>;

/// Receives the pairs of a whole scan, in order; `false` ends it.
pub type Visit<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> Result<bool, KvError>;

/// Why an engine did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KvError {
    /// A guard failed; nothing changed. Read again and try anew.
    Conflict,
    /// Nothing durable can be reached, or the engine is closed; says why. It stays so until the engine is opened again.
    Unavailable(String),
    /// There is no room.
    NoSpace,
    /// Stored bytes are not what was written; says where.
    Corrupt(String),
    /// The request breaks a limit; says which.
    Invalid(&'static str),
}

/// An ordered set of keys with values, changed by guarded transactions. Its reads see every commit that has returned.
pub trait Kv: Send + Sync {
    /// The value of a key.
    ///
    /// # Errors
    /// When the engine cannot read.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError>;

    /// The first `limit` pairs of a range in ascending order. All are of one state. An end that is not above the start is an empty range.
    ///
    /// # Errors
    /// When the engine cannot read.
    fn scan(&self, range: Range<&[u8]>, limit: usize) -> Result<Vec<Pair>, KvError>;

    /// The last `limit` pairs of a range in descending order: with 1, "the one at or before".
    ///
    /// # Errors
    /// When the engine cannot read.
    fn scan_back(&self, range: Range<&[u8]>, limit: usize) -> Result<Vec<Pair>, KvError>;

    /// The last pair from `floor` to the range, if there is one, and the first `limit` of the range, in ascending order. All are of one state.
    ///
    /// # Errors
    /// When the engine cannot read.
    fn scan_with_previous(&self, floor: &[u8], range: Range<&[u8]>, limit: usize) -> Result<Vec<Pair>, KvError>;

    /// Shows all pairs of one single state in ascending order, however long it takes; commits go on meanwhile. Returns the number
    /// of the last transaction in that state.
    ///
    /// # Errors
    /// When the engine cannot read, and what `visit` returns.
    fn snapshot(&self, visit: Visit<'_>) -> Result<Seq, KvError>;

    /// Makes the changes if the guards hold: atomic, and visible on return, but durable only after [`Self::sync`].
    ///
    /// # Errors
    /// `Conflict` when a guard fails; any other when it cannot be done. Nothing has changed then.
    fn commit(&self, batch: Batch) -> Result<Committed, KvError>;

    /// Returns when all transactions up to this one are durable. A number that was not given out yet counts as the last one.
    ///
    /// # Errors
    /// When that is not sure: whether they survive is then unknown.
    fn sync(&self, seq: Seq) -> Result<(), KvError>;
}

impl Batch {
    /// A batch without guards.
    pub fn of(changes: Vec<Change>) -> Self {
        Self { guards: Vec::new(), changes }
    }

    /// Adds the guard that the key still has this value.
    pub fn expect(&mut self, key: impl Into<Vec<u8>>, value: Option<Vec<u8>>) -> &mut Self {
        self.guards.push(Guard::Value(key.into(), value));
        self
    }

    /// Adds a put.
    pub fn put(&mut self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> &mut Self {
        self.changes.push(Change::Put(key.into(), value.into()));
        self
    }

    /// Adds a removal.
    pub fn delete(&mut self, key: impl Into<Vec<u8>>) -> &mut Self {
        self.changes.push(Change::Delete(key.into()));
        self
    }

    /// Adds a merge.
    pub fn merge(&mut self, key: impl Into<Vec<u8>>, operand: impl Into<Vec<u8>>) -> &mut Self {
        self.changes.push(Change::Merge(key.into(), operand.into()));
        self
    }
}

impl fmt::Display for KvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflict => f.write_str("another transaction changed what this one relied on"),
            Self::Unavailable(why) => write!(f, "the metadata cannot be reached: {why}"),
            Self::NoSpace => f.write_str("there is no room for the metadata"),
            Self::Corrupt(what) => write!(f, "the metadata is damaged: {what}"),
            Self::Invalid(what) => write!(f, "not a valid request to the metadata: {what}"),
        }
    }
}

impl std::error::Error for KvError {}
