//! An index that others than its user can take away: that of an engine whose volume was given to
//! another process, and that of a follower, also while it waits for a target that hangs.

use super::options::closed;
use crate::kv::{Index, IndexState, KvError, Order, View, Visit};
use std::fmt;
use std::ops::Bound;
use std::sync::{Arc, RwLock};
use volume::unpoisoned;

/// An index that can be closed by others than the one that uses it. After that, every use of it
/// fails.
pub struct Shelf(RwLock<Option<Arc<dyn Index>>>);

impl Shelf {
    /// Keeps an index.
    pub fn new(index: Box<dyn Index>) -> Self {
        Self(RwLock::new(Some(index.into())))
    }

    /// Closes the index. What is read or changed at this moment ends first; views end later, and so
    /// does a clearing, which may take long: then the index is open until that has ended.
    pub fn close(&self) {
        let index = unpoisoned(self.0.write()).take();
        // Not under the lock: this writes to the disk, and who comes now has its answer.
        drop(index);
    }

    fn with<T>(&self, work: impl FnOnce(&dyn Index) -> Result<T, KvError>) -> Result<T, KvError> {
        let index = unpoisoned(self.0.read());
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
        // Clearing an index of millions of keys takes seconds, for which no opening waits: it makes
        // a new file.
        let index = unpoisoned(self.0.read()).clone();
        index.map_or_else(|| Err(closed()), |index| index.clear())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::{Edit, MemoryIndex};
    use std::sync::Mutex;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    /// An index whose clearing takes long.
    struct Large {
        index: MemoryIndex,
        begun: Mutex<Sender<()>>,
        ends: Mutex<Receiver<()>>,
    }

    impl View for Large {
        fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
            self.index.get(key)
        }

        fn visit(&self, low: Bound<&[u8]>, high: Bound<&[u8]>, order: Order, visit: Visit<'_>) -> Result<(), KvError> {
            self.index.visit(low, high, order, visit)
        }
    }

    impl Index for Large {
        fn state(&self) -> Result<IndexState, KvError> {
            self.index.state()
        }

        fn apply<'a>(
            &self,
            edits: &mut dyn Iterator<Item = Edit<'a>>,
            state: IndexState,
            durable: bool,
        ) -> Result<(), KvError> {
            self.index.apply(edits, state, durable)
        }

        fn clear(&self) -> Result<(), KvError> {
            let _ = (self.begun.lock().unwrap().send(()), self.ends.lock().unwrap().recv());
            self.index.clear()
        }

        fn view(&self) -> Result<Box<dyn View + Send>, KvError> {
            self.index.view()
        }
    }

    /// A standby begins with a snapshot, and the volume is to be opened.
    #[test]
    fn it_is_closed_while_it_is_cleared() {
        let ((begun, begins), (end, ends)) = (channel(), channel());
        let index = Large { index: MemoryIndex::default(), begun: Mutex::new(begun), ends: Mutex::new(ends) };
        let shelf = Arc::new(Shelf::new(Box::new(index)));
        let cleared = shelf.clone();
        let clearing = std::thread::spawn(move || cleared.clear());
        begins.recv().unwrap();
        let ((closed, closes), closing) = (channel(), shelf.clone());
        std::thread::spawn(move || {
            closing.close();
            closed.send(())
        });
        closes.recv_timeout(Duration::from_secs(60)).expect("it waits for the clearing");
        assert!(shelf.state().is_err());
        drop::<Sender<()>>(end);
        clearing.join().unwrap().unwrap();
    }
}
