//! How busy a target is: how many operations it gets, how many wait for it or run on it, and how
//! long its reads take.

use crate::lock;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Counts the operations on one target.
#[derive(Debug, Default)]
pub struct Meter(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Operations that wait or run, and since when it is so many.
    running: u32,
    since: Option<Instant>,
    waited: Duration,
    accesses: u64,
    read: Option<Duration>,
    /// Reads that left the target out since the last one that did not.
    left_out: u32,
}

/// What a meter has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metered {
    /// Operations that began so far.
    pub accesses: u64,
    /// For how long operations waited or ran, all added up. Divided by the time it took, it is how
    /// many there were on average (Little's law).
    pub waited: Duration,
}

/// An operation that waits or runs, until this is dropped.
#[derive(Debug)]
pub struct Metering(Arc<Meter>);

/// The weight of the newest read is one part in this many.
const NEWEST: u32 = 8;
/// The time of a read is counted for each begun piece of this many bytes, so that long reads and
/// short ones can be compared.
const PIECE_BYTES: usize = 64 << 10;
/// One read in this many goes to a target that is left out: it may be faster by now.
const TRIED_EACH: u32 = 16;

impl State {
    fn change(&mut self, running: u32) {
        let now = Instant::now();
        if let Some(since) = self.since {
            self.waited += now.saturating_duration_since(since) * self.running;
        }
        (self.running, self.since) = (running, Some(now));
    }
}

impl Meter {
    /// An operation begins to wait for the target.
    pub fn begin(self: &Arc<Self>) -> Metering {
        let mut state = lock(&self.0);
        let running = state.running + 1;
        state.change(running);
        state.accesses += 1;
        Metering(self.clone())
    }

    /// What was counted so far. Operations that run count up to now.
    pub fn counted(&self) -> Metered {
        let mut state = lock(&self.0);
        let running = state.running;
        state.change(running);
        Metered { accesses: state.accesses, waited: state.waited }
    }

    /// A read of this many bytes ended that took so long.
    pub(crate) fn note_read(&self, bytes: usize, took: Duration) {
        let took = took / (1 + bytes / PIECE_BYTES) as u32;
        let mut state = lock(&self.0);
        state.read = Some(state.read.map_or(took, |usual| usual - usual / NEWEST + took / NEWEST));
    }

    /// How long a read of a piece usually takes, if there was one.
    pub(crate) fn usual_read(&self) -> Option<Duration> {
        lock(&self.0).read
    }

    /// Whether a read may leave the target out: it must not for ever.
    pub(crate) fn may_leave_out(&self) -> bool {
        let mut state = lock(&self.0);
        state.left_out = (state.left_out + 1) % TRIED_EACH;
        state.left_out > 0
    }
}

impl Drop for Metering {
    fn drop(&mut self) {
        let mut state = lock(&self.0.0);
        let running = state.running.saturating_sub(1);
        state.change(running);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_adds_up() {
        let meter = Arc::new(Meter::default());
        assert_eq!(meter.counted(), Metered::default());
        let (begun, first) = (Instant::now(), meter.begin());
        let second = meter.begin();
        std::thread::sleep(Duration::from_millis(2));
        let counted = meter.counted();
        assert!(counted.accesses == 2 && counted.waited >= Duration::from_millis(4), "{counted:?}");
        assert!(counted.waited <= 2 * begun.elapsed());
        drop((first, second));
        let after = meter.counted();
        assert!(after.waited >= counted.waited);
        std::thread::sleep(Duration::from_millis(2));
        assert_eq!(meter.counted(), after, "nothing waits any more");
    }
}
