//! The state that an engine's threads share, and how they wait for each other.

use super::files::Files;
use super::frame::{Epoch, Frame, Kind, VolumeId, put_edit};
use super::local_wal::LocalWal;
use super::options::{Limits, Place, Status};
use crate::kv::{Index, KvError, Layer, Seq};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// The state that commits, the journal thread and the checkpointer share. Lock order: layers,
/// files, log, tasks.
pub(super) struct Shared {
    pub volume: VolumeId,
    pub wanted: usize,
    pub limits: Limits,
    pub epoch: Epoch,
    pub index: Box<dyn Index>,
    pub layers: RwLock<Layers>,
    log: Mutex<Log>,
    /// Wakes the journal thread: there may be something to write.
    work: Condvar,
    /// Wakes all others: something was written, or failed.
    done: Condvar,
    files: Mutex<Files>,
    tasks: Mutex<Tasks>,
    /// Wakes the checkpointer and those who wait for it.
    tasks_changed: Condvar,
    /// Held while the targets change.
    pub moving: Mutex<()>,
    /// The free space on the mirrors beyond what they need, in bytes: the last measurement less
    /// what was committed since.
    pub slack: AtomicI64,
}

/// Changes that the index does not have yet.
pub(super) struct Layers {
    /// Receives the commits.
    pub active: Layer,
    /// Is being written to the index.
    pub frozen: Option<Arc<Layer>>,
}

/// Transactions that are committed and not written yet.
pub(super) struct Log {
    pub pending: Vec<u8>,
    /// The last committed transaction.
    pub last: Seq,
    /// The last durable transaction.
    pub durable: Seq,
    /// A caller waits for this transaction.
    pub wanted: Seq,
    /// When the oldest pending transaction was committed.
    pub since: Option<Instant>,
    /// The journal thread must check the mirrors although there is nothing to write.
    pub kick: bool,
    /// No further commits are accepted.
    pub closed: bool,
    /// Why committed transactions must wait: no target has space for them, or none answers.
    pub stuck: Option<KvError>,
    pub stop: bool,
    pub failed: Option<KvError>,
    /// The local WAL: keeps committed transactions from being lost with this process.
    pub wal: Option<LocalWal>,
}

/// Work for the checkpointer.
#[derive(Default)]
pub(super) struct Tasks {
    pub flush: bool,
    pub snapshot: bool,
    /// A snapshot is being written.
    pub busy: bool,
    /// Failed targets are to be retried at once.
    pub retry: bool,
    pub stop: bool,
    /// How many flushes and snapshots have ended, successful or not.
    pub flushes: u64,
    pub snapshots: u64,
    /// The last value of `Files::asked` that the journal thread has handled.
    pub settled: u64,
}

/// What recovery passes to the engine.
pub(super) struct Start {
    pub epoch: Epoch,
    pub last: Seq,
    pub files: Files,
}

impl Shared {
    pub fn new(
        volume: VolumeId,
        places: Vec<Place>,
        wanted: usize,
        limits: Limits,
        index: Box<dyn Index>,
        start: Start,
    ) -> Self {
        let Start { epoch, last, mut files } = start;
        files.places = places;
        let log = Log {
            pending: Vec::new(),
            last,
            durable: last,
            wanted: 0,
            since: None,
            kick: false,
            closed: false,
            stuck: None,
            stop: false,
            failed: None,
            wal: None,
        };
        let layers = RwLock::new(Layers { active: Layer::after(last), frozen: None });
        let (work, done, tasks_changed) = (Condvar::new(), Condvar::new(), Condvar::new());
        let (log, files, tasks) = (Mutex::new(log), Mutex::new(files), Mutex::default());
        let (moving, slack) = (Mutex::default(), AtomicI64::new(i64::MAX));
        Self {
            volume,
            wanted,
            limits,
            epoch,
            index,
            layers,
            log,
            work,
            done,
            files,
            tasks,
            tasks_changed,
            moving,
            slack,
        }
    }

    pub fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn tasks(&self) -> MutexGuard<'_, Tasks> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the pending transactions leave space for one more. Fails at once while no target
    /// answers.
    pub fn wait_for_room(&self) -> Result<(), KvError> {
        let mut log = self.log();
        if let Some(why @ KvError::Unavailable(_)) = &log.stuck {
            return Err(why.clone());
        }
        while log.failed.is_none() && !log.stop && !log.closed && log.pending.len() >= self.limits.pending_bytes {
            if let Some(why) = &log.stuck {
                return Err(why.clone());
            }
            log = self.done.wait(log).unwrap_or_else(PoisonError::into_inner);
        }
        log.check_open()
    }

    /// Gives the next transaction its number and its place in the journal.
    pub fn append(&self, edits: &BTreeMap<Vec<u8>, Option<Vec<u8>>>) -> Result<Seq, KvError> {
        let mut log = self.log();
        log.check_open()?;
        log.last += 1;
        let frame = Frame::new(Kind::Record, log.last, self.epoch, log.durable);
        let before = log.pending.len();
        frame.encode(&self.volume, &mut log.pending, |to| {
            for (key, value) in edits {
                put_edit(to, key, value.as_deref());
            }
        });
        let Log { wal, pending, .. } = &mut *log;
        if wal.as_mut().is_some_and(|wal| wal.add(&pending[before..]).is_err()) {
            // When that disk is full, the transaction is as safe as without a local WAL.
            *wal = None;
        }
        // A change takes space once in the journal, and perhaps once in the next snapshot.
        self.slack.fetch_sub(2 * (log.pending.len() - before) as i64, Ordering::Relaxed);
        let first = log.since.is_none();
        if first {
            log.since = Some(Instant::now());
        }
        // The journal thread sleeps indefinitely while the buffer is empty, and for the delay while
        // it is not full.
        if first || log.pending.len() >= self.limits.group_bytes {
            self.work.notify_one();
        }
        Ok(log.last)
    }

    /// Refuses all further commits; returns the last transaction.
    pub fn refuse(&self) -> Seq {
        let mut log = self.log();
        log.closed = true;
        self.done.notify_all();
        log.last
    }

    /// Waits until a transaction is durable. Fails while all targets are full or unreachable.
    pub fn sync(&self, seq: Seq) -> Result<(), KvError> {
        self.wait_durable(seq, false)
    }

    /// As `sync`, but also waits until targets have space or answer again.
    pub fn sync_at_last(&self, seq: Seq) -> Result<(), KvError> {
        self.wait_durable(seq, true)
    }

    fn wait_durable(&self, seq: Seq, patient: bool) -> Result<(), KvError> {
        let mut log = self.log();
        let seq = seq.min(log.last);
        while log.durable < seq {
            log.check()?;
            if let Some(why) = log.stuck.as_ref().filter(|_| !patient) {
                return Err(why.clone());
            }
            if log.wanted < seq {
                log.wanted = seq;
                self.work.notify_one();
            }
            log = self.done.wait(log).unwrap_or_else(PoisonError::into_inner);
        }
        // What is durable stays durable, but the caller must learn that nothing more will be.
        log.failed.clone().map_or(Ok(()), Err)
    }

    /// For the journal thread: waits for transactions that are due, and takes them. `None` when it
    /// must stop.
    pub fn take_pending(&self, spare: Vec<u8>) -> Option<(Vec<u8>, Seq)> {
        let mut log = self.log();
        loop {
            if log.stop {
                return None;
            }
            let rest = log.since.map(|since| self.limits.delay.saturating_sub(since.elapsed()));
            let waited_for = log.wanted > log.durable || log.pending.len() >= self.limits.group_bytes;
            if log.kick || rest.is_some_and(|rest| waited_for || rest == Duration::ZERO) {
                log.kick = false;
                log.since = None;
                let pending = std::mem::replace(&mut log.pending, spare);
                let last = log.last;
                log.wal.iter_mut().for_each(LocalWal::turn);
                drop(log);
                self.done.notify_all();
                return Some((pending, last));
            }
            log = match rest {
                Some(rest) => self.work.wait_timeout(log, rest).unwrap_or_else(PoisonError::into_inner).0,
                None => self.work.wait(log).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// There is no space even to begin the journal. The journal thread begins it when there is.
    pub fn begin_full(&self) {
        let mut log = self.log();
        (log.stuck, log.kick) = (Some(KvError::NoSpace), true);
    }

    /// For the journal thread: no target accepts writes now. Notifies the waiting callers and
    /// pauses before the next attempt. Returns `false` when the thread must stop.
    pub fn wait_while_stuck(&self, why: &KvError) -> bool {
        let mut log = self.log();
        log.stuck = Some(why.clone());
        self.done.notify_all();
        let pause = Duration::from_millis(200);
        let (log, _) =
            self.work.wait_timeout_while(log, pause, |log| !log.stop).unwrap_or_else(PoisonError::into_inner);
        !log.stop
    }

    /// Why nothing becomes durable now.
    pub fn stuck(&self) -> Option<KvError> {
        self.log().stuck.clone()
    }

    /// Notifies all waiting threads that transactions are durable.
    pub fn set_durable(&self, last: Seq) {
        let mut log = self.log();
        (log.durable, log.stuck) = (last, None);
        drop(log);
        self.done.notify_all();
    }

    /// From now on nothing is committed or becomes durable.
    pub fn fail(&self, error: &KvError) {
        self.log().failed.get_or_insert_with(|| error.clone());
        self.done.notify_all();
        self.work.notify_all();
        // A snapshot thread that panicked has not said that it ended.
        self.task(|tasks| tasks.busy = false);
    }

    /// Asks the journal thread to check the mirrors. Returns the number of this request.
    pub fn ask(&self) -> u64 {
        let asked = {
            let mut files = self.files();
            files.asked += 1;
            files.asked
        };
        self.log().kick = true;
        self.work.notify_one();
        asked
    }

    /// [`Self::ask`], and waits until the check is done.
    pub fn settle(&self) -> Result<(), KvError> {
        let asked = self.ask();
        self.wait_tasks(|tasks| tasks.settled >= asked).map(drop)
    }

    /// Starts a new snapshot, and waits until it is complete or has failed.
    pub fn checkpoint(&self) -> Result<(), KvError> {
        let wanted = {
            let mut tasks = self.tasks();
            tasks.snapshot = true;
            // A snapshot in progress may have begun before the last commits, so it does not count.
            tasks.snapshots + u64::from(tasks.busy) + 1
        };
        self.tasks_changed.notify_all();
        self.wait_tasks(|tasks| tasks.snapshots >= wanted || tasks.stop).map(drop)
    }

    /// Retries failed targets without waiting for their back-off.
    pub fn retry(&self) {
        self.files().retries.now();
        self.task(|tasks| tasks.retry = true);
    }

    /// For the retry thread: waits for the pause or a request. Returns `false` when the thread must
    /// stop.
    pub fn wait_for_retry(&self, pause: Duration) -> bool {
        let wait = self.tasks_changed.wait_timeout_while(self.tasks(), pause, |tasks| !tasks.stop && !tasks.retry);
        let (mut tasks, _) = wait.unwrap_or_else(PoisonError::into_inner);
        tasks.retry = false;
        let stop = tasks.stop;
        drop(tasks);
        !stop && self.log().check().is_ok()
    }

    /// Waits until the snapshot in progress, if any, is complete or has failed.
    pub fn wait_for_snapshot(&self) -> Result<(), KvError> {
        let wanted = {
            let tasks = self.tasks();
            tasks.snapshots + u64::from(tasks.busy)
        };
        self.wait_tasks(|tasks| tasks.snapshots >= wanted).map(drop)
    }

    /// Changes the tasks and notifies all waiting threads.
    pub fn task(&self, change: impl FnOnce(&mut Tasks)) {
        change(&mut self.tasks());
        self.tasks_changed.notify_all();
    }

    /// Waits until `ready` accepts the tasks. Returns an error when the engine has failed.
    pub fn wait_tasks(&self, ready: impl Fn(&Tasks) -> bool) -> Result<MutexGuard<'_, Tasks>, KvError> {
        let mut tasks = self.tasks();
        while !ready(&tasks) {
            // A failure is announced under the tasks' lock after it is set, so none is missed
            // between this check and the wait.
            drop(tasks);
            self.log().check()?;
            tasks = self.tasks();
            if ready(&tasks) {
                break;
            }
            let wait = self.tasks_changed.wait_timeout(tasks, Duration::from_millis(100));
            tasks = wait.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(tasks)
    }

    /// Tells all threads to stop.
    pub fn stop(&self) {
        self.log().stop = true;
        self.work.notify_all();
        self.done.notify_all();
        self.task(|tasks| tasks.stop = true);
    }

    pub fn status(&self) -> Status {
        let (committed, durable, failure, stuck) = {
            let log = self.log();
            let text = |error: &Option<KvError>| error.as_ref().map(ToString::to_string);
            (log.last, log.durable, text(&log.failed), text(&log.stuck))
        };
        let files = self.files();
        let whole = files.mirrors.iter().filter(|place| files.snapshot_of(place.0).is_some()).count();
        let snapshot_failed = files.last_try.is_some_and(|(_, _, made)| !made);
        let unmended = files.last_error.clone().filter(|_| whole < self.wanted || snapshot_failed);
        Status {
            trouble: failure.clone().or(stuck).or(unmended),
            mirrors: files.mirrors.iter().map(|&(id, _)| id).collect(),
            wanted: self.wanted,
            whole,
            degraded: whole < self.wanted,
            failed: files.failed.iter().map(|failed| (failed.place.0, failed.why.clone())).collect(),
            last_error: failure.or_else(|| files.last_error.clone()),
            journal_bytes: files.grown(),
            snapshot: files.snapshot,
            snapshot_bytes: files.snapshot_bytes,
            need_bytes: files.need(&self.limits),
            committed,
            durable,
        }
    }
}

impl Log {
    fn check_open(&self) -> Result<(), KvError> {
        self.check()?;
        if self.closed { Err(closed()) } else { Ok(()) }
    }

    fn check(&self) -> Result<(), KvError> {
        match &self.failed {
            Some(error) => Err(error.clone()),
            None if self.stop => Err(closed()),
            None => Ok(()),
        }
    }
}

/// The error of a closed engine.
pub(super) fn closed() -> KvError {
    KvError::Unavailable("the metadata is closed".into())
}
