//! Pauses of threads that must not delay the end of the file system.

use std::sync::{Condvar, Mutex};
use std::time::Duration;
use volume::{lock, unpoisoned};

/// The pauses of the helpers, which end when the file system is closed: a handover must not wait
/// for them.
#[derive(Debug, Default)]
pub(crate) struct Pauses {
    over: Mutex<bool>,
    ends: Condvar,
}

impl Pauses {
    /// Waits. Returns whether to go on, that is, whether the file system is not closed.
    pub fn pause(&self, time: Duration) -> bool {
        let waited = self.ends.wait_timeout_while(lock(&self.over), time, |over| !*over);
        !*unpoisoned(waited).0
    }

    /// Ends them for good.
    pub fn end(&self) {
        *lock(&self.over) = true;
        self.ends.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn an_end_ends_a_pause_and_all_later_ones() {
        let pauses = Arc::new(Pauses::default());
        assert!(pauses.pause(Duration::ZERO));
        let other = pauses.clone();
        let helper = std::thread::spawn(move || while other.pause(Duration::from_secs(600)) {});
        pauses.end();
        helper.join().unwrap();
        assert!(!pauses.pause(Duration::from_secs(600)));
    }
}
