//! The threads of one target and their queue, and which operations callers still wait for.

use super::lock;
use crate::target::Target;
use crate::unpoisoned;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::Builder;

/// Threads per target.
const THREADS_PER_TARGET: usize = 2;
/// Operations that may wait for a thread of a target. Each may hold a stripe in memory.
const MAX_QUEUED_OPERATIONS: usize = 32;

/// What a thread of a target runs.
pub(super) type Task = Box<dyn FnOnce(&dyn Target) + Send>;

/// The threads of a target. They end when it is dropped and the queue is empty.
#[derive(Debug)]
pub(super) struct Pool {
    tasks: SyncSender<Task>,
    /// The receiving end of the queue, until the threads start.
    idle: Mutex<Option<Receiver<Task>>>,
    /// How many of the threads there are, once they are started.
    threads: AtomicUsize,
    /// Operations that wait for a thread or run on one.
    queued: Arc<AtomicUsize>,
    /// Operations that the caller gave up and that have not ended.
    late: AtomicUsize,
    /// Reads that were hedged and have not ended.
    slow: AtomicUsize,
}

/// The stage of an operation.
#[derive(Debug)]
pub(super) enum Stage {
    Queued,
    Begun,
    Ended,
    /// The caller gave up; the target counts as hanging.
    GivenUp,
    /// The caller hedged the operation; that says only that another way was faster.
    Hedged,
}

fn work(target: &dyn Target, queue: &Mutex<Receiver<Task>>, queued: &AtomicUsize) {
    loop {
        let task = lock(queue).recv();
        let Ok(task) = task else { return };
        task(target);
        queued.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Runs an operation. If it panics, its caller gets an error and the thread goes on.
pub(super) fn caught<T>(operation: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    // What the operation shares with others is behind locks that may be poisoned.
    catch_unwind(AssertUnwindSafe(operation)).unwrap_or_else(|_| Err(io::Error::other("an operation panicked")))
}

impl Default for Pool {
    fn default() -> Self {
        let (tasks, queue) = sync_channel(MAX_QUEUED_OPERATIONS);
        Self {
            tasks,
            idle: Mutex::new(Some(queue)),
            threads: AtomicUsize::new(THREADS_PER_TARGET),
            queued: Arc::default(),
            late: AtomicUsize::new(0),
            slow: AtomicUsize::new(0),
        }
    }
}

impl Pool {
    /// Puts an operation into the queue; returns it if the queue is full. The first one starts the
    /// threads.
    pub fn submit(&self, target: &Arc<dyn Target>, task: Task) -> Result<(), Task> {
        let mut idle = lock(&self.idle);
        if let Some(queue) = idle.take() {
            let queue = Arc::new(Mutex::new(queue));
            let begin = |_: &usize| {
                let (target, queue, queued) = (target.clone(), queue.clone(), self.queued.clone());
                Builder::new().spawn(move || work(&*target, &queue, &queued)).is_ok()
            };
            // The system may have no more threads. Then the next operation tries again.
            let begun = (0..THREADS_PER_TARGET).filter(begin).count();
            self.threads.store(begun, Ordering::Relaxed);
            if begun == 0 {
                *idle = Arc::into_inner(queue).map(|queue| unpoisoned(queue.into_inner()));
                return Err(task);
            }
        }
        drop(idle);
        self.queued.fetch_add(1, Ordering::Relaxed);
        match self.tasks.try_send(task) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(task) | TrySendError::Disconnected(task)) => {
                self.queued.fetch_sub(1, Ordering::Relaxed);
                Err(task)
            }
        }
    }

    /// Runs an operation unless the caller gave it up before.
    pub fn perform<T>(&self, stage: &Mutex<Stage>, operation: impl FnOnce() -> io::Result<T>) -> Option<io::Result<T>> {
        {
            let mut stage = lock(stage);
            if matches!(*stage, Stage::GivenUp | Stage::Hedged) {
                return None;
            }
            *stage = Stage::Begun;
        }
        let result = caught(operation);
        match std::mem::replace(&mut *lock(stage), Stage::Ended) {
            Stage::GivenUp => _ = self.late.fetch_sub(1, Ordering::Relaxed),
            Stage::Hedged => _ = self.slow.fetch_sub(1, Ordering::Relaxed),
            _ => {}
        }
        Some(result)
    }

    /// Hedges a read: the caller continues without it.
    pub fn hedge(&self, stage: &Mutex<Stage>) {
        let mut stage = lock(stage);
        if let Stage::Begun = *stage {
            self.slow.fetch_add(1, Ordering::Relaxed);
        }
        *stage = Stage::Hedged;
    }

    /// Stops waiting for an operation. If it has not begun, it never runs.
    pub fn give_up(&self, stage: &Mutex<Stage>) {
        let mut stage = lock(stage);
        if let Stage::Begun = *stage {
            self.late.fetch_add(1, Ordering::Relaxed);
        }
        *stage = Stage::GivenUp;
    }

    /// An operation of another thread than its own was given up and goes on.
    pub fn begin_late(&self) {
        self.late.fetch_add(1, Ordering::Relaxed);
    }

    /// It has ended.
    pub fn end_late(&self) {
        self.late.fetch_sub(1, Ordering::Relaxed);
    }

    /// Operations that wait for a thread or run on one.
    pub fn queued(&self) -> usize {
        self.queued.load(Ordering::Relaxed)
    }

    /// Whether an operation that was given up still runs.
    pub fn hangs(&self) -> bool {
        self.late.load(Ordering::Relaxed) > 0
    }

    /// Whether all threads run operations that were given up.
    pub fn is_stuck(&self) -> bool {
        self.late.load(Ordering::Relaxed) >= self.threads.load(Ordering::Relaxed).max(1)
    }

    /// Whether an operation that was hedged or given up still runs.
    pub fn is_slow(&self) -> bool {
        self.slow.load(Ordering::Relaxed) > 0 || self.hangs()
    }
}
