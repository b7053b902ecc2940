//! An engine directly on an index: every commit changes the index at once.

use super::index::Index;
use super::transaction::{scan, scan_with_previous};
use super::{Batch, Committed, IndexState, Kv, KvError, MemoryIndex, MergeFn, Order, Pair, RedbIndex, Visit, resolve};
use plan::TxId;
use std::ops::{Bound, Range};
use std::path::Path;
use std::sync::{Mutex, MutexGuard};
use volume::lock;

/// An engine in memory. Its contents end with the process.
pub type Memory = Direct<MemoryIndex>;

/// An engine on a single redb file, for tools. It has no journal: when the file is lost, everything
/// is lost.
pub type Redb = Direct<RedbIndex>;

/// An engine that is only as durable as its index.
pub struct Direct<I> {
    index: I,
    merge: MergeFn,
    last: Mutex<TxId>,
}

impl Direct<MemoryIndex> {
    /// Creates an empty engine in memory.
    pub fn new(merge: MergeFn) -> Self {
        Self { index: MemoryIndex::default(), merge, last: Mutex::default() }
    }
}

impl Direct<RedbIndex> {
    /// Opens the engine in a file, and creates the file when it does not exist.
    ///
    /// # Errors
    /// As [`RedbIndex::open`].
    pub fn open(path: &Path, merge: MergeFn) -> Result<Self, KvError> {
        let index = RedbIndex::open(path)?;
        let last = index.state()?.applied;
        Ok(Self { index, merge, last: Mutex::new(last) })
    }
}

impl<I> Direct<I> {
    fn last(&self) -> MutexGuard<'_, TxId> {
        lock(&self.last)
    }
}

impl<I: Index> Kv for Direct<I> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        self.index.get(key)
    }

    fn scan(&self, range: Range<&[u8]>, limit: usize) -> Result<Vec<Pair>, KvError> {
        scan(&self.index, range, limit, Order::Ascending)
    }

    fn scan_back(&self, range: Range<&[u8]>, limit: usize) -> Result<Vec<Pair>, KvError> {
        scan(&self.index, range, limit, Order::Descending)
    }

    fn scan_with_previous(&self, floor: &[u8], range: Range<&[u8]>, limit: usize) -> Result<Vec<Pair>, KvError> {
        scan_with_previous(&*self.index.view()?, floor, range, limit)
    }

    fn snapshot(&self, visit: Visit<'_>) -> Result<TxId, KvError> {
        let (view, last) = {
            let last = self.last();
            (self.index.view()?, *last)
        };
        view.visit(Bound::Unbounded, Bound::Unbounded, Order::Ascending, visit)?;
        Ok(last)
    }

    fn commit(&self, batch: Batch) -> Result<Committed, KvError> {
        let mut last = self.last();
        let resolved = resolve(batch, &self.index, self.merge)?;
        if !resolved.edits.is_empty() {
            let state = IndexState { applied: last.next(), ..IndexState::default() };
            let mut edits = resolved.edits.iter().map(|(key, value)| (key.as_slice(), value.as_deref()));
            self.index.apply(&mut edits, state, false)?;
            *last = last.next();
        }
        Ok(Committed { seq: *last, merged: resolved.merged })
    }

    fn sync(&self, _seq: TxId) -> Result<(), KvError> {
        let last = self.last();
        self.index.apply(&mut std::iter::empty(), IndexState { applied: *last, ..IndexState::default() }, true)
    }
}
