//! Threads that all targets share, for operations that are too short to wake a thread of each
//! target.

use super::batch::{self, Batch};
use super::pool::caught;
use super::{Entry, Targets, lock};
use crate::target::Target;
use crate::unpoisoned;
use plan::TargetId;
use std::io;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::{Duration, Instant};

/// The number of threads, and of tasks that may wait for one.
const WORKERS: usize = 2;
/// How long a task may wait for a thread: both may be on targets that hang.
const BEGINS_WITHIN: Duration = Duration::from_millis(100);

type Task = Box<dyn FnOnce() + Send>;

/// The threads and their queue. They start with the first task.
#[derive(Debug, Default)]
pub(super) struct Workers(OnceLock<SyncSender<Task>>);

/// The progress of a worker.
#[derive(Debug)]
struct Progress<T> {
    /// A worker took the task.
    begun: bool,
    /// An operation runs, on the target behind those that are done.
    running: bool,
    done: Vec<io::Result<T>>,
    finished: bool,
    /// The caller stopped waiting: other threads do the rest.
    abandoned: bool,
}

impl Workers {
    fn queue(&self) -> &SyncSender<Task> {
        self.0.get_or_init(|| {
            let (tasks, queue) = sync_channel::<Task>(WORKERS);
            let queue = Arc::new(Mutex::new(queue));
            for _ in 0..WORKERS {
                let queue = queue.clone();
                std::thread::spawn(move || {
                    loop {
                        let task = lock(&queue).recv();
                        let Ok(task) = task else { return };
                        task();
                    }
                });
            }
            tasks
        })
    }
}

impl Targets {
    /// Runs a short operation on one target after the other, all on one thread. Where each run
    /// takes microseconds, waking a thread for each would cost more than the runs themselves. If a
    /// target hangs, the threads of the remaining targets do what is left. Failures are recorded
    /// for their targets.
    pub(crate) fn one_by_one<K: Copy + Ord + Send + 'static, T: Send + 'static>(
        &self,
        places: &[(K, TargetId)],
        operation: impl Fn(K, &dyn Target) -> io::Result<T> + Send + Sync + 'static,
    ) -> Vec<(K, TargetId, io::Result<T>)> {
        let operation = Arc::new(operation);
        let steps: Option<Vec<(K, Arc<Entry>)>> = {
            let entries = self.entries();
            let healthy = |id: &TargetId| entries.get(id).filter(|entry| entry.record.is_good());
            places.iter().map(|(key, id)| healthy(id).map(|entry| (*key, entry.clone()))).collect()
        };
        let mut done = steps.map_or_else(Vec::new, |steps| self.send_worker(steps, &operation));
        let late = done.len();
        let mut all: Vec<(K, TargetId, io::Result<T>)> =
            places.iter().zip(done.drain(..)).map(|(&(key, id), result)| (key, id, result)).collect();
        batch::record(self, &all);
        let mut batch = Batch::new();
        for &(key, id) in &places[late..] {
            let operation = operation.clone();
            batch.run(self, key, id, move |target| operation(key, target));
        }
        all.extend(batch.wait(self));
        all
    }

    /// The results that a worker delivered in time. The last one may belong to the operation that
    /// it still tries: the target counts as hanging until that ends.
    fn send_worker<K: Copy + Send + 'static, T: Send + 'static>(
        &self,
        steps: Vec<(K, Arc<Entry>)>,
        operation: &Arc<impl Fn(K, &dyn Target) -> io::Result<T> + Send + Sync + 'static>,
    ) -> Vec<io::Result<T>> {
        let done = Vec::with_capacity(steps.len());
        let progress = Progress { begun: false, running: false, done, finished: false, abandoned: false };
        let shared = Arc::new((Mutex::new(progress), Condvar::new()));
        let entries: Vec<Arc<Entry>> = steps.iter().map(|(_, entry)| entry.clone()).collect();
        let (its, operation) = (shared.clone(), operation.clone());
        let task = Box::new(move || {
            let (progress, finished) = &*its;
            for (key, entry) in steps {
                {
                    let mut progress = lock(progress);
                    if progress.abandoned {
                        return;
                    }
                    (progress.begun, progress.running) = (true, true);
                }
                let metering = entry.meter.begin();
                let result = caught(|| operation(key, &*entry.target));
                drop(metering);
                let mut progress = lock(progress);
                progress.running = false;
                if progress.abandoned {
                    entry.pool.end_late();
                    return;
                }
                progress.done.push(result);
            }
            // Release what the operation holds before the caller continues.
            drop(operation);
            lock(progress).finished = true;
            finished.notify_one();
        });
        if self.workers.queue().try_send(task).is_err() {
            return Vec::new();
        }
        let begun = Instant::now();
        let (progress, finished) = &*shared;
        let mut progress = lock(progress);
        while !progress.finished {
            let limit = if progress.begun { self.deadline } else { BEGINS_WITHIN.min(self.deadline) };
            let left = limit.saturating_sub(begun.elapsed());
            if left.is_zero() {
                progress.abandoned = true;
                if progress.running {
                    entries[progress.done.len()].pool.begin_late();
                    progress.done.push(Err(io::Error::new(io::ErrorKind::TimedOut, "it does not answer")));
                }
                break;
            }
            progress = unpoisoned(finished.wait_timeout(progress, left)).0;
        }
        std::mem::take(&mut progress.done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Memory;
    use std::sync::mpsc::channel;

    #[test]
    fn a_worker_outlives_an_operation_that_panics() {
        let targets = Targets::new();
        let places: Vec<(usize, TargetId)> = (0..3).map(|number| (number, TargetId(number as u16))).collect();
        places.iter().for_each(|&(_, id)| targets.add(id, Arc::new(Memory::default())));
        let outcomes = |defect: usize| {
            let run = move |key: usize, _: &dyn Target| if key == defect { panic!("a defect") } else { Ok(()) };
            targets.one_by_one(&places, run).into_iter().map(|(.., result)| result.is_ok()).collect::<Vec<_>>()
        };
        // More often than there are workers.
        for _ in 0..4 {
            assert_eq!(outcomes(1), [true, false, true]);
            targets.forgive(TargetId(1));
        }
        assert_eq!(outcomes(usize::MAX), [true; 3]);
    }

    /// A disk that is dead must be noticed, however short the operations are that hang on it.
    #[test]
    fn a_target_on_which_a_short_operation_hangs_counts_as_hanging() {
        let targets = Targets::with_deadline(Duration::from_secs(3));
        let places: Vec<(usize, TargetId)> = (0..3).map(|number| (number, TargetId(number as u16))).collect();
        places.iter().for_each(|&(_, id)| targets.add(id, Arc::new(Memory::default())));
        // The workers run.
        assert!(targets.one_by_one(&places, |_, _| Ok(())).iter().all(|(.., result)| result.is_ok()));
        let (release, held) = channel::<()>();
        let held = Mutex::new(held);
        let hang = move |key: usize, _: &dyn Target| {
            if key == 1 {
                let _ = lock(&held).recv();
            }
            Ok(())
        };
        let done = targets.one_by_one(&places, hang);
        assert_eq!(done[1].2.as_ref().unwrap_err().kind(), io::ErrorKind::TimedOut);
        targets.forgive(TargetId(1));
        let hanging = || places.iter().map(|&(_, id)| targets.hangs(id)).collect::<Vec<_>>();
        assert_eq!(hanging(), [false, true, false]);
        assert!(!targets.is_healthy(TargetId(1)) && targets.is_slow(TargetId(1)));
        drop(release);
        while hanging() != [false; 3] {
            std::thread::yield_now();
        }
        assert!(targets.is_healthy(TargetId(1)));
    }

    #[test]
    fn no_task_waits_for_workers_that_hang() {
        let targets = Arc::new(Targets::with_deadline(Duration::from_secs(300)));
        let places: Vec<(usize, TargetId)> = (0..3).map(|number| (number, TargetId(number as u16))).collect();
        places.iter().for_each(|&(_, id)| targets.add(id, Arc::new(Memory::default())));
        let (release, held) = channel::<()>();
        let held = Arc::new(Mutex::new(held));
        let (began, begins) = channel();
        let hanging: Vec<_> = (0..WORKERS)
            .map(|_| {
                let (targets, held, began) = (targets.clone(), held.clone(), began.clone());
                std::thread::spawn(move || {
                    let hang = move |_: usize, _: &dyn Target| {
                        let _ = (began.send(()), lock(&held).recv());
                        Ok(())
                    };
                    targets.one_by_one(&[(0, TargetId(2))], hang);
                })
            })
            .collect();
        // One of them holds the other up, and both their workers.
        begins.recv().unwrap();
        begins.recv().unwrap();
        let begun = Instant::now();
        for _ in 0..4 {
            let done = targets.one_by_one(&places[..2], |_, _| Ok(()));
            assert!(done.iter().all(|(.., result)| result.is_ok()));
        }
        assert!(begun.elapsed() < targets.deadline);
        drop(release);
        hanging.into_iter().for_each(|thread| thread.join().unwrap());
    }
}
