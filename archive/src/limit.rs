//! A limit of bytes per second that the workers of a process share.

use volume::Limit;

/// Lets a number of bytes per second pass.
#[derive(Debug)]
pub struct Limiter(Option<Limit>);

impl Limiter {
    /// A limiter; None lets everything pass at once.
    pub fn new(bytes_per_second: Option<u64>) -> Self {
        Self(bytes_per_second.map(Limit::new))
    }

    /// Waits until this many bytes may pass.
    pub fn pass(&self, bytes: u64) {
        if let Some(limit) = &self.0 {
            std::thread::sleep(limit.take(bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn no_more_passes_than_is_allowed() {
        let limiter = Limiter::new(Some(1_000_000));
        let begun = Instant::now();
        (0..30).for_each(|_| limiter.pass(10_000));
        assert!(begun.elapsed() >= Duration::from_millis(190), "{:?}", begun.elapsed());
        Limiter::new(None).pass(u64::MAX);
    }
}
