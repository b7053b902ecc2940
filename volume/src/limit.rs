//! A limit in bytes per second that several tasks share.

use plan::bucket::TokenBucket;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A token bucket and the clock that drives it.
#[derive(Debug)]
pub struct Limit {
    begun: Instant,
    bucket: Mutex<TokenBucket>,
}

impl Limit {
    /// Allows `bytes_per_second` bytes per second.
    pub fn new(bytes_per_second: u64) -> Self {
        Self { begun: Instant::now(), bucket: Mutex::new(TokenBucket::new(bytes_per_second)) }
    }

    /// The rate in bytes per second.
    pub fn bytes_per_second(&self) -> u64 {
        self.bucket.lock().unwrap_or_else(PoisonError::into_inner).bytes_per_second()
    }

    /// Takes `bytes` from the bucket and returns how long to wait before moving more.
    pub fn take(&self, bytes: u64) -> Duration {
        let now = self.begun.elapsed();
        self.bucket.lock().unwrap_or_else(PoisonError::into_inner).take(bytes, now)
    }
}
