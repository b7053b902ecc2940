//! A limit of bytes a second that several works share.

use plan::bucket::TokenBucket;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A token bucket and the clock that it goes by.
#[derive(Debug)]
pub struct Limit {
    begun: Instant,
    bucket: Mutex<TokenBucket>,
}

impl Limit {
    /// So many bytes a second.
    pub fn new(bytes_per_second: u64) -> Self {
        Self { begun: Instant::now(), bucket: Mutex::new(TokenBucket::new(bytes_per_second)) }
    }

    /// The rate.
    pub fn bytes_per_second(&self) -> u64 {
        self.bucket.lock().unwrap_or_else(PoisonError::into_inner).bytes_per_second()
    }

    /// Takes bytes; returns how long to wait before more are moved.
    pub(crate) fn take(&self, bytes: usize) -> Duration {
        let now = self.begun.elapsed();
        self.bucket.lock().unwrap_or_else(PoisonError::into_inner).take(bytes as u64, now)
    }
}
