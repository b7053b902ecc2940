//! Requests that come again because their answer was lost get the answer of the first time.

use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Answers of a session that are kept at most. A client has fewer requests in flight.
const KEPT: usize = 4096;

/// The requests of one session.
#[derive(Debug, Default)]
pub(super) struct Replay {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Requests that were not said to be answered: None while they are carried out.
    requests: BTreeMap<u64, Option<Bytes>>,
    /// All below are done with.
    answered: u64,
}

/// What to do with a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// Carry it out, and call `done`.
    New,
    /// It was carried out.
    Done(Bytes),
    /// It was carried out, and nobody knows how it ended.
    Forgotten,
    /// It is still being carried out.
    Busy,
}

impl Replay {
    /// A request came. Waits a while for one that is being carried out.
    pub fn come(self: &Arc<Self>, request: u64, answered: u64, patience: Duration) -> Seen {
        let end = Instant::now() + patience;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.answered = state.answered.max(answered);
        let first = state.answered;
        state.requests.retain(|&request, answer| request >= first || answer.is_none());
        while state.requests.len() >= KEPT {
            let Some(oldest) = state.requests.iter().find(|(_, answer)| answer.is_some()).map(|(&request, _)| request)
            else {
                break;
            };
            state.requests.remove(&oldest);
            state.answered = state.answered.max(oldest + 1);
        }
        loop {
            match state.requests.get(&request) {
                None if request < state.answered => return Seen::Forgotten,
                None => {
                    state.requests.insert(request, None);
                    return Seen::New;
                }
                Some(Some(answer)) => return Seen::Done(answer.clone()),
                Some(None) => {}
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Seen::Busy;
            }
            (state, _) = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// A new request was carried out. Without an answer it was not, and may come again.
    pub fn done(&self, request: u64, answer: Option<Bytes>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match answer {
            Some(answer) => _ = state.requests.insert(request, Some(answer)),
            None => _ = state.requests.remove(&request),
        }
        drop(state);
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_carried_out_once() {
        let replay = Arc::new(Replay::default());
        let now = Duration::ZERO;
        assert_eq!(replay.come(5, 5, now), Seen::New);
        assert_eq!(replay.come(5, 5, now), Seen::Busy);
        replay.done(5, Some(Bytes::from_static(b"five")));
        assert_eq!(replay.come(5, 5, now), Seen::Done(Bytes::from_static(b"five")));
        assert_eq!(replay.come(6, 5, now), Seen::New);
        replay.done(6, None);
        assert_eq!(replay.come(6, 5, now), Seen::New);
        assert_eq!(replay.come(7, 6, now), Seen::New);
        assert_eq!(replay.come(5, 5, now), Seen::Forgotten);
    }

    #[test]
    fn who_comes_again_waits_for_the_first() {
        let replay = Arc::new(Replay::default());
        assert_eq!(replay.come(1, 1, Duration::ZERO), Seen::New);
        let second = std::thread::spawn({
            let replay = replay.clone();
            move || replay.come(1, 1, Duration::from_secs(60))
        });
        replay.done(1, Some(Bytes::from_static(b"one")));
        assert_eq!(second.join().unwrap(), Seen::Done(Bytes::from_static(b"one")));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let replay = Arc::new(Replay::default());
        for request in 1..3 * KEPT as u64 {
            assert_eq!(replay.come(request, 0, Duration::ZERO), Seen::New);
            replay.done(request, Some(Bytes::new()));
        }
        assert!(replay.state.lock().unwrap().requests.len() <= KEPT);
        assert_eq!(replay.come(1, 0, Duration::ZERO), Seen::Forgotten);
    }
}
