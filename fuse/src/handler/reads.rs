//! Threads for reads.
//!
//! A read may wait for a target. The threads that take requests from the kernel are few, since each
//! has a buffer of its own that should stay in the processor's cache. At most half of them read at
//! once; other threads answer the reads beyond, so that requests are taken at any time.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// The most threads beside those that take requests: two read-aheads of the longest (64 MiB, in
/// reads of 1 MiB). Further reads wait for one of them.
const MAX_THREADS: usize = 128;

/// How long a thread without work stays: it keeps a buffer of the longest read.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

type Read = Box<dyn FnOnce() + Send>;

/// Answers reads, each on its caller's thread or on one of its own. Its threads end when it is
/// dropped and all reads are answered.
#[derive(Debug)]
pub(super) struct Reads {
    /// Reads on the threads that take requests, and the most of them.
    at_once: AtomicUsize,
    most: usize,
    queue: Arc<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    reads: VecDeque<Read>,
    threads: usize,
    idle: usize,
    ended: bool,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} reads, {} threads, {} idle", self.reads.len(), self.threads, self.idle)
    }
}

impl Reads {
    /// For a mount with that many threads that take requests.
    pub fn new(threads: usize) -> Self {
        Self { at_once: AtomicUsize::new(0), most: (threads / 2).max(1), queue: Arc::default() }
    }

    /// Runs a read, now or on another thread.
    pub fn run(&self, read: impl FnOnce() + Send + 'static) {
        if self.at_once.fetch_add(1, Ordering::Relaxed) < self.most {
            read();
            self.at_once.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        self.at_once.fetch_sub(1, Ordering::Relaxed);
        if let Some(read) = self.queue.add(Box::new(read)) {
            read();
        }
    }
}

impl Drop for Reads {
    fn drop(&mut self) {
        fs::lock(&self.queue.state).ended = true;
        self.queue.changed.notify_all();
    }
}

impl Queue {
    /// Adds a read for the next idle thread, or for a new one. Gives it back if there is no thread
    /// to run it.
    fn add(self: &Arc<Self>, read: Read) -> Option<Read> {
        let mut state = fs::lock(&self.state);
        state.reads.push_back(read);
        if state.reads.len() <= state.idle || state.threads == MAX_THREADS {
            self.changed.notify_one();
            return None;
        }
        let queue = self.clone();
        match std::thread::Builder::new().name("weft-read".into()).spawn(move || queue.work()) {
            Ok(_) => state.threads += 1,
            Err(_) if state.threads > 0 => {}
            Err(_) => return state.reads.pop_back(),
        }
        None
    }

    fn work(&self) {
        let mut state = fs::lock(&self.state);
        loop {
            if let Some(read) = state.reads.pop_front() {
                drop(state);
                read();
                state = fs::lock(&self.state);
            } else if state.ended {
                return;
            } else {
                state.idle += 1;
                let (waited, how) = fs::unpoisoned(self.changed.wait_timeout(state, IDLE_TIMEOUT));
                state = waited;
                state.idle -= 1;
                if how.timed_out() && state.reads.is_empty() {
                    state.threads -= 1;
                    return;
                }
            }
        }
    }
}
