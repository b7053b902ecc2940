//! One mirror: a thread with its own queue, so that a slow mirror delays no other, and what is
//! known to be on it.

use super::super::files::same;
use super::super::options::MirrorTarget;
use super::super::panics::caught;
use super::super::shared::Shared;
use super::answers::{Answer, Answers};
use super::queue::{Queue, Task};
use super::worker::Job as Plain;
use plan::TxId;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};
use volume::target::{Durable, Target, TargetFile};

/// The name of these threads.
const MIRROR: &str = "weft-mirror";

/// Work to do on a mirror; returns the time that the target itself took.
pub(in crate::journal) type Job = Box<dyn FnOnce(&dyn Target) -> io::Result<Duration> + Send>;

/// A mirror.
pub(in crate::journal) struct Mirror {
    pub place: MirrorTarget,
    pub key: u64,
    queue: Arc<Queue>,
    running: Weak<()>,
    /// Set when a job fails or the mirror is dropped: the jobs behind it are not begun.
    broken: Arc<AtomicBool>,
    sent: VecDeque<Sent>,
    /// The last batch that it has, with everything before it if it is whole.
    pub done: u64,
    /// The last transaction in that batch.
    pub acked: TxId,
    /// It has a snapshot and all records behind it: it counts.
    pub whole: bool,
    /// It gets the state from other mirrors since then.
    pub copying: Option<Instant>,
    /// The snapshot in that state.
    pub copied: Arc<AtomicU64>,
    /// It has all records behind this transaction, so that a snapshot of it makes it whole.
    pub since: TxId,
    /// It had no space for the batch in progress.
    pub full: Option<io::Error>,
}

/// A job that is not answered.
struct Sent {
    /// The batch, and its last transaction; None when it copies the state.
    batch: Option<(u64, TxId)>,
    bytes: usize,
    at: Instant,
}

impl Mirror {
    /// Starts the thread of a mirror.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(
        key: u64,
        place: MirrorTarget,
        since: TxId,
        shared: &Arc<Shared>,
        answers: Answers,
    ) -> io::Result<Self> {
        let (queue, alive, broken) = (Arc::<Queue>::default(), Arc::new(()), Arc::new(AtomicBool::new(false)));
        let running = Arc::downgrade(&alive);
        // A mirror that hangs must not keep the engine, and with it the index, alive.
        let (shared, stop, target) = (Arc::downgrade(shared), broken.clone(), place.1.clone());
        let tasks = queue.clone();
        thread::Builder::new().name(MIRROR.into()).spawn(move || {
            serve(key, &*target, &tasks, &stop, &answers, &shared);
            drop(alive);
        })?;
        Ok(Self {
            place,
            key,
            queue,
            running,
            broken,
            sent: VecDeque::new(),
            done: 0,
            acked: TxId(0),
            whole: false,
            copying: None,
            copied: Arc::default(),
            since,
            full: None,
        })
    }

    /// Queues the write of a batch.
    pub fn send(&mut self, batch: u64, last: TxId, bytes: usize, job: Job) {
        self.queue(Some((batch, last)), bytes, job);
    }

    /// Queues a batch that others make durable: it may wait for more of them.
    pub fn hold(&mut self, batch: u64, last: TxId, file: TargetFile, at: u64, records: &[u8]) {
        self.note(Some((batch, last)), records.len());
        self.queue.hold(file, at, records);
    }

    /// Writes at once what it was given to hold.
    pub fn hurry(&self) {
        self.queue.hurry();
    }

    /// Queues the copy of the state.
    pub fn copy(&mut self, job: Plain) {
        self.copying = Some(Instant::now());
        self.queue(None, 0, Box::new(|target| job(target).map(|()| Duration::ZERO)));
    }

    /// Queues a check, which changes nothing. If it fails, the mirror has failed.
    pub fn check(&mut self, job: Plain) {
        self.queue(Some((self.done, self.acked)), 0, Box::new(|target| job(target).map(|()| Duration::ZERO)));
    }

    fn queue(&mut self, batch: Option<(u64, TxId)>, bytes: usize, job: Job) {
        self.note(batch, bytes);
        self.queue.push(job, batch.is_none());
    }

    fn note(&mut self, batch: Option<(u64, TxId)>, bytes: usize) {
        self.sent.push_back(Sent { batch, bytes, at: Instant::now() });
    }

    /// Notes that the oldest job is done. Returns whether that was the copy of the state.
    pub fn answered(&mut self) -> bool {
        let batch = self.sent.pop_front().and_then(|sent| sent.batch);
        if let Some((number, last)) = batch {
            (self.done, self.acked) = (number, last);
        } else {
            (self.whole, self.copying) = (true, None);
        }
        // What waits behind it begins now.
        self.sent.iter_mut().take(1).for_each(|sent| sent.at = Instant::now());
        batch.is_none()
    }

    /// Drops the answer of a batch for which there was no space; it is sent again later.
    pub fn stalled(&mut self, error: io::Error) {
        self.sent.clear();
        self.full = Some(error);
    }

    /// Tries again, with an empty queue.
    pub fn restart(&mut self) {
        self.full = None;
        self.broken.store(false, Ordering::Relaxed);
    }

    /// Whether it is so far behind that it is dropped. A copy may take any time.
    pub fn is_late(&self, deadline: Duration, bytes: usize) -> bool {
        // The last batch may be the one in progress, and a large one.
        let waits = self.sent.iter().rev().skip(1).map(|sent| sent.bytes).sum::<usize>();
        let first = self.sent.front().filter(|sent| sent.batch.is_some());
        let most = if self.copying.is_some() { 4 * bytes } else { bytes };
        first.is_some_and(|sent| sent.at.elapsed() >= deadline) || waits > most
    }

    /// Whether it has not answered all batches, and may soon.
    pub fn is_behind(&self) -> bool {
        !self.sent.is_empty() && self.copying.is_none()
    }

    /// Whether it is a certain place.
    pub fn is(&self, place: &MirrorTarget) -> bool {
        same(&self.place, place)
    }

    /// Gone when the thread has ended.
    pub fn running(&self) -> Weak<()> {
        self.running.clone()
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        self.broken.store(true, Ordering::Relaxed);
        self.queue.close();
    }
}

fn serve(key: u64, target: &dyn Target, tasks: &Queue, broken: &AtomicBool, answers: &Answers, shared: &Weak<Shared>) {
    while let Some(task) = tasks.next() {
        if broken.load(Ordering::Relaxed) {
            continue;
        }
        // A panic is this target's failure: the others still have everything.
        let run = |work: &mut dyn FnMut() -> io::Result<Duration>| {
            caught(MIRROR, work).unwrap_or_else(|why| Err(io::Error::other(why)))
        };
        let (batches, copies, result) = match task {
            Task::Run(job, copies) => {
                let mut job = Some(job);
                (1, copies, run(&mut || job.take().map_or(Ok(Duration::ZERO), |job| job(target))))
            }
            Task::Append(append) => {
                let records = [IoSlice::new(&append.records)];
                (append.batches, false, run(&mut || target.write(append.file, append.at, &records, Durable::Now)))
            }
        };
        let urgent = copies || result.is_err();
        if result.is_err() {
            // What was queued behind it would leave a gap.
            broken.store(true, Ordering::Relaxed);
        }
        answers.send(Answer { key, jobs: batches, result }, urgent);
        // The journal thread may sleep. It must see a failure, and a mirror that has become whole.
        if urgent && let Some(shared) = shared.upgrade() {
            shared.kick();
        }
    }
}
