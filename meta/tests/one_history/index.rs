//! An index that stops an opening, or has no space.

use meta::kv::{Edit, Index, IndexState, KvError, MemoryIndex, Order, View, Visit};
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};

/// What happens to an index.
#[derive(Debug)]
pub struct Fate {
    /// Whether an opening has come to clear it, and whether it may go on.
    state: Mutex<(bool, bool)>,
    changed: Condvar,
    full: AtomicBool,
}

/// An index in memory with a fate.
pub struct Fated(MemoryIndex, Arc<Fate>);

impl Fate {
    /// A fate without trouble.
    pub fn new() -> Arc<Self> {
        Arc::new(Self { state: Mutex::new((false, true)), changed: Condvar::new(), full: AtomicBool::new(false) })
    }

    /// An empty index, which an opening clears before it reads a snapshot.
    pub fn index(self: &Arc<Self>) -> Box<Fated> {
        Box::new(Fated(MemoryIndex::default(), self.clone()))
    }

    /// Closes the gate in front of openings that read, or opens it.
    pub fn stop_readers(&self, stopped: bool) {
        self.state.lock().unwrap().1 = !stopped;
        self.changed.notify_all();
    }

    /// Whether one is or was there.
    pub fn is_read(&self) -> bool {
        self.state.lock().unwrap().0
    }

    /// There is no space left, or there is.
    pub fn set_full(&self, full: bool) {
        self.full.store(full, Ordering::SeqCst);
    }
}

impl View for Fated {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        self.0.get(key)
    }

    fn visit(&self, low: Bound<&[u8]>, high: Bound<&[u8]>, order: Order, visit: Visit<'_>) -> Result<(), KvError> {
        self.0.visit(low, high, order, visit)
    }
}

impl Index for Fated {
    fn state(&self) -> Result<IndexState, KvError> {
        self.0.state()
    }

    fn apply<'a>(
        &self,
        edits: &mut dyn Iterator<Item = Edit<'a>>,
        state: IndexState,
        durable: bool,
    ) -> Result<(), KvError> {
        if self.1.full.load(Ordering::SeqCst) { Err(KvError::NoSpace) } else { self.0.apply(edits, state, durable) }
    }

    fn clear(&self) -> Result<(), KvError> {
        let mut state = self.1.state.lock().unwrap();
        state.0 = true;
        drop(self.1.changed.wait_while(state, |(_, open)| !*open).unwrap());
        self.0.clear()
    }

    fn view(&self) -> Result<Box<dyn View + Send>, KvError> {
        self.0.view()
    }
}
