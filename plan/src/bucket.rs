//! A token bucket: how long a taker of bytes waits, so that the rate of bytes a second is kept. The
//! time is passed in.

use std::time::Duration;

/// Bytes that may be taken at once, as a time at full rate.
const BURST_TIME: Duration = Duration::from_millis(100);

/// Holds takers to a rate. All times count from the same moment, whichever it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    bytes_per_second: u64,
    /// When everything that was taken is paid for.
    paid: Duration,
}

impl TokenBucket {
    /// `bytes_per_second` is the rate; 0 counts as 1.
    pub fn new(bytes_per_second: u64) -> Self {
        Self { bytes_per_second: bytes_per_second.max(1), paid: Duration::ZERO }
    }

    /// The rate.
    pub fn bytes_per_second(&self) -> u64 {
        self.bytes_per_second
    }

    /// Takes bytes; returns how long to wait before the next are taken.
    pub fn take(&mut self, bytes: u64, now: Duration) -> Duration {
        let price = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_second);
        // An idle taker has saved no more than a burst.
        let from = self.paid.max(now.saturating_sub(BURST_TIME));
        self.paid = from.saturating_add(Duration::from_nanos(u64::try_from(price).unwrap_or(u64::MAX)));
        self.paid.saturating_sub(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// A taker that waits as told takes at the rate, plus at most a burst and one piece.
        #[test]
        fn the_rate_is_kept(
            rate in 1u64..1 << 34,
            takes in prop::collection::vec((0u64..1 << 24, 0u64..2_000_000_000), 1..60),
        ) {
            let (mut bucket, begun) = (TokenBucket::new(rate), Duration::from_secs(1000));
            let (mut now, mut sum, mut longest) = (begun, 0u128, 0);
            for (bytes, idle) in takes {
                now += bucket.take(bytes, now) + Duration::from_nanos(idle);
                sum += u128::from(bytes);
                longest = longest.max(bytes);
            }
            let allowed = u128::from(rate) * (now - begun + BURST_TIME).as_nanos() / 1_000_000_000;
            prop_assert!(sum <= allowed + u128::from(longest) + 1, "{sum} of {allowed}");
        }
    }

    #[test]
    fn who_never_idles_is_not_held_below_the_rate() {
        let mut bucket = TokenBucket::new(1000);
        let mut now = Duration::ZERO;
        (0..100).for_each(|_| now += bucket.take(500, now));
        assert_eq!(now, Duration::from_secs(50));
        // A second of idleness saves no more than a burst.
        now += Duration::from_secs(1);
        assert_eq!(bucket.take(100, now), Duration::ZERO);
        assert_eq!(bucket.take(100, now), Duration::from_millis(100));
    }

    #[test]
    fn nothing_overflows() {
        let mut bucket = TokenBucket::new(0);
        assert_eq!(bucket.bytes_per_second(), 1);
        bucket.take(u64::MAX, Duration::MAX);
        assert_eq!(bucket.take(u64::MAX, Duration::MAX), Duration::ZERO);
    }
}
