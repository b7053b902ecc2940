//! A back-off: an operation that failed is retried after a pause, which doubles with each further
//! failure. The time is passed in.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

/// When to retry something that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackOff {
    due: Instant,
    pause: Duration,
}

impl BackOff {
    /// The back-off after a failure. `before` is the back-off of the previous failure, if that
    /// still counts.
    pub fn after(before: Option<Self>, pauses: RangeInclusive<Duration>, now: Instant) -> Self {
        let doubled = before.map(|before| before.pause.saturating_mul(2).min(*pauses.end()));
        let pause = doubled.unwrap_or(*pauses.start());
        Self { due: now + pause, pause }
    }

    /// The pause.
    pub fn pause(&self) -> Duration {
        self.pause
    }

    /// Whether the pause is over.
    pub fn is_due(&self, now: Instant) -> bool {
        self.due <= now
    }

    /// Whether nothing failed for `pauses` pauses after the end of this one. Then the failure no
    /// longer counts.
    pub fn is_old(&self, pauses: u32, now: Instant) -> bool {
        self.due + self.pause.saturating_mul(pauses) <= now
    }

    /// Ends the pause.
    pub fn end(&mut self, now: Instant) {
        self.due = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_doubles_up_to_its_limit() {
        let (now, second) = (Instant::now(), Duration::from_secs(1));
        let mut last = None;
        let mut pauses = Vec::new();
        for _ in 0..6 {
            last = Some(BackOff::after(last, second..=10 * second, now));
            pauses.extend(last.map(|it| it.pause().as_secs()));
        }
        assert_eq!(pauses, [1, 2, 4, 8, 10, 10]);
    }

    #[test]
    fn it_is_due_after_the_pause_and_old_some_pauses_later() {
        let (now, second) = (Instant::now(), Duration::from_secs(1));
        let mut it = BackOff::after(None, second..=second, now);
        assert!(!it.is_due(now) && it.is_due(now + second));
        assert!(!it.is_old(4, now + 4 * second) && it.is_old(4, now + 5 * second));
        it.end(now);
        assert!(it.is_due(now));
    }
}
