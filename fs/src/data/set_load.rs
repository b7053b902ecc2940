//! An open chunk set, and what is on its way to it.

use plan::SetId;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use volume::SetWriter;

/// An open set.
#[derive(Clone)]
pub(crate) struct Open {
    pub writer: Arc<SetWriter>,
    pub load: Arc<Load>,
}

/// The user data that is on its way to a set, in bytes.
#[derive(Default)]
pub(crate) struct Load(AtomicU64);

impl Open {
    /// The number of the set.
    pub fn set(&self) -> SetId {
        self.writer.layout().set
    }
}

/// A stripe on its way to a set.
pub(crate) struct Busy {
    load: Arc<Load>,
    bytes: u64,
}

impl Load {
    pub fn on_way(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Busy {
    pub fn new(load: Arc<Load>, bytes: usize) -> Self {
        let bytes = bytes as u64;
        load.0.fetch_add(bytes, Ordering::Relaxed);
        Self { load, bytes }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.load.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
