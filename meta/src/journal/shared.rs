//! The state that an engine's threads share, and how they wait for one another.

use super::files::Files;
use super::frame::{Epoch, Frame, Kind, VolumeId, put_edit};
use super::local_wal::LocalWal;
use super::options::{Limits, Place, Status};
use crate::kv::{Index, KvError, Layer, Seq};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// What the commits, the journal thread and the checkpointer share. Locks are taken in this order: layers, files, log, tasks.
pub(super) struct Shared {
    pub volume: VolumeId,
    pub wanted: usize,
    pub limits: Limits,
    pub epoch: Epoch,
    pub index: Box<dyn Index>,
    pub layers: RwLock<Layers>,
    log: Mutex<Log>,
    /// For the journal thread: there may be something to write.
    work: Condvar,
    /// For everybody else: something was written, or failed.
    done: Condvar,
    files: Mutex<Files>,
    tasks: Mutex<Tasks>,
    /// For the checkpointer, and those who wait for it.
    tasks_changed: Condvar,
    /// Held by the one that changes the targets.
    pub moving: Mutex<()>,
    /// The room on the mirrors beyond what they need, as of the last look and what was committed since.
    pub slack: AtomicI64,
}

/// Changes that the index does not have.
pub(super) struct Layers {
    /// Takes the commits.
    pub active: Layer,
    /// Is on its way to the index.
    pub frozen: Option<Arc<Layer>>,
}

/// What is committed and not written.
pub(super) struct Log {
    pub pending: Vec<u8>,
    /// The last transaction that was committed.
    pub last: Seq,
    /// The last that is durable.
    pub durable: Seq,
    /// Somebody waits for this one.
    pub wanted: Seq,
    /// When the oldest pending one came.
    pub since: Option<Instant>,
    /// A mirror must be replaced although there is nothing to write.
    pub kick: bool,
    /// Nothing more is committed.
    pub closed: bool,
    /// Why what is committed has to wait: no target has room for it, or none answers.
    pub stuck: Option<KvError>,
    pub stop: bool,
    pub failed: Option<KvError>,
    /// Keeps what is committed from being lost with this process.
    pub wal: Option<LocalWal>,
}

/// What the checkpointer shall do.
#[derive(Default)]
pub(super) struct Tasks {
    pub flush: bool,
    pub snapshot: bool,
    /// A snapshot is being written.
    pub busy: bool,
    /// Targets that failed shall be tried again at once.
    pub retry: bool,
    pub stop: bool,
    /// How many flushes and snapshots were ended, well or not.
    pub flushes: u64,
    pub snapshots: u64,
    /// The last of `Files::asked` that the journal thread has settled.
    pub settled: u64,
}

/// What recovery hands over.
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

    /// Waits until the pending transactions leave room for one more. While no target answers there is none.
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
            // Without room there, it is as safe as without the local WAL.
            *wal = None;
        }
        // Once in the journal, and maybe once in the next snapshot.
        self.slack.fetch_sub(2 * (log.pending.len() - before) as i64, Ordering::Relaxed);
        let first = log.since.is_none();
        if first {
            log.since = Some(Instant::now());
        }
        // The journal thread sleeps for ever over an empty buffer, and until the delay over one that is not full.
        if first || log.pending.len() >= self.limits.group_bytes {
            self.work.notify_one();
        }
        Ok(log.last)
    }

    /// Refuses all further commits; returns the last.
    pub fn refuse(&self) -> Seq {
        let mut log = self.log();
        log.closed = true;
        self.done.notify_all();
        log.last
    }

    /// Waits until a transaction is durable; not while all targets are full or away.
    pub fn sync(&self, seq: Seq) -> Result<(), KvError> {
        self.wait_durable(seq, false)
    }

    /// As `sync`, and waits for targets with room too.
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
        // What is durable stays so, but a caller must learn that nothing further will be.
        log.failed.clone().map_or(Ok(()), Err)
    }

    /// For the journal thread: waits for transactions that are due, and takes them. `None` when it shall end.
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

    /// There is no room even for the beginning: the journal thread begins with that when there is some.
    pub fn begin_full(&self) {
        let mut log = self.log();
        (log.stuck, log.kick) = (Some(KvError::NoSpace), true);
    }

    /// For the journal thread: no target takes anything now, so those who wait are told, and it is tried again soon. False when it shall end.
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

    /// Tells everybody that transactions are durable.
    pub fn set_durable(&self, last: Seq) {
        let mut log = self.log();
        (log.durable, log.stuck) = (last, None);
        drop(log);
        self.done.notify_all();
    }

    /// Nothing is committed or durable from now on.
    pub fn fail(&self, error: &KvError) {
        self.log().failed.get_or_insert_with(|| error.clone());
        self.done.notify_all();
        self.work.notify_all();
        drop(self.tasks());
        self.tasks_changed.notify_all();
    }

    /// Has the journal thread look whether the mirrors are the right ones. Returns the number of this request.
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

    /// [`Self::ask`], and waits until it has looked.
    pub fn settle(&self) -> Result<(), KvError> {
        let asked = self.ask();
        self.wait_tasks(|tasks| tasks.settled >= asked).map(drop)
    }

    /// Has a snapshot made that begins now, and waits until it is made, or could not be.
    pub fn checkpoint(&self) -> Result<(), KvError> {
        let wanted = {
            let mut tasks = self.tasks();
            tasks.snapshot = true;
            // One that is being written may have begun before the last commits, so it does not count.
            tasks.snapshots + u64::from(tasks.busy) + 1
        };
        self.tasks_changed.notify_all();
        self.wait_tasks(|tasks| tasks.snapshots >= wanted || tasks.stop).map(drop)
    }

    /// Has targets that failed tried again without waiting for their time.
    pub fn retry(&self) {
        self.files().retries.now();
        self.task(|tasks| tasks.retry = true);
    }

    /// For the thread that tries targets again: waits for its time. False when it shall end.
    pub fn wait_for_retry(&self, pause: Duration) -> bool {
        let wait = self.tasks_changed.wait_timeout_while(self.tasks(), pause, |tasks| !tasks.stop && !tasks.retry);
        let (mut tasks, _) = wait.unwrap_or_else(PoisonError::into_inner);
        tasks.retry = false;
        let stop = tasks.stop;
        drop(tasks);
        !stop && self.log().check().is_ok()
    }

    /// Waits until the snapshot that is being written, if there is one, is written or given up.
    pub fn wait_for_snapshot(&self) -> Result<(), KvError> {
        let wanted = {
            let tasks = self.tasks();
            tasks.snapshots + u64::from(tasks.busy)
        };
        self.wait_tasks(|tasks| tasks.snapshots >= wanted).map(drop)
    }

    /// Changes the tasks and tells everybody.
    pub fn task(&self, change: impl FnOnce(&mut Tasks)) {
        change(&mut self.tasks());
        self.tasks_changed.notify_all();
    }

    /// Waits until the tasks are as wanted; not when the engine has failed.
    pub fn wait_tasks(&self, ready: impl Fn(&Tasks) -> bool) -> Result<MutexGuard<'_, Tasks>, KvError> {
        let mut tasks = self.tasks();
        while !ready(&tasks) {
            // A failure is told with the tasks' lock taken after it is set, so none is missed between here and the wait.
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

    /// Ends all threads at what they are doing.
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

/// The error of an engine that was closed.
pub(super) fn closed() -> KvError {
    KvError::Unavailable("the metadata is closed".into())
}
