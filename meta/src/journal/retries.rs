//! When failed targets are retried. Each time that a target soon fails again, its back-off doubles.

use plan::TargetId;
use plan::backoff::BackOff;
use std::collections::BTreeMap;
use std::sync::Weak;
use std::time::{Duration, Instant};

/// The longest back-off, as a multiple of the first.
const MAX_BACKOFF_FACTOR: u32 = 64;

/// When each failed target is retried.
#[derive(Debug, Default)]
pub(super) struct Retries(BTreeMap<TargetId, Retry>);

#[derive(Debug)]
struct Retry {
    back_off: BackOff,
    /// Gone when the thread of the failed operation has ended. Until then the operation may still
    /// happen, and could hit files that the target has received since.
    running: Weak<()>,
}

impl Retries {
    /// Records that a target failed.
    pub fn failed(&mut self, id: TargetId, first: Duration, running: Weak<()>) {
        let now = Instant::now();
        let before = self.0.get(&id).map(|retry| retry.back_off).filter(|before| !before.is_old(4, now));
        self.0.insert(id, Retry { back_off: BackOff::after(before, first..=MAX_BACKOFF_FACTOR * first, now), running });
    }

    /// Makes all targets due now.
    pub fn now(&mut self) {
        let now = Instant::now();
        self.0.values_mut().for_each(|retry| retry.back_off.end(now));
    }

    /// Whether a target may be retried now.
    pub fn is_due(&self, id: TargetId) -> bool {
        let now = Instant::now();
        self.0.get(&id).is_none_or(|retry| retry.back_off.is_due(now) && retry.running.upgrade().is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_fails_again_soon_is_left_alone_for_longer() {
        let (id, first) = (TargetId(1), Duration::from_secs(1000));
        let mut retries = Retries::default();
        let mut pauses = Vec::new();
        for _ in 0..9 {
            retries.failed(id, first, Weak::new());
            pauses.push(retries.0[&id].back_off.pause().as_secs() / 1000);
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 64, 64]);
        assert!(!retries.is_due(id));
        retries.now();
        assert!(retries.is_due(id) && retries.is_due(TargetId(2)));
    }

    #[test]
    fn one_that_still_does_what_failed_is_not_tried() {
        let (mut retries, running) = (Retries::default(), std::sync::Arc::new(()));
        retries.failed(TargetId(1), Duration::ZERO, std::sync::Arc::downgrade(&running));
        assert!(!retries.is_due(TargetId(1)));
        drop(running);
        assert!(retries.is_due(TargetId(1)));
    }
}
