//! Operations on several targets at the same time, and how long their caller waits: for all, for
//! most, or until it hedges.

use super::pool::{Stage, Task};
use super::{Entry, Targets};
use crate::ranked;
use crate::target::Target;
use plan::TargetId;
use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tracing::Span;

/// How often to retry while a queue is full.
const RETRY_INTERVAL: Duration = Duration::from_micros(500);

/// The outcome of each operation.
type Outcomes<K, T> = Vec<(K, TargetId, io::Result<T>)>;

/// Operations on several targets at the same time. The deadline counts from its creation.
pub(crate) struct Batch<K, T> {
    send: Sender<(K, io::Result<T>)>,
    results: Receiver<(K, io::Result<T>)>,
    /// Operations that wait for space in a queue.
    refused: Vec<(K, Arc<Entry>, Task)>,
    pub(super) waiting: BTreeMap<K, Waiting>,
    done: Outcomes<K, T>,
    pub(super) begun: Instant,
    /// Late operations are hedged, not given up.
    hedges: bool,
    /// The same, for targets that never reported their space.
    pub(super) spares_new: bool,
}

/// An operation that a caller waits for.
pub(super) struct Waiting {
    id: TargetId,
    entry: Arc<Entry>,
    stage: Arc<Mutex<Stage>>,
}

pub(super) fn is_late<T>(result: &io::Result<T>) -> bool {
    result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::TimedOut)
}

pub(super) fn record<K, T>(targets: &Targets, done: &[(K, TargetId, io::Result<T>)]) {
    for (_, id, result) in done {
        if let Err(error) = result {
            targets.failed(*id, error);
        }
    }
}

impl<K: Copy + Ord + Send + 'static, T: Send + 'static> Batch<K, T> {
    /// Creates an empty batch.
    pub fn new() -> Self {
        let (send, results) = channel();
        Self {
            send,
            results,
            refused: Vec::new(),
            waiting: BTreeMap::new(),
            done: Vec::new(),
            begun: Instant::now(),
            hedges: false,
            spares_new: false,
        }
    }

    /// Runs an operation on a thread of a target. `key` identifies it.
    pub fn run(
        &mut self,
        targets: &Targets,
        key: K,
        id: TargetId,
        operation: impl FnOnce(&dyn Target) -> io::Result<T> + Send + 'static,
    ) {
        let Some(entry) = targets.entry(id) else {
            return self.done.push((key, id, Err(io::ErrorKind::NotFound.into())));
        };
        let stage = Arc::new(Mutex::new(Stage::Queued));
        let (send, its_stage, its) = (self.send.clone(), stage.clone(), Arc::downgrade(&entry));
        let (span, metering) = (Span::current(), entry.meter.begin());
        let task: Task = Box::new(move |target| {
            let _metering = metering;
            // The waiting caller holds the entry until it gives up or has the result.
            let done = match its.upgrade() {
                Some(entry) => entry.pool.perform(&its_stage, || span.in_scope(|| operation(target))),
                None => None,
            };
            if let Some(result) = done {
                // The caller may have stopped listening.
                let _ = send.send((key, result));
            }
        });
        if let Err(task) = entry.pool.submit(&entry.target, task) {
            self.refused.push((key, entry.clone(), task));
        }
        self.waiting.insert(key, Waiting { id, entry, stage });
    }

    /// Waits for all operations. Failures are recorded for their targets.
    pub fn wait(self, targets: &Targets) -> Outcomes<K, T> {
        let done = self.collect(targets.deadline);
        record(targets, &done);
        done
    }

    /// Waits for reads that the caller can do without, at most until they are late. Late reads
    /// return `TimedOut`, which says nothing about their targets; other failures are recorded.
    pub fn hedged(mut self, targets: &Targets) -> Outcomes<K, T> {
        self.hedges = true;
        let timeout = targets.read_timeout.current();
        // Do not record the time of late reads: each would make the wait for the next one longer.
        if let Some(&slowest) = self.gather(|_, _| timeout).last() {
            targets.read_timeout.record(slowest);
        }
        let (late, done): (Vec<_>, Vec<_>) = self.done.into_iter().partition(|(.., result)| is_late(result));
        record(targets, &done);
        done.into_iter().chain(late).collect()
    }

    /// Waits for all operations, except those that turn out to be late: `least` successes suffice,
    /// `wanted` are better. A late target counts as failed until it answers. Failures are recorded
    /// for their targets.
    pub fn wait_for_most(self, targets: &Targets, least: usize, wanted: usize) -> Outcomes<K, T> {
        let deadline = targets.deadline;
        let done = self.collect_while(|took| plan::late::straggler_timeout(took, least, wanted, deadline));
        record(targets, &done);
        done
    }

    /// Waits for all operations, until the deadline.
    pub fn collect(self, deadline: Duration) -> Outcomes<K, T> {
        self.collect_while(|_| deadline)
    }

    /// Runs [`Self::gather`] and returns the result of each operation.
    pub(super) fn collect_while(mut self, timeout: impl Fn(&[Duration]) -> Duration) -> Outcomes<K, T> {
        self.gather(|took, _| timeout(took));
        self.done
    }

    /// Waits for all operations that nobody needs, until the deadline. No failure is recorded.
    pub fn without_late(mut self, deadline: Duration) {
        self.hedges = true;
        self.gather(|_, _| deadline);
    }

    /// Waits until the successful operations are enough, for all operations, or until the deadline.
    /// Returns the keys of the successful ones. Failures are recorded for their targets; operations
    /// that need not be waited for do not count as failures.
    pub fn until_enough(mut self, targets: &Targets, enough: impl Fn(&[K]) -> bool) -> Vec<K> {
        self.hedges = true;
        let well = |done: &[(K, TargetId, io::Result<T>)]| -> Vec<K> {
            done.iter().filter(|(.., result)| result.is_ok()).map(|(key, ..)| *key).collect()
        };
        self.gather(|_, done| if enough(&well(done)) { Duration::ZERO } else { targets.deadline });
        let answered = well(&self.done);
        let is_enough = enough(&answered);
        self.done.retain(|(.., result)| !(is_enough && is_late(result)));
        record(targets, &self.done);
        answered
    }

    /// Waits for all operations, for as long as `timeout` allows. It gets the durations of the
    /// successful operations and the results so far. Returns these durations.
    fn gather(&mut self, timeout: impl Fn(&[Duration], &[(K, TargetId, io::Result<T>)]) -> Duration) -> Vec<Duration> {
        ranked::assert_only_turns();
        let mut took = Vec::with_capacity(self.waiting.len());
        while !self.waiting.is_empty() {
            for (key, entry, task) in std::mem::take(&mut self.refused) {
                if let Err(task) = entry.pool.submit(&entry.target, task) {
                    self.refused.push((key, entry, task));
                }
            }
            let left = timeout(&took, &self.done).saturating_sub(self.begun.elapsed());
            let pause = if self.refused.is_empty() { left } else { left.min(RETRY_INTERVAL) };
            match self.results.recv_timeout(pause) {
                Ok((key, result)) => {
                    if let Some(waiting) = self.waiting.remove(&key) {
                        if result.is_ok() {
                            took.push(self.begun.elapsed());
                        }
                        self.done.push((key, waiting.id, result));
                    }
                }
                Err(RecvTimeoutError::Timeout) if !left.is_zero() => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    let late = std::mem::take(&mut self.waiting);
                    let error = || Err(io::Error::new(io::ErrorKind::TimedOut, "it does not answer"));
                    for (key, Waiting { id, entry, stage }) in late {
                        if self.hedges || self.spares_new && entry.space.is_new() {
                            entry.pool.hedge(&stage)
                        } else {
                            entry.pool.give_up(&stage)
                        }
                        self.done.push((key, id, error()));
                    }
                }
            }
        }
        took
    }
}

impl Targets {
    /// Runs an operation on several targets at the same time. The key identifies each run. A run
    /// that takes longer than the deadline has failed. Failures are recorded for their targets.
    pub fn each<K: Copy + Ord + Send + 'static, T: Send + 'static>(
        &self,
        places: impl IntoIterator<Item = (K, TargetId)>,
        operation: impl Fn(K, &dyn Target) -> io::Result<T> + Send + Sync + 'static,
    ) -> Vec<(K, TargetId, io::Result<T>)> {
        let operation = Arc::new(operation);
        let mut batch = Batch::new();
        for (key, id) in places {
            let operation = operation.clone();
            batch.run(self, key, id, move |target| operation(key, target));
        }
        batch.wait(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Memory;
    use crate::targets::latency::StragglerTimeout;

    #[test]
    fn the_timeout_does_not_grow_with_each_that_is_late() {
        let targets = Targets::with_deadline(Duration::from_secs(20));
        let (fast, late) = (TargetId(0), TargetId(1));
        [fast, late].iter().for_each(|&id| targets.add(id, Arc::new(Memory::default())));
        let (release, held) = channel::<()>();
        let held = Arc::new(Mutex::new(held));
        for _ in 0..6 {
            let (mut batch, held) = (Batch::new(), held.clone());
            batch.run(&targets, 0, fast, |_| Ok(()));
            batch.run(&targets, 1, late, move |_| {
                let _ = held.lock().unwrap().recv();
                Ok(())
            });
            let done = batch.hedged(&targets);
            assert_eq!(
                done.iter().map(|(key, _, result)| (*key, result.is_ok())).collect::<Vec<_>>(),
                [(0, true), (1, false)]
            );
            assert!(targets.is_slow(late) && !targets.is_slow(fast));
        }
        assert_eq!(targets.read_timeout.current(), StragglerTimeout::MIN_LATE);
        drop(release);
    }
}
