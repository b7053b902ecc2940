//! The index of a follower. An opening in the same process takes it away at any time, also while
//! the follower waits for a target that hangs.

use super::super::options::closed;
use crate::kv::{Index, IndexState, KvError, Order, View, Visit};
use std::fmt;
use std::ops::Bound;
use std::sync::Mutex;
use volume::lock;

/// An index that can be closed by others than the one that uses it. After that, every use of it
/// fails.
pub struct Shelf(Mutex<Option<Box<dyn Index>>>);

impl Shelf {
    /// Keeps an index.
    pub fn new(index: Box<dyn Index>) -> Self {
        Self(Mutex::new(Some(index)))
    }

    /// Closes the index. A change in progress ends first.
    pub fn close(&self) {
        drop(lock(&self.0).take());
    }

    fn with<T>(&self, work: impl FnOnce(&dyn Index) -> Result<T, KvError>) -> Result<T, KvError> {
        let index = lock(&self.0);
        index.as_deref().map_or_else(|| Err(closed()), work)
    }
}

impl View for Shelf {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        self.with(|index| index.get(key))
    }

    fn visit(&self, low: Bound<&[u8]>, high: Bound<&[u8]>, order: Order, visit: Visit<'_>) -> Result<(), KvError> {
        self.with(|index| index.visit(low, high, order, visit))
    }
}

impl Index for Shelf {
    fn state(&self) -> Result<IndexState, KvError> {
        self.with(|index| index.state())
    }

    fn apply<'a>(
        &self,
        edits: &mut dyn Iterator<Item = (&'a [u8], Option<&'a [u8]>)>,
        state: IndexState,
        durable: bool,
    ) -> Result<(), KvError> {
        self.with(|index| index.apply(edits, state, durable))
    }

    fn clear(&self) -> Result<(), KvError> {
        self.with(|index| index.clear())
    }

    fn view(&self) -> Result<Box<dyn View + Send>, KvError> {
        self.with(|index| index.view())
    }
}

impl fmt::Debug for Shelf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shelf").finish_non_exhaustive()
    }
}
