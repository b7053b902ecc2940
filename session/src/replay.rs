//! Replay of answers: a client repeats a request when its answer got lost, and gets the answer of
//! the first time.

use crate::ranks::Answers;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar};
use std::time::{Duration, Instant};
use volume::ranked::Ranked;

/// Maximum number of answers kept for a session. A client has fewer requests in flight.
const MAX_ANSWERS: usize = 4096;
/// Maximum number of threads that wait for the same request. When more come, the oldest stop
/// waiting: their client has given up those connections.
const MAX_WAITING_THREADS: u64 = 4;

/// The requests of one session.
#[derive(Debug, Default)]
pub struct Replay {
    state: Ranked<State, Answers>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Requests that the client has not confirmed.
    requests: BTreeMap<u64, RequestRecord>,
    /// All requests below this number are done.
    answered: u64,
}

/// A request that has arrived.
#[derive(Debug)]
struct RequestRecord {
    operation: u16,
    /// How often it was repeated.
    again: u64,
    /// None while the request is being executed.
    answer: Option<Bytes>,
    /// Its execution panicked. Whether it changed anything is not known.
    panicked: bool,
}

impl RequestRecord {
    fn has_ended(&self) -> bool {
        self.answer.is_some() || self.panicked
    }
}

/// A new request that is being executed. Dropped before `done`, it has panicked.
pub struct Running<'a> {
    replay: &'a Replay,
    request: u64,
    done: bool,
}

impl Running<'_> {
    /// Ends the request. Without an answer it was not executed, and may be repeated.
    pub fn done(mut self, answer: Option<Bytes>) {
        self.done = true;
        self.replay.done(self.request, answer);
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if !self.done {
            let mut state = self.replay.state.lock();
            if let Some(record) = state.requests.get_mut(&self.request) {
                record.panicked = true;
            }
            drop(state);
            self.replay.changed.notify_all();
        }
    }
}

/// What to do with a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Seen {
    /// Execute it, as [`Replay::running`].
    New,
    /// It was executed; this is the answer.
    Done(Bytes),
    /// It was executed, and its answer is not known.
    Forgotten,
    /// It is still being executed.
    Busy,
    /// Another request has this number. No correct client sends that.
    Another,
}

impl Replay {
    /// Registers a request. Waits up to `timeout` for one that is being executed.
    pub fn come(self: &Arc<Self>, request: u64, operation: u16, answered: u64, timeout: Duration) -> Seen {
        let end = Instant::now() + timeout;
        let mut state = self.state.lock();
        state.answered = state.answered.max(answered);
        let first = state.answered;
        state.requests.retain(|&request, record| request >= first || !record.has_ended());
        while state.requests.len() >= MAX_ANSWERS {
            let oldest = state.requests.iter().find(|(_, record)| record.has_ended());
            let Some(oldest) = oldest.map(|(&request, _)| request) else { break };
            state.requests.remove(&oldest);
            state.answered = state.answered.max(oldest.saturating_add(1));
        }
        let mut own = None;
        loop {
            let State { requests, answered } = &mut *state;
            match requests.get_mut(&request) {
                None if request < *answered => return Seen::Forgotten,
                None => {
                    requests.insert(request, RequestRecord { operation, again: 0, answer: None, panicked: false });
                    return Seen::New;
                }
                Some(record) if record.operation != operation => return Seen::Another,
                Some(RequestRecord { answer: Some(answer), .. }) => return Seen::Done(answer.clone()),
                Some(RequestRecord { panicked: true, .. }) => return Seen::Forgotten,
                Some(record) => {
                    let own = *own.get_or_insert_with(|| {
                        record.again += 1;
                        self.changed.notify_all();
                        record.again
                    });
                    if record.again >= own + MAX_WAITING_THREADS {
                        return Seen::Busy;
                    }
                }
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Seen::Busy;
            }
            state = state.wait_timeout(&self.changed, left);
        }
    }

    /// A new request, while it is executed.
    pub fn running(&self, request: u64) -> Running<'_> {
        Running { replay: self, request, done: false }
    }

    fn done(&self, request: u64, answer: Option<Bytes>) {
        let mut state = self.state.lock();
        if answer.is_none() {
            state.requests.remove(&request);
        } else if let Some(record) = state.requests.get_mut(&request) {
            record.answer = answer;
        }
        drop(state);
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPERATION: u16 = 11;

    #[test]
    fn a_request_is_carried_out_once() {
        let replay = Arc::new(Replay::default());
        let now = Duration::ZERO;
        assert_eq!(replay.come(5, OPERATION, 5, now), Seen::New);
        assert_eq!(replay.come(5, OPERATION, 5, now), Seen::Busy);
        replay.done(5, Some(Bytes::from_static(b"five")));
        assert_eq!(replay.come(5, OPERATION, 5, now), Seen::Done(Bytes::from_static(b"five")));
        assert_eq!(replay.come(6, OPERATION, 5, now), Seen::New);
        replay.done(6, None);
        assert_eq!(replay.come(6, OPERATION, 5, now), Seen::New);
        assert_eq!(replay.come(7, OPERATION, 6, now), Seen::New);
        assert_eq!(replay.come(5, OPERATION, 5, now), Seen::Forgotten);
    }

    #[test]
    fn who_comes_again_waits_for_the_first() {
        let replay = Arc::new(Replay::default());
        assert_eq!(replay.come(1, OPERATION, 1, Duration::ZERO), Seen::New);
        let second = std::thread::spawn({
            let replay = replay.clone();
            move || replay.come(1, OPERATION, 1, Duration::from_secs(60))
        });
        replay.done(1, Some(Bytes::from_static(b"one")));
        assert_eq!(second.join().unwrap(), Seen::Done(Bytes::from_static(b"one")));
    }

    /// It may have changed something, so it is not executed a second time.
    #[test]
    fn who_comes_again_after_a_panic_does_not_wait() {
        let replay = Arc::new(Replay::default());
        let again = |replay: Arc<Replay>| move || replay.come(1, OPERATION, 1, Duration::from_secs(600));
        assert_eq!(replay.come(1, OPERATION, 1, Duration::ZERO), Seen::New);
        let waiting = std::thread::spawn(again(replay.clone()));
        let executed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _running = replay.running(1);
            panic!("a defect");
        }));
        assert!(executed.is_err());
        assert_eq!(waiting.join().unwrap(), Seen::Forgotten);
        assert_eq!(again(replay.clone())(), Seen::Forgotten);
        // It is forgotten like others when the client has its answers.
        assert_eq!(replay.come(2, OPERATION, 2, Duration::ZERO), Seen::New);
        assert_eq!(replay.state.lock().requests.len(), 1);
    }

    #[test]
    fn a_number_is_that_of_one_request() {
        let replay = Arc::new(Replay::default());
        let long = Duration::from_secs(600);
        assert_eq!(replay.come(1, OPERATION, 1, Duration::ZERO), Seen::New);
        assert_eq!(replay.come(1, OPERATION + 1, 1, long), Seen::Another, "at once");
        replay.done(1, Some(Bytes::new()));
        assert_eq!(replay.come(1, OPERATION + 1, 1, long), Seen::Another);
        assert_eq!(replay.come(1, OPERATION, 1, long), Seen::Done(Bytes::new()));
    }

    /// However often a request is repeated, only few threads wait for it. The thread of the
    /// client's current connection is among them.
    #[test]
    fn few_wait_for_the_same_request_and_these_are_the_last() {
        let replay = Arc::new(Replay::default());
        assert_eq!(replay.come(1, OPERATION, 1, Duration::ZERO), Seen::New);
        let again = |replay: Arc<Replay>| move || replay.come(1, OPERATION, 1, Duration::from_secs(600));
        let mut waiting: Vec<_> = (1..=3 * MAX_WAITING_THREADS)
            .map(|number| {
                let thread = std::thread::spawn(again(replay.clone()));
                while replay.state.lock().requests[&1].again < number {
                    std::thread::yield_now();
                }
                thread
            })
            .collect();
        let last = waiting.split_off(2 * MAX_WAITING_THREADS as usize);
        for first in waiting {
            assert_eq!(first.join().unwrap(), Seen::Busy);
        }
        replay.done(1, Some(Bytes::from_static(b"one")));
        for last in last {
            assert_eq!(last.join().unwrap(), Seen::Done(Bytes::from_static(b"one")));
        }
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let replay = Arc::new(Replay::default());
        for request in 1..3 * MAX_ANSWERS as u64 {
            assert_eq!(replay.come(request, OPERATION, 0, Duration::ZERO), Seen::New);
            replay.done(request, Some(Bytes::new()));
        }
        assert!(replay.state.lock().requests.len() <= MAX_ANSWERS);
        assert_eq!(replay.come(1, OPERATION, 0, Duration::ZERO), Seen::Forgotten);
    }
}
