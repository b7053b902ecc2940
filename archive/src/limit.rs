//! A limit of bytes per second that the workers of a process share.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Rate that was not used is saved up, at most as much as flows in this time.
const BURST: Duration = Duration::from_millis(100);

/// Lets a number of bytes per second pass.
#[derive(Debug)]
pub struct Limiter {
    bytes_per_second: Option<u64>,
    /// The time at which everything that has been let pass will have passed at the limited rate.
    free: Mutex<Instant>,
}

impl Limiter {
    /// A limiter; None lets everything pass at once.
    pub fn new(bytes_per_second: Option<u64>) -> Self {
        Self { bytes_per_second, free: Mutex::new(Instant::now()) }
    }

    /// Waits until this many bytes may pass.
    pub fn pass(&self, bytes: u64) {
        let Some(rate) = self.bytes_per_second else { return };
        let wait = {
            let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
            let now = Instant::now();
            let from = (*free).max(now.checked_sub(BURST).unwrap_or(now));
            *free = from + Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
            free.saturating_duration_since(now)
        };
        std::thread::sleep(wait);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_passes_than_is_allowed() {
        let limiter = Limiter::new(Some(1_000_000));
        let begun = Instant::now();
        (0..30).for_each(|_| limiter.pass(10_000));
        assert!(begun.elapsed() >= Duration::from_millis(190), "{:?}", begun.elapsed());
        Limiter::new(None).pass(u64::MAX);
    }
}
