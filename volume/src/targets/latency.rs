//! How long operations usually take, and so when one is late.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long to wait for the slowest operation of a kind: a multiple of the usual time.
#[derive(Debug, Default)]
pub(crate) struct StragglerTimeout(AtomicU64);

impl StragglerTimeout {
    /// A read is late after this multiple of the usual time.
    const LATE_FACTOR: u64 = 10;
    /// No read is late earlier than this, so that a moment of load does not look like a hanging
    /// disk.
    pub(super) const MIN_LATE: Duration = Duration::from_millis(100);
    const MAX_LATE: Duration = Duration::from_secs(3);

    /// Records how long an operation took.
    pub fn record(&self, took: Duration) {
        let took = took.as_micros() as u64;
        let usual = self.0.load(Ordering::Relaxed);
        self.0.store(usual - usual / 8 + took / 8, Ordering::Relaxed);
    }

    /// How long to wait before a read counts as late.
    pub fn current(&self) -> Duration {
        self.current_within(Self::MIN_LATE..=Self::MAX_LATE)
    }

    /// The same with other limits.
    pub fn current_within(&self, limits: RangeInclusive<Duration>) -> Duration {
        let usual = self.0.load(Ordering::Relaxed);
        Duration::from_micros(usual.saturating_mul(Self::LATE_FACTOR)).clamp(*limits.start(), *limits.end())
    }
}
