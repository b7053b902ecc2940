//! The index in a server's volume directory: it stays when the process dies, and its disk can be
//! full.

use meta::kv::{Edit, Index, IndexState, KvError, MemoryIndex, Order, View, Visit};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// An index that several processes open, one after the other.
#[derive(Clone, Default)]
pub struct Kept {
    map: Arc<MemoryIndex>,
    full: Arc<AtomicBool>,
}

impl Kept {
    /// Whether there is no space left.
    pub fn set_full(&self, full: bool) {
        self.full.store(full, Ordering::SeqCst);
    }

    /// For whatever changes it: a dead process changes nothing.
    fn changing(&self) -> Result<(), KvError> {
        world::live();
        if self.full.load(Ordering::SeqCst) { Err(KvError::NoSpace) } else { Ok(()) }
    }
}

impl View for Kept {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        world::atomically(|| self.map.get(key))
    }

    fn visit(&self, low: Bound<&[u8]>, high: Bound<&[u8]>, order: Order, visit: Visit<'_>) -> Result<(), KvError> {
        // The map must not be locked meanwhile: the process may be killed.
        world::atomically(|| self.map.view())?.visit(low, high, order, visit)
    }
}

impl Index for Kept {
    fn state(&self) -> Result<IndexState, KvError> {
        world::atomically(|| self.map.state())
    }

    fn apply<'a>(
        &self,
        edits: &mut dyn Iterator<Item = Edit<'a>>,
        state: IndexState,
        durable: bool,
    ) -> Result<(), KvError> {
        self.changing()?;
        world::atomically(|| self.map.apply(edits, state, durable))
    }

    fn clear(&self) -> Result<(), KvError> {
        self.changing()?;
        world::atomically(|| self.map.clear())
    }

    fn view(&self) -> Result<Box<dyn View + Send>, KvError> {
        world::atomically(|| self.map.view())
    }
}
