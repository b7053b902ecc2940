//! The thread between long work and whoever waits for it: how far it is, and whether it should stop.

use crate::{Error, Result};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Shared with the worker threads: they count and look, the caller reads and cancels.
#[derive(Debug, Default)]
pub struct Control {
    cancelled: AtomicBool,
    done_bytes: AtomicU64,
    total_bytes: AtomicU64,
}

impl Control {
    /// Asks the work to stop at its next stripe. Signal handlers may call it.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// User data that is done.
    pub fn done_bytes(&self) -> u64 {
        self.done_bytes.load(Ordering::Relaxed)
    }

    /// User data of the whole work; 0 while that is not known.
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes.load(Ordering::Relaxed)
    }

    /// Says how much there is to do. For work that is put together of others.
    pub fn start(&self, total_bytes: u64) {
        self.begin(total_bytes);
    }

    /// Says that so much more is done.
    pub fn count(&self, bytes: usize) {
        self.advance(bytes);
    }

    /// Whether to go on.
    ///
    /// # Errors
    /// `Interrupted` when the work was cancelled.
    pub fn go_on(&self) -> Result<()> {
        self.check()
    }

    pub(crate) fn begin(&self, total_bytes: u64) {
        self.done_bytes.store(0, Ordering::Relaxed);
        self.total_bytes.store(total_bytes, Ordering::Relaxed);
    }

    pub(crate) fn advance(&self, bytes: usize) {
        self.done_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn check(&self) -> Result<()> {
        if self.cancelled.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
    }
}
