//! Connects long-running work with its caller: reports progress and tells the work to stop.

use crate::lock;
use crate::{Error, Limit, Result};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How often work that waits for a limit checks whether it is cancelled.
const CANCEL_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Shared with the worker threads: they update the progress and check for cancellation; the caller
/// reads the progress and cancels.
#[derive(Debug, Default)]
pub struct Control {
    cancelled: AtomicBool,
    progress: Arc<Progress>,
    limits: Mutex<Vec<Arc<Limit>>>,
}

/// The progress of some work, for a thread that shows it while the caller waits.
#[derive(Debug, Default)]
pub struct Progress {
    done_bytes: AtomicU64,
    total_bytes: AtomicU64,
}

impl Progress {
    /// User data processed so far, in bytes.
    pub fn done_bytes(&self) -> u64 {
        self.done_bytes.load(Ordering::Relaxed)
    }

    /// User data of the whole work, in bytes; 0 while that is unknown.
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes.load(Ordering::Relaxed)
    }
}

impl Control {
    /// Asks the work to stop at its next stripe. Signal handlers may call it.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// User data processed so far, in bytes.
    pub fn done_bytes(&self) -> u64 {
        self.progress.done_bytes()
    }

    /// User data of the whole work, in bytes; 0 while that is unknown.
    pub fn total_bytes(&self) -> u64 {
        self.progress.total_bytes()
    }

    /// The progress, to be shared with a thread that shows it.
    pub fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }

    /// Sets the amount of work, in bytes. For work that consists of several parts.
    pub fn start(&self, total_bytes: u64) {
        self.begin(total_bytes);
    }

    /// Adds `bytes` to the work that is done.
    pub fn count(&self, bytes: usize) {
        self.advance(bytes);
    }

    /// Checks whether the work may continue.
    ///
    /// # Errors
    /// `Interrupted` when the work was cancelled.
    pub fn go_on(&self) -> Result<()> {
        self.check()
    }

    /// Adds a rate limit. All limits apply together.
    pub fn limit(&self, limit: Arc<Limit>) {
        lock(&self.limits).push(limit);
    }

    /// Accounts for `bytes` that were moved, and waits until the limits allow more.
    pub(crate) fn pace(&self, bytes: usize) -> Result<()> {
        let limits = lock(&self.limits).clone();
        let wait = limits.iter().map(|limit| limit.take(bytes as u64)).max().unwrap_or_default();
        let begun = Instant::now();
        while let Some(left) = wait.checked_sub(begun.elapsed()).filter(|left| !left.is_zero()) {
            self.check()?;
            std::thread::sleep(left.min(CANCEL_CHECK_INTERVAL));
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
