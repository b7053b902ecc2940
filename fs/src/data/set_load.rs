//! An open chunk set, and what is on its way to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use volume::SetWriter;

/// An open set.
#[derive(Clone)]
pub(crate) struct Open {
    pub writer: Arc<SetWriter>,
    pub load: Arc<Load>,
}

/// What is on its way to a set.
#[derive(Default)]
pub(crate) struct Load {
    stripes: AtomicUsize,
    /// The bytes that it has got, those on their way included.
    bytes: AtomicU64,
}

/// A stripe on its way to a set.
pub(crate) struct Busy(Arc<Load>);

impl Load {
    pub fn stripes(&self) -> usize {
        self.stripes.load(Ordering::Relaxed)
    }

    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl Busy {
    pub fn new(load: Arc<Load>, bytes: usize) -> Self {
        load.stripes.fetch_add(1, Ordering::Relaxed);
        load.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        Self(load)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.stripes.fetch_sub(1, Ordering::Relaxed);
    }
}
