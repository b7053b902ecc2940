//! The exclusive lease: whether this is the only client of its volume, and until when it may rely
//! on that.

use crate::mutex::lock;
use crate::session::EXCLUSIVE_FOR;
use std::sync::Mutex;
use std::time::Instant;

/// The state of the exclusive lease.
#[derive(Debug, Default)]
pub(crate) struct ExclusiveLease(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    until: Option<Instant>,
    period: u64,
}

impl ExclusiveLease {
    /// Records the server's answer, received at `now`, to a request sent at `asked`. Call it in the
    /// order in which the server gave the answers.
    pub fn hear(&self, asked: Instant, others: u32, now: Instant) {
        let mut state = lock(&self.0);
        // Other clients may have come and gone between two periods.
        if others > 0 || state.until.is_none_or(|until| now > until) {
            state.period += 1;
        }
        state.until = (others == 0).then(|| asked + EXCLUSIVE_FOR);
    }

    /// The number of the current period without other clients. What was cached in an earlier period
    /// may be outdated.
    pub fn period(&self, now: Instant) -> Option<u64> {
        let state = lock(&self.0);
        state.until.filter(|&until| now <= until).map(|_| state.period)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_period_goes_on_as_long_as_answers_come_in_time() {
        let (exclusive, start) = (ExclusiveLease::default(), Instant::now());
        let at = |ms: u64| start + Duration::from_millis(ms);
        assert_eq!(exclusive.period(at(0)), None);
        exclusive.hear(at(0), 0, at(10));
        let first = exclusive.period(at(20));
        assert!(first.is_some());
        exclusive.hear(at(1000), 0, at(1400));
        assert_eq!(exclusive.period(at(2500)), first);
        assert_eq!(exclusive.period(at(2501)), None, "counted from the question");
        // The answer came after the end of the lease: other clients may have come and gone.
        exclusive.hear(at(2400), 0, at(2501));
        let second = exclusive.period(at(2502));
        assert!(second.is_some() && second != first);
        exclusive.hear(at(2600), 1, at(2610));
        assert_eq!(exclusive.period(at(2611)), None);
        exclusive.hear(at(2700), 0, at(2710));
        let third = exclusive.period(at(2711));
        assert!(third.is_some() && third != second);
    }
}
