//! The state that an engine's threads share, and how they wait for each other.

use super::claim::lease::Lease;
use super::cost::LastCost;
use super::files::Files;
use super::frame::{Epoch, Frame, Origin, RecordKind, VolumeId, put_edit};
use super::local_wal::LocalWal;
use super::opening::lineage::Lineage;
use super::options::{Access, Granted, JournalLimits, MirrorTarget, Status, closed, defect};
use super::shelf::Shelf;
use crate::kv::{Index, IndexState, KvError, Layer};
use crate::ranks::{Changes, CheckpointTasks, CommitLog, MirrorChanges, MirrorFiles, MirrorStates};
use plan::{TargetId, TxId};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, OnceLock};
use std::time::{Duration, Instant};
use volume::ranked::{Guard, Ranked, RankedRw, ReadGuard, WriteGuard};
use volume::target::{Claim, Clock};

/// What commits, the journal thread and the checkpointer share. Locks: layers, files, log, tasks.
pub(super) struct Shared {
    pub volume: VolumeId,
    /// How many targets may be lost.
    pub losses: usize,
    pub access: Access,
    /// How many mirrors make a transaction durable: fewer than m+1 after an accepted loss.
    pub need: AtomicUsize,
    /// Of the label: its generation, and the number of its voters.
    pub generation: AtomicU64,
    pub voters: AtomicUsize,
    /// How many targets were there when a loss was accepted.
    pub accepted: Option<usize>,
    pub limits: JournalLimits,
    pub epoch: Epoch,
    pub origin: Origin,
    /// The epochs of this history, with this one.
    pub lineage: Lineage,
    /// The state with which the epoch began, and whether something may be lost.
    base: IndexState,
    lossy: bool,
    pub claim: Claim,
    pub lease: Lease,
    pub index: Shelf,
    layers: RankedRw<Layers, Changes>,
    log: Ranked<Log, CommitLog>,
    /// Wakes the journal thread when there may be something to write,
    work: Condvar,
    /// and all others when something was written, or failed.
    done: Condvar,
    files: Ranked<Files, MirrorFiles>,
    tasks: Ranked<Tasks, CheckpointTasks>,
    /// Wakes the checkpointer and those who wait for it.
    tasks_changed: Condvar,
    /// Held while the targets change.
    pub moving: Ranked<(), MirrorChanges>,
    /// The free space on the mirrors beyond what they need, in bytes: the last measurement less
    /// what was committed since.
    pub slack: AtomicI64,
    /// All mirrors have the transactions up to this one.
    pub least: AtomicU64,
    pub cost: LastCost,
    /// What each whole mirror has: all transactions up to this one.
    pub have: Ranked<Vec<(TargetId, TxId)>, MirrorStates>,
    /// Why this opening has ended, when another one has taken over.
    fenced: OnceLock<KvError>,
    /// The claim is given back, or is about to be: from now on another opening may write.
    given_back: AtomicBool,
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
    /// The last committed transaction, and the last durable one.
    pub last: TxId,
    pub durable: TxId,
    /// How many commits wait until the pending transactions leave space.
    pub waiting: usize,
    /// A caller waits for this transaction.
    pub wanted: TxId,
    /// When the oldest pending transaction was committed.
    pub since: Option<Instant>,
    /// The journal thread must check the mirrors although there is nothing to write.
    pub kick: bool,
    /// The barrier, or anything after it, is durable.
    pub established: bool,
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
    pub origin: Origin,
    /// The epochs of the history before this one.
    pub lineage: Lineage,
    /// The state of the index: everything up to `last`.
    pub base: IndexState,
    pub last: TxId,
    pub files: Files,
    /// Transactions that were durable may be missing.
    pub lossy: bool,
}

/// What the options pass to the engine.
pub(super) struct Setup {
    pub volume: VolumeId,
    pub places: Vec<MirrorTarget>,
    pub voters: usize,
    pub losses: usize,
    pub access: Access,
    pub accept_loss: bool,
    pub limits: JournalLimits,
    pub lease: Option<Duration>,
    pub index: Box<dyn Index>,
}

impl Shared {
    pub fn new(setup: Setup, start: Start, granted: &Granted) -> Self {
        let Setup { volume, places, voters, losses, access, accept_loss, limits, lease, index } = setup;
        let Start { epoch, origin, lineage, base, last, mut files, lossy } = start;
        let there = (0..places.len()).filter(|&place| granted.before[place].is_some()).count();
        let need = match access {
            Access::Write if accept_loss => (losses + 1).min(there).max(1),
            Access::Write => losses + 1,
            // What is written stays in memory.
            _ => 1,
        };
        files.places = places;
        let log = Log {
            pending: Vec::new(),
            last,
            durable: last,
            waiting: 0,
            wanted: TxId(0),
            since: None,
            kick: false,
            established: false,
            closed: false,
            stuck: None,
            stop: false,
            failed: None,
            wal: None,
        };
        Self {
            volume,
            losses,
            access,
            need: AtomicUsize::new(need),
            generation: AtomicU64::new(granted.claim.generation),
            voters: AtomicUsize::new(voters),
            accepted: accept_loss.then_some(there),
            limits,
            epoch,
            origin,
            lineage: lineage.with(epoch.name()),
            base,
            lossy,
            claim: granted.claim.clone(),
            lease: Lease::new(lease, need, Clock::default()),
            index: Shelf::new(index),
            layers: RankedRw::new(Layers { active: Layer::after(last), frozen: None }),
            log: Ranked::new(log),
            work: Condvar::new(),
            done: Condvar::new(),
            files: Ranked::new(files),
            tasks: Ranked::default(),
            tasks_changed: Condvar::new(),
            moving: Ranked::default(),
            slack: AtomicI64::new(i64::MAX),
            least: AtomicU64::new(0),
            cost: LastCost::default(),
            have: Ranked::default(),
            fenced: OnceLock::new(),
            given_back: AtomicBool::new(false),
        }
    }

    /// The state of an index with everything up to a transaction.
    pub fn state_at(&self, last: TxId) -> IndexState {
        match last < self.epoch.first {
            true => IndexState { applied: last, ..self.base },
            false => {
                let Epoch { number, id, .. } = self.epoch;
                IndexState { owner: self.volume, epoch: number, id, applied: last }
            }
        }
    }

    pub fn log(&self) -> Guard<'_, Log, CommitLog> {
        self.log.lock_sound().unwrap_or_else(|mut log| {
            // A record may be there in part.
            log.failed.get_or_insert_with(defect);
            log
        })
    }

    pub fn layers(&self) -> ReadGuard<'_, Layers, Changes> {
        self.layers.read_sound().unwrap_or_else(|layers| {
            self.fail(&defect());
            layers
        })
    }

    pub fn layers_mut(&self) -> WriteGuard<'_, Layers, Changes> {
        self.layers.write_sound().unwrap_or_else(|layers| {
            self.fail(&defect());
            layers
        })
    }

    pub fn files(&self) -> Guard<'_, Files, MirrorFiles> {
        self.files.lock()
    }

    pub fn tasks(&self) -> Guard<'_, Tasks, CheckpointTasks> {
        self.tasks.lock()
    }

    /// Waits until pending transactions leave space for one more; not while no target answers.
    pub fn wait_for_space(&self) -> Result<(), KvError> {
        let mut log = self.log();
        if let Some(why @ KvError::Unavailable(_)) = &log.stuck {
            return Err(why.clone());
        }
        while log.failed.is_none() && !log.stop && !log.closed && log.pending.len() >= self.limits.pending_bytes {
            if let Some(why) = &log.stuck {
                return Err(why.clone());
            }
            log.waiting += 1;
            log = log.wait(&self.done);
            log.waiting -= 1;
        }
        log.check_open()
    }

    /// Gives the next transaction its number and its place in the journal.
    pub fn append(&self, edits: &BTreeMap<Vec<u8>, Option<Vec<u8>>>) -> Result<TxId, KvError> {
        let mut log = self.log();
        log.check_open()?;
        log.last = log.last.next();
        let frame = Frame::new(RecordKind::Record, log.last.0, self.epoch, log.durable);
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
    pub fn refuse(&self) -> TxId {
        let mut log = self.log();
        log.closed = true;
        self.done.notify_all();
        log.last
    }

    /// Waits until a transaction is durable. Fails while all targets are full or unreachable.
    pub fn sync(&self, seq: TxId) -> Result<(), KvError> {
        self.cost.carried(|| self.wait_durable(seq, false))
    }

    /// As `sync`, but also waits until targets have space or answer again.
    pub fn sync_at_last(&self, seq: TxId) -> Result<(), KvError> {
        self.wait_durable(seq, true)
    }

    fn wait_durable(&self, seq: TxId, patient: bool) -> Result<(), KvError> {
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
            log = log.wait(&self.done);
        }
        // What is durable stays durable, but the caller must learn that nothing more will be.
        log.failed.clone().map_or(Ok(()), Err)
    }

    /// For the journal thread: waits for transactions that are due, and takes them. `None` when it
    /// must stop.
    pub fn take_pending(&self, spare: Vec<u8>) -> Option<(Vec<u8>, TxId)> {
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
                let waiting = log.waiting > 0;
                drop(log);
                if waiting {
                    self.done.notify_all();
                }
                return Some((pending, last));
            }
            log = match rest {
                Some(rest) => log.wait_timeout(&self.work, rest),
                None => log.wait(&self.work),
            };
        }
    }

    /// For the journal thread: too few targets accept writes now.
    pub fn set_stuck(&self, why: &KvError) {
        self.log().stuck = Some(why.clone());
        self.done.notify_all();
    }

    /// Whether the engine is about to end.
    pub fn is_stopping(&self) -> bool {
        let log = self.log();
        log.stop || log.failed.is_some()
    }

    /// Waits until the barrier is durable. Without space, the volume can be read, and removing
    /// other data from the targets frees some.
    ///
    /// # Errors
    /// When too few targets take the barrier.
    pub fn wait_established(&self) -> Result<(), KvError> {
        let mut log = self.log();
        while !log.established {
            log.check()?;
            match &log.stuck {
                Some(KvError::NoSpace) => break,
                Some(why) => return Err(why.clone()),
                None => log = log.wait(&self.done),
            }
        }
        Ok(())
    }

    /// Why nothing becomes durable now.
    pub fn stuck(&self) -> Option<KvError> {
        self.log().stuck.clone()
    }

    /// Notifies all waiting threads that transactions are durable.
    pub fn set_durable(&self, last: TxId) {
        let mut log = self.log();
        (log.durable, log.stuck, log.established) = (last, None, true);
        drop(log);
        self.done.notify_all();
    }

    /// From now on nothing is committed or becomes durable.
    pub fn fail(&self, error: &KvError) {
        if matches!(error, KvError::Fenced(_)) {
            let _ = self.fenced.set(error.clone());
        }
        self.log().failed.get_or_insert_with(|| error.clone());
        self.done.notify_all();
        self.work.notify_all();
        // A snapshot thread that panicked has not said that it ended.
        self.task(|tasks| tasks.busy = false);
    }

    /// Why this opening has ended, when another one has taken over.
    pub fn fenced(&self) -> Option<&KvError> {
        self.fenced.get()
    }

    /// Whether what was just read may be answered: no other opening can have changed it.
    pub fn check_fresh(&self) -> Result<(), KvError> {
        match self.fenced.get() {
            Some(fenced) => Err(fenced.clone()),
            None if self.given_back.load(Ordering::SeqCst) => Err(closed()),
            None => self.lease.check(|| self.is_stopping()),
        }
    }

    /// Wakes the journal thread although there may be nothing to write.
    pub fn kick(&self) {
        self.log().kick = true;
        self.work.notify_one();
    }

    /// Asks the journal thread to check the mirrors. Returns the number of this request.
    pub fn ask(&self) -> u64 {
        let asked = {
            let mut files = self.files();
            files.asked += 1;
            files.asked
        };
        self.kick();
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
        let waits = |tasks: &Tasks| !tasks.stop && !tasks.retry;
        let mut tasks = self.tasks().wait_timeout_while(&self.tasks_changed, pause, waits);
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
    pub fn wait_tasks(&self, ready: impl Fn(&Tasks) -> bool) -> Result<Guard<'_, Tasks, CheckpointTasks>, KvError> {
        self.wait_tasks_while(|_| true, ready)
    }

    /// The same, but only while `hopes` accepts the log.
    pub fn wait_tasks_while(
        &self,
        hopes: impl Fn(&Log) -> bool,
        ready: impl Fn(&Tasks) -> bool,
    ) -> Result<Guard<'_, Tasks, CheckpointTasks>, KvError> {
        let mut tasks = self.tasks();
        while !ready(&tasks) {
            // A failure is announced under the tasks' lock after it is set, so none is missed
            // between this check and the wait.
            drop(tasks);
            let goes_on = {
                let log = self.log();
                log.check()?;
                hopes(&log)
            };
            tasks = self.tasks();
            if !goes_on || ready(&tasks) {
                break;
            }
            tasks = tasks.wait_timeout(&self.tasks_changed, Duration::from_millis(100));
        }
        Ok(tasks)
    }

    /// Waits, but not for long, until the mirrors differ from those of a generation. Returns
    /// whether they do.
    pub fn wait_for_change(&self, generation: u64) -> Result<bool, KvError> {
        self.log().check()?;
        if self.files().generation != generation {
            return Ok(true);
        }
        // A change right now is noticed after the wait.
        drop(self.tasks().wait_timeout(&self.tasks_changed, Duration::from_millis(50)));
        self.log().check()?;
        Ok(self.files().generation != generation)
    }

    /// Tells all threads to stop.
    pub fn stop(&self) {
        self.log().stop = true;
        self.work.notify_all();
        self.done.notify_all();
        self.task(|tasks| tasks.stop = true);
    }

    /// Nothing that is read later is answered.
    pub fn give_back(&self) {
        self.given_back.store(true, Ordering::SeqCst);
    }

    pub fn status(&self) -> Status {
        let (committed, durable, failure, stuck) = {
            let log = self.log();
            let text = |error: &Option<KvError>| error.as_ref().map(ToString::to_string);
            (log.last, log.durable, text(&log.failed), text(&log.stuck))
        };
        let files = self.files();
        let (whole, wanted) = (files.whole.len(), self.losses + 1);
        let snapshot_failed = files.last_try.is_some_and(|(_, _, made)| !made);
        let unmended = files.last_error.clone().filter(|_| whole < wanted || snapshot_failed);
        Status {
            trouble: failure.clone().or(stuck).or(unmended),
            mirrors: files.mirrors.iter().map(|&(id, _)| id).collect(),
            wanted,
            whole,
            degraded: whole < wanted,
            epoch: self.epoch.number,
            lossy: self.lossy,
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
