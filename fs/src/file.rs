//! Files that are open or have uncommitted content.

use crate::buffer::Buffer;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Files are found by their number in one of so many tables, each with its own lock.
const SHARDS: usize = 16;

/// A file that is open or has uncommitted content.
#[derive(Debug)]
pub(crate) struct File {
    pub ino: u64,
    /// Held by whoever changes the committed content: one at a time. Taken before `state`, and before those of files with higher numbers.
    content: Mutex<()>,
    state: Mutex<State>,
    /// Signalled when a piece on its way has arrived.
    arrived: Condvar,
}

/// What is known of it.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub buffer: Buffer,
    pub openers: u32,
    /// When the oldest uncommitted write came.
    pub dirty_since: Option<std::time::Instant>,
    /// It has no name any more: it goes when the last opener closes it.
    pub orphan: bool,
    /// It is gone.
    pub gone: bool,
    /// What a write in the background failed with; the next sync reports it.
    pub failed: Option<String>,
}

impl File {
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn content(&self) -> MutexGuard<'_, ()> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says that a piece arrived.
    pub fn arrived(&self) {
        self.arrived.notify_all();
    }

    /// Waits until no piece is on its way.
    pub fn wait_for_arrivals(&self) -> MutexGuard<'_, State> {
        self.arrived
            .wait_while(self.state(), |state| state.buffer.in_flight() > 0)
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// All such files.
#[derive(Debug)]
pub(crate) struct Table([Mutex<HashMap<u64, Arc<File>>>; SHARDS]);

impl Table {
    pub fn new() -> Self {
        Self(std::array::from_fn(|_| Mutex::default()))
    }

    fn shard(&self, ino: u64) -> MutexGuard<'_, HashMap<u64, Arc<File>>> {
        self.0[ino as usize % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file of a number, made if it is not there.
    pub fn enter(&self, ino: u64) -> Arc<File> {
        let new = || Arc::new(File { ino, content: Mutex::new(()), state: Mutex::default(), arrived: Condvar::new() });
        self.shard(ino).entry(ino).or_insert_with(new).clone()
    }

    /// The file of a number, if it is there.
    pub fn find(&self, ino: u64) -> Option<Arc<File>> {
        self.shard(ino).get(&ino).cloned()
    }

    /// Gives up a file, and takes it out of the table when nobody else has it, it is not open and has nothing uncommitted.
    pub fn leave(&self, file: Arc<File>) {
        let mut shard = self.shard(file.ino);
        // This one and the table's: nobody can get another while the shard is locked.
        let last = Arc::strong_count(&file) <= 2;
        let idle = last && {
            let state = file.state();
            state.openers == 0 && state.failed.is_none() && (state.gone || state.buffer.is_clean())
        };
        if idle {
            shard.remove(&file.ino);
        }
        // Before the shard is unlocked, so that of two who leave the second one sees that it is the last.
        drop(file);
    }

    /// The stripes that buffers refer to and no transaction names yet: set and record, each with the length of its blocks.
    pub fn uncommitted(&self) -> BTreeMap<(u64, u32), u32> {
        let mut found = BTreeMap::new();
        for shard in &self.0 {
            // Without handles of their own on the files, so that none is kept from leaving.
            for file in shard.lock().unwrap_or_else(PoisonError::into_inner).values() {
                found.extend(file.state().buffer.stripes().map(|span| (span.stripe(), span.block)));
            }
        }
        found
    }

    /// Those of one set.
    pub fn uncommitted_in(&self, set: u64) -> BTreeMap<u32, u32> {
        let all = self.uncommitted().into_iter();
        all.filter(|((of, _), _)| *of == set).map(|((_, record), block)| (record, block)).collect()
    }

    /// All files.
    pub fn all(&self) -> Vec<Arc<File>> {
        let mut all: Vec<Arc<File>> = Vec::new();
        for shard in &self.0 {
            all.extend(shard.lock().unwrap_or_else(PoisonError::into_inner).values().cloned());
        }
        all.sort_by_key(|file| file.ino);
        all
    }
}
