//! What mirrors have answered. The journal thread is woken only when its batch may be durable, or
//! when it has to act: with m+2 mirrors it would otherwise wake up for each of them in every batch.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use volume::{lock, unpoisoned};

/// What a mirror answers.
#[derive(Debug)]
pub(in crate::journal) struct Answer {
    /// The key of the mirror.
    pub key: u64,
    /// How many of its jobs, the oldest ones that it has not answered yet, had this result.
    pub jobs: usize,
    pub result: io::Result<Duration>,
}

/// A queue of answers with several senders and one receiver.
#[derive(Clone, Default)]
pub(in crate::journal) struct Answers(Arc<(Mutex<State>, Condvar)>);

#[derive(Default)]
struct State {
    /// Each answer, and whether it is urgent.
    answers: VecDeque<(Answer, bool)>,
    /// The receiver sleeps until there are this many, or an urgent one; 0 when it does not sleep.
    wanted: usize,
}

impl Answers {
    /// Adds an answer. An urgent one wakes the receiver at once.
    pub fn send(&self, answer: Answer, urgent: bool) {
        let (state, ready) = &*self.0;
        let mut state = lock(state);
        state.answers.push_back((answer, urgent));
        let enough = state.wanted > 0 && (urgent || state.answers.len() >= state.wanted);
        if enough {
            state.wanted = 0;
            drop(state);
            ready.notify_one();
        }
    }

    /// The oldest answer, if there is one.
    pub fn next(&self) -> Option<Answer> {
        lock(&self.0.0).answers.pop_front().map(|(answer, _)| answer)
    }

    /// The oldest answer, once there are as many as wanted or an urgent one came; or what there is
    /// after the timeout.
    pub fn wait(&self, wanted: usize, timeout: Duration) -> Option<Answer> {
        let (state, ready) = &*self.0;
        let mut state = lock(state);
        let urgent = state.answers.iter().any(|(_, urgent)| *urgent);
        if !urgent && state.answers.len() < wanted {
            state.wanted = wanted;
            state = unpoisoned(ready.wait_timeout_while(state, timeout, |state| state.wanted > 0)).0;
            state.wanted = 0;
        }
        state.answers.pop_front().map(|(answer, _)| answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    const LONG: Duration = Duration::from_secs(600);

    fn done(key: u64) -> Answer {
        Answer { key, jobs: 1, result: Ok(Duration::ZERO) }
    }

    #[test]
    fn the_receiver_sleeps_until_there_are_enough() {
        let answers = Answers::default();
        answers.send(done(1), false);
        assert_eq!(answers.wait(1, LONG).unwrap().key, 1);
        assert!(answers.wait(1, Duration::ZERO).is_none());
        let sender = answers.clone();
        let all = thread::spawn(move || (1..=3).for_each(|key| sender.send(done(key), false)));
        for key in 1..=3 {
            assert_eq!(answers.wait(4 - key as usize, LONG).unwrap().key, key);
        }
        all.join().unwrap();
        assert!(answers.next().is_none());
    }

    #[test]
    fn a_failure_and_an_urgent_answer_wake_at_once() {
        let answers = Answers::default();
        answers.send(Answer { result: Err(io::ErrorKind::StorageFull.into()), ..done(1) }, true);
        assert!(answers.wait(9, LONG).unwrap().result.is_err());
        let sender = answers.clone();
        let copied = thread::spawn(move || sender.send(done(2), true));
        assert_eq!(answers.wait(9, LONG).unwrap().key, 2);
        copied.join().unwrap();
    }
}
