//! The exclusive lease: whether this is the only client of its volume, and until when it may rely
//! on that. All times are [`boot_time`](volume::target::boot_time): a server does not wait for a
//! client whose machine is suspended.

use session::EXCLUSIVE_LEASE;
use std::sync::Mutex;
use std::time::Duration;
use volume::lock;

/// The state of the exclusive lease.
#[derive(Debug, Default)]
pub(crate) struct ExclusiveLease(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    until: Option<Duration>,
    period: u64,
    /// How often the session was reclaimed from another server.
    reclaims: u64,
}

/// How often the session had been reclaimed when a request was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reclaims(u64);

impl ExclusiveLease {
    /// A request is about to be sent.
    pub fn asking(&self) -> Reclaims {
        Reclaims(lock(&self.0).reclaims)
    }

    /// The session is about to be reclaimed. Returns whether the lease goes on: the next server
    /// must know.
    pub fn reclaim(&self, now: Duration) -> bool {
        let mut state = lock(&self.0);
        state.reclaims += 1;
        state.until.is_some_and(|until| now <= until)
    }

    /// Records the server's answer, received at `now`, to a request sent at `asked`. Call it in the
    /// order in which the server gave the answers. An answer of a server before the last reclaim
    /// counts for nothing.
    pub fn hear(&self, before: Reclaims, asked: Duration, others: u32, now: Duration) {
        let mut state = lock(&self.0);
        if state.reclaims != before.0 {
            return;
        }
        // Other clients may have come and gone between two periods.
        if others > 0 || state.until.is_none_or(|until| now > until) {
            state.period += 1;
        }
        state.until = (others == 0).then(|| asked + EXCLUSIVE_LEASE);
    }

    /// The number of the current period without other clients. What was cached in an earlier period
    /// may be outdated.
    pub fn period(&self, now: Duration) -> Option<u64> {
        let state = lock(&self.0);
        state.until.filter(|&until| now <= until).map(|_| state.period)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use volume::target::boot_time;

    #[test]
    fn a_period_goes_on_as_long_as_answers_come_in_time() {
        let (exclusive, start) = (ExclusiveLease::default(), boot_time());
        let at = |ms: u64| start + Duration::from_millis(ms);
        assert_eq!(exclusive.period(at(0)), None);
        exclusive.hear(exclusive.asking(), at(0), 0, at(10));
        let first = exclusive.period(at(20));
        assert!(first.is_some());
        exclusive.hear(exclusive.asking(), at(1000), 0, at(1400));
        assert_eq!(exclusive.period(at(2500)), first);
        assert_eq!(exclusive.period(at(2501)), None, "counted from the question");
        // The answer came after the end of the lease: other clients may have come and gone.
        exclusive.hear(exclusive.asking(), at(2400), 0, at(2501));
        let second = exclusive.period(at(2502));
        assert!(second.is_some() && second != first);
        exclusive.hear(exclusive.asking(), at(2600), 1, at(2610));
        assert_eq!(exclusive.period(at(2611)), None);
        exclusive.hear(exclusive.asking(), at(2700), 0, at(2710));
        let third = exclusive.period(at(2711));
        assert!(third.is_some() && third != second);
    }

    #[test]
    fn an_answer_of_the_server_before_does_not_extend_the_lease() {
        let (exclusive, start) = (ExclusiveLease::default(), boot_time());
        let before = exclusive.asking();
        assert!(!exclusive.reclaim(start));
        exclusive.hear(before, start, 0, start);
        assert_eq!(exclusive.period(start), None);
        exclusive.hear(exclusive.asking(), start, 0, start);
        assert!(exclusive.reclaim(start) && exclusive.period(start).is_some(), "it goes on");
    }
}
