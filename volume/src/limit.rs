//! A limit in bytes per second that several tasks share.

use crate::lock;
use plan::bucket::TokenBucket;
use std::sync::Mutex;
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
        lock(&self.bucket).bytes_per_second()
    }

    /// Takes `bytes` from the bucket and returns how long to wait before moving more.
    pub fn take(&self, bytes: u64) -> Duration {
        let now = self.begun.elapsed();
        lock(&self.bucket).take(bytes, now)
    }
}
