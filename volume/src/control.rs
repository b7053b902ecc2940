//! The thread between long work and whoever waits for it: how far it is, and whether it should stop.

use crate::{Error, Limit, Result};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Who waits to keep a limit looks so often whether to stop.
const LOOK: Duration = Duration::from_millis(50);

/// Shared with the worker threads: they count and look, the caller reads and cancels.
#[derive(Debug, Default)]
pub struct Control {
    cancelled: AtomicBool,
    progress: Arc<Progress>,
    limits: Mutex<Vec<Arc<Limit>>>,
}

/// How far some work is, for whoever shows it beside the caller.
#[derive(Debug, Default)]
pub struct Progress {
    done_bytes: AtomicU64,
    total_bytes: AtomicU64,
}

impl Progress {
    /// User data that is done.
    pub fn done_bytes(&self) -> u64 {
        self.done_bytes.load(Ordering::Relaxed)
    }

    /// User data of the whole work; 0 while that is not known.
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes.load(Ordering::Relaxed)
    }
}

impl Control {
    /// Asks the work to stop at its next stripe. Signal handlers may call it.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// User data that is done.
    pub fn done_bytes(&self) -> u64 {
        self.progress.done_bytes()
    }

    /// User data of the whole work; 0 while that is not known.
    pub fn total_bytes(&self) -> u64 {
        self.progress.total_bytes()
    }

    /// How far it is.
    pub fn progress(&self) -> &Arc<Progress> {
        &self.progress
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

    /// Holds the work to a limit, beside those that there are.
    pub fn limit(&self, limit: Arc<Limit>) {
        self.limits.lock().unwrap_or_else(PoisonError::into_inner).push(limit);
    }

    /// So many bytes were moved: returns when more may be.
    pub(crate) fn pace(&self, bytes: usize) -> Result<()> {
        let limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let wait = limits.iter().map(|limit| limit.take(bytes)).max().unwrap_or_default();
        let begun = Instant::now();
        while let Some(left) = wait.checked_sub(begun.elapsed()).filter(|left| !left.is_zero()) {
            self.check()?;
            std::thread::sleep(left.min(LOOK));
        }
        self.check()
    }

    pub(crate) fn begin(&self, total_bytes: u64) {
        self.progress.done_bytes.store(0, Ordering::Relaxed);
        self.progress.total_bytes.store(total_bytes, Ordering::Relaxed);
    }

    pub(crate) fn advance(&self, bytes: usize) {
        self.progress.done_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn check(&self) -> Result<()> {
        if self.cancelled.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
    }
}
