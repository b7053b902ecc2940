//! The jobs of one mirror, in order. Batches for a mirror that is not needed wait here for a moment
//! and become one write: that saves the mirror, and the machine, most writes and syncs.

use super::mirror::Job;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};
use volume::target::TargetFile;
use volume::{lock, unpoisoned};

/// How long a batch waits for others.
const HOLD_TIME: Duration = Duration::from_millis(20);
/// How many bytes wait at most.
pub(in crate::journal) const MAX_HELD_BYTES: usize = 64 << 10;

/// What a mirror does next.
pub(in crate::journal) enum Task {
    /// A job, and whether the journal thread must learn that it is done.
    Run(Job, bool),
    Append(Append),
}

/// Successive batches of one segment.
pub(in crate::journal) struct Append {
    pub file: TargetFile,
    pub at: u64,
    pub records: Vec<u8>,
    /// How many batches they are.
    pub batches: usize,
    since: Instant,
}

impl Append {
    fn is_continued_by(&self, file: TargetFile, at: u64) -> bool {
        self.file == file && self.at + self.records.len() as u64 == at
    }
}

/// A queue with one sender and one receiver.
#[derive(Default)]
pub(in crate::journal) struct Queue {
    state: Mutex<State>,
    ready: Condvar,
}

#[derive(Default)]
struct State {
    tasks: VecDeque<Task>,
    /// What is in the queue does not wait for more.
    hurry: bool,
    closed: bool,
}

impl Queue {
    /// Adds a job. What waits before it goes at once, too.
    pub fn push(&self, job: Job, copies: bool) {
        lock(&self.state).tasks.push_back(Task::Run(job, copies));
        self.ready.notify_one();
    }

    /// Adds a batch that may wait for others.
    pub fn hold(&self, file: TargetFile, at: u64, records: &[u8]) {
        let mut state = lock(&self.state);
        match state.tasks.back_mut() {
            Some(Task::Append(append)) if append.is_continued_by(file, at) => {
                append.records.extend_from_slice(records);
                append.batches += 1;
                if append.records.len() < MAX_HELD_BYTES {
                    // The receiver wakes up by itself.
                    return;
                }
            }
            _ => {
                let append = Append { file, at, records: records.into(), batches: 1, since: Instant::now() };
                state.tasks.push_back(Task::Append(append));
            }
        }
        drop(state);
        self.ready.notify_one();
    }

    /// Lets nothing that is in the queue wait any longer.
    pub fn hurry(&self) {
        let mut state = lock(&self.state);
        if !state.tasks.is_empty() {
            state.hurry = true;
            drop(state);
            self.ready.notify_one();
        }
    }

    /// Ends the receiver once the queue is empty.
    pub fn close(&self) {
        lock(&self.state).closed = true;
        self.ready.notify_one();
    }

    /// Waits for the next task; None when the queue is closed and empty.
    pub fn next(&self) -> Option<Task> {
        let mut state = lock(&self.state);
        loop {
            let waits = match state.tasks.front() {
                None if state.closed => return None,
                None => None,
                Some(Task::Append(append)) if append.records.len() < MAX_HELD_BYTES => {
                    Some(HOLD_TIME.saturating_sub(append.since.elapsed()))
                }
                Some(_) => Some(Duration::ZERO),
            };
            state = match waits {
                None => unpoisoned(self.ready.wait(state)),
                Some(rest) if rest > Duration::ZERO && state.tasks.len() == 1 && !state.hurry && !state.closed => {
                    unpoisoned(self.ready.wait_timeout(state, rest)).0
                }
                Some(_) => {
                    let task = state.tasks.pop_front();
                    state.hurry &= !state.tasks.is_empty();
                    return task;
                }
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plan::TxId;

    const SEGMENT: TargetFile = TargetFile::Journal { first: TxId(1) };

    fn append(task: Option<Task>) -> (TargetFile, u64, Vec<u8>, usize) {
        match task {
            Some(Task::Append(append)) => (append.file, append.at, append.records, append.batches),
            _ => panic!("it is no append"),
        }
    }

    #[test]
    fn successive_batches_become_one_write() {
        let queue = Queue::default();
        queue.hold(SEGMENT, 100, b"one");
        queue.hold(SEGMENT, 103, b"two");
        queue.hold(TargetFile::Journal { first: TxId(9) }, 106, b"three");
        queue.push(Box::new(|_| Ok(Duration::ZERO)), true);
        assert_eq!(append(queue.next()), (SEGMENT, 100, b"onetwo".to_vec(), 2));
        assert_eq!(append(queue.next()).2, b"three");
        assert!(matches!(queue.next(), Some(Task::Run(_, true))));
    }

    #[test]
    fn a_batch_waits_no_longer_than_it_may() {
        let queue = Queue::default();
        // The receiver sleeps in `next`, whatever comes first.
        std::thread::scope(|scope| {
            let received = scope.spawn(|| append(queue.next()));
            queue.hold(SEGMENT, 0, b"alone");
            assert_eq!(received.join().unwrap().3, 1);
        });
        let now = |begin: &dyn Fn()| {
            let at = Instant::now();
            begin();
            (append(queue.next()), at.elapsed())
        };
        let held = HOLD_TIME.as_millis();
        let (_, waited) = now(&|| queue.hold(SEGMENT, 5, b"x"));
        assert!(waited.as_millis() + 1 >= held, "{waited:?}");
        queue.hold(SEGMENT, 6, &[0; MAX_HELD_BYTES - 1]);
        queue.hold(SEGMENT, 5 + MAX_HELD_BYTES as u64, &[0]);
        assert_eq!(append(queue.next()).3, 2);
    }

    #[test]
    fn what_hurries_and_what_is_left_at_the_end_goes_at_once() {
        let queue = Queue::default();
        queue.hurry();
        queue.hold(SEGMENT, 0, b"x");
        queue.hurry();
        assert_eq!(append(queue.next()).3, 1);
        queue.hold(SEGMENT, 1, b"y");
        queue.close();
        assert_eq!(append(queue.next()).3, 1);
        assert!(queue.next().is_none());
    }
}
