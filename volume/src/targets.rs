//! The targets of a volume. Each target has its own threads: a slow target does not delay the
//! others, and the caller gives up on one that hangs after a deadline.

use crate::counts::ReadCounts;
use crate::set::Headers;
use crate::steps::Steps;
use crate::target::{Space, Target};
use plan::TargetId;
use std::collections::BTreeMap;
use std::io;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

/// An operation that takes longer counts as failed. If it has begun, it may still take effect.
const DEADLINE: Duration = Duration::from_secs(15);
/// Threads per target.
const THREADS: usize = 2;
/// Operations that may wait for a thread of a target. Each may hold a stripe in memory.
const QUEUE: usize = 32;
/// Threads shared by all targets, for operations that are too short to wake a thread of each.
const COURIERS: usize = 2;
/// How often to retry while a queue is full.
const RETRY: Duration = Duration::from_micros(500);
/// How long a reported free space, or the lack of an answer, remains valid.
const SPACE_LASTS: Duration = Duration::from_millis(50);
const SILENCE_LASTS: Duration = Duration::from_secs(5);
/// How long a target that rejected a write for lack of space counts as full, whatever it reports.
const FULL_LASTS: Duration = Duration::from_secs(30);
/// The minimum interval between warnings about the same failing target.
const COMPLAINT: Duration = Duration::from_secs(30);

type Job = Box<dyn FnOnce(&dyn Target) + Send>;
type Errand = Box<dyn FnOnce() + Send>;
type Warn = Box<dyn Fn(&str) + Send + Sync>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The health of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// The target works.
    Healthy,
    /// The target answers, but an operation on it failed and the failure was not forgiven.
    Failing(String),
    /// The target is missing or does not answer.
    Gone(String),
}

/// The state of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetHealth {
    /// The target.
    pub id: TargetId,
    /// Its health.
    pub health: Health,
    /// Its space, if known.
    pub space: Option<Space>,
    /// Operations that wait for it or run on it.
    pub queued: usize,
    /// Operations that failed since the target was added.
    pub errors: u64,
    /// Bytes of records read from it.
    pub read_bytes: u64,
    /// Bytes of records written to it.
    pub written_bytes: u64,
}

/// The space on a target, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// The target.
    pub id: TargetId,
    /// The last reported space; None if the target never reported any.
    pub space: Option<Space>,
    /// Whether that report is current.
    pub answer: Answer,
}

/// Whether a target reports its space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It does.
    Given,
    /// It has not answered for this long, which says nothing about its space.
    Awaited(Duration),
    /// The target is missing.
    None,
}

/// A target and its threads. They end when it is dropped and the queue is empty.
#[derive(Debug)]
struct Entry {
    target: Arc<dyn Target>,
    jobs: SyncSender<Job>,
    /// The receiving end of the queue, until the threads start.
    idle: Mutex<Option<Receiver<Job>>>,
    error: Mutex<Option<String>>,
    complained: Mutex<Option<Instant>>,
    space: Mutex<Option<(Instant, Option<Space>)>>,
    /// The last space that the target ever reported.
    last_space: Mutex<Option<Space>>,
    /// Since when it has not answered requests for its space.
    silent: Mutex<Option<Instant>>,
    /// The last request for its space failed.
    absent: AtomicBool,
    /// When a write last failed for lack of space.
    full: Mutex<Option<Instant>>,
    /// Operations that wait for a thread or run on one.
    queued: Arc<AtomicUsize>,
    errors: AtomicU64,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    /// Operations that the caller gave up and that have not ended.
    late: AtomicUsize,
    /// Reads that were hedged and have not ended.
    slow: AtomicUsize,
}

/// The stage of an operation.
#[derive(Debug)]
enum Stage {
    Queued,
    Begun,
    Ended,
    /// The caller gave up; the target counts as hanging.
    GivenUp,
    /// The caller hedged the operation; that says only that another way was faster.
    Overtaken,
}

/// An operation that a caller waits for.
struct Waiting {
    id: TargetId,
    entry: Arc<Entry>,
    stage: Arc<Mutex<Stage>>,
}

/// The targets of a volume, by number.
pub struct Targets {
    entries: RwLock<BTreeMap<TargetId, Arc<Entry>>>,
    deadline: Duration,
    warn: RwLock<Option<Warn>>,
    couriers: OnceLock<SyncSender<Errand>>,
    pub(crate) headers: Headers,
    /// Where the time of writes to the targets goes.
    steps: Steps,
    reads: ReadCounts,
    /// How long reads usually take.
    pub(crate) pace: Pace,
    /// How long Masters usually take for a stripe.
    pub(crate) masters: Pace,
}

/// How long an operation usually takes, reads above all, and so when one is late.
#[derive(Debug, Default)]
pub(crate) struct Pace(AtomicU64);

impl Pace {
    /// A read is late after this multiple of the usual time.
    const LATE: u64 = 10;
    /// No read is late earlier than this, so that a moment of load does not look like a hanging
    /// disk.
    const SOONEST: Duration = Duration::from_millis(100);
    const LATEST: Duration = Duration::from_secs(3);

    /// Records how long a read took.
    pub fn note(&self, took: Duration) {
        let took = took.as_micros() as u64;
        let usual = self.0.load(Ordering::Relaxed);
        self.0.store(usual - usual / 8 + took / 8, Ordering::Relaxed);
    }

    /// How long to wait before a read counts as late.
    pub fn patience(&self) -> Duration {
        self.patience_within(Self::SOONEST..=Self::LATEST)
    }

    /// The same with other limits.
    pub fn patience_within(&self, limits: RangeInclusive<Duration>) -> Duration {
        let usual = self.0.load(Ordering::Relaxed);
        Duration::from_micros(usual.saturating_mul(Self::LATE)).clamp(*limits.start(), *limits.end())
    }
}

/// Operations on several targets at the same time. The deadline counts from its creation.
pub(crate) struct Batch<T> {
    send: Sender<(usize, io::Result<T>)>,
    results: Receiver<(usize, io::Result<T>)>,
    /// Operations that wait for space in a queue.
    refused: Vec<(usize, Arc<Entry>, Job)>,
    waiting: BTreeMap<usize, Waiting>,
    done: Vec<(usize, TargetId, io::Result<T>)>,
    begun: Instant,
    /// Late operations are hedged, not given up.
    overtaken: bool,
    /// The same, for targets that never reported their space.
    spares_new: bool,
}

fn work(target: &dyn Target, queue: &Mutex<Receiver<Job>>, queued: &AtomicUsize) {
    loop {
        let job = lock(queue).recv();
        let Ok(job) = job else { return };
        job(target);
        queued.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Entry {
    fn new(target: Arc<dyn Target>) -> Self {
        let (jobs, queue) = sync_channel(QUEUE);
        Self {
            target,
            jobs,
            idle: Mutex::new(Some(queue)),
            error: Mutex::default(),
            complained: Mutex::default(),
            space: Mutex::default(),
            last_space: Mutex::default(),
            silent: Mutex::default(),
            absent: AtomicBool::new(false),
            full: Mutex::default(),
            queued: Arc::default(),
            errors: AtomicU64::new(0),
            read_bytes: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
            late: AtomicUsize::new(0),
            slow: AtomicUsize::new(0),
        }
    }

    /// Runs an operation unless the caller gave it up before.
    fn perform<T>(&self, stage: &Mutex<Stage>, operation: impl FnOnce() -> T) -> Option<T> {
        {
            let mut stage = lock(stage);
            if matches!(*stage, Stage::GivenUp | Stage::Overtaken) {
                return None;
            }
            *stage = Stage::Begun;
        }
        let result = operation();
        match std::mem::replace(&mut *lock(stage), Stage::Ended) {
            Stage::GivenUp => _ = self.late.fetch_sub(1, Ordering::Relaxed),
            Stage::Overtaken => _ = self.slow.fetch_sub(1, Ordering::Relaxed),
            _ => {}
        }
        Some(result)
    }

    /// Hedges a read: the caller continues without it.
    fn overtake(&self, stage: &Mutex<Stage>) {
        let mut stage = lock(stage);
        if let Stage::Begun = *stage {
            self.slow.fetch_add(1, Ordering::Relaxed);
        }
        *stage = Stage::Overtaken;
    }

    /// Stops waiting for an operation. If it has not begun, it never runs.
    fn give_up(&self, stage: &Mutex<Stage>) {
        let mut stage = lock(stage);
        if let Stage::Begun = *stage {
            self.late.fetch_add(1, Ordering::Relaxed);
        }
        *stage = Stage::GivenUp;
    }

    /// The space that the target reported last, if the report is still valid.
    fn known_space(&self) -> Option<io::Result<Space>> {
        // All its threads hang: another request would hang, too.
        if self.late.load(Ordering::Relaxed) >= THREADS {
            lock(&self.silent).get_or_insert_with(Instant::now);
            return Some(Err(io::ErrorKind::TimedOut.into()));
        }
        match *lock(&self.space) {
            Some((when, Some(space))) if when.elapsed() < SPACE_LASTS => Some(Ok(space)),
            Some((when, None)) if when.elapsed() < SILENCE_LASTS => Some(Err(io::ErrorKind::TimedOut.into())),
            _ => None,
        }
    }

    fn note_space(&self, found: &io::Result<Space>) {
        self.absent.store(found.is_err(), Ordering::Relaxed);
        let now = Instant::now();
        let silence = found.as_ref().is_err_and(|why| why.kind() == io::ErrorKind::TimedOut);
        {
            let mut silent = lock(&self.silent);
            *silent = if silence { silent.or(Some(now)) } else { None };
        }
        *lock(&self.space) = match found {
            Ok(space) => Some((now, Some(*space))),
            Err(_) if silence => Some((now, None)),
            Err(_) => None,
        };
        if let Ok(space) = found {
            *lock(&self.last_space) = Some(*space);
        }
    }

    /// Records that the target did not answer a request sent at `asked`, unless it has answered
    /// since.
    fn note_silence(&self, asked: Instant) {
        let answered = matches!(*lock(&self.space), Some((when, Some(_))) if when >= asked);
        if !answered {
            self.note_space(&Err(io::ErrorKind::TimedOut.into()));
        }
    }

    fn told(&self, id: TargetId, health: Health, space: Option<Space>) -> TargetHealth {
        TargetHealth {
            id,
            health,
            space,
            queued: self.queued.load(Ordering::Relaxed),
            errors: self.errors.load(Ordering::Relaxed),
            read_bytes: self.read_bytes.load(Ordering::Relaxed),
            written_bytes: self.written_bytes.load(Ordering::Relaxed),
        }
    }

    /// Puts an operation into the queue; returns it if the queue is full.
    fn submit(&self, job: Job) -> Result<(), Job> {
        if let Some(queue) = lock(&self.idle).take() {
            let queue = Arc::new(Mutex::new(queue));
            for _ in 0..THREADS {
                let (target, queue, queued) = (self.target.clone(), queue.clone(), self.queued.clone());
                std::thread::spawn(move || work(&*target, &queue, &queued));
            }
        }
        self.queued.fetch_add(1, Ordering::Relaxed);
        match self.jobs.try_send(job) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(job) | TrySendError::Disconnected(job)) => {
                self.queued.fetch_sub(1, Ordering::Relaxed);
                Err(job)
            }
        }
    }
}

impl Default for Targets {
    fn default() -> Self {
        Self::with_deadline(DEADLINE)
    }
}

impl Targets {
    /// Creates an empty set of targets. An operation that takes 15 seconds counts as failed.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an empty set of targets. An operation that takes longer than `deadline` counts as
    /// failed.
    pub fn with_deadline(deadline: Duration) -> Self {
        Self {
            entries: RwLock::default(),
            deadline,
            warn: RwLock::default(),
            couriers: OnceLock::new(),
            headers: Headers::default(),
            steps: Steps::default(),
            reads: ReadCounts::default(),
            pace: Pace::default(),
            masters: Pace::default(),
        }
    }

    /// Sets `warn`, which gets one line when a target begins to fail, and again from time to time
    /// while it keeps failing.
    pub fn on_warning(&self, warn: Box<dyn Fn(&str) + Send + Sync>) {
        *self.warn.write().unwrap_or_else(PoisonError::into_inner) = Some(warn);
    }

    /// Where the time of writes to the targets goes. All writers count here.
    pub fn steps(&self) -> &Steps {
        &self.steps
    }

    /// Counts reads that were not plain reads of sound data blocks.
    pub fn reads(&self) -> &ReadCounts {
        &self.reads
    }

    fn entries(&self) -> RwLockReadGuard<'_, BTreeMap<TargetId, Arc<Entry>>> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn entry(&self, id: TargetId) -> Option<Arc<Entry>> {
        self.entries().get(&id).cloned()
    }

    /// Adds a target, or replaces the one with this number. Its threads start with the first
    /// operation.
    pub fn add(&self, id: TargetId, target: Arc<dyn Target>) {
        let entry = Arc::new(Entry::new(target));
        self.entries.write().unwrap_or_else(PoisonError::into_inner).insert(id, entry);
    }

    /// Removes a target.
    pub fn remove(&self, id: TargetId) {
        self.entries.write().unwrap_or_else(PoisonError::into_inner).remove(&id);
    }

    /// The numbers of all targets.
    pub fn ids(&self) -> Vec<TargetId> {
        self.entries().keys().copied().collect()
    }

    /// A target.
    pub fn get(&self, id: TargetId) -> Option<Arc<dyn Target>> {
        self.entries().get(&id).map(|entry| entry.target.clone())
    }

    /// The last failure of a target that was not forgiven.
    pub fn error(&self, id: TargetId) -> Option<String> {
        let entry = self.entry(id)?;
        lock(&entry.error).clone()
    }

    /// Whether a target answers: it may hold chunks.
    pub fn is_usable(&self, id: TargetId) -> bool {
        self.space(id).is_ok()
    }

    /// Whether a target answers and has no failure: it may receive chunks.
    pub fn is_healthy(&self, id: TargetId) -> bool {
        self.error(id).is_none() && !self.hangs(id) && self.is_usable(id)
    }

    /// Whether an operation that was given up still runs. It may change what was written later, so
    /// nothing new may be created there.
    pub fn hangs(&self, id: TargetId) -> bool {
        self.entry(id).is_some_and(|entry| entry.late.load(Ordering::Relaxed) > 0)
    }

    /// Whether to avoid a target if the data can be read elsewhere: an operation on it takes too
    /// long.
    pub(crate) fn is_slow(&self, id: TargetId) -> bool {
        self.entry(id)
            .is_some_and(|entry| entry.slow.load(Ordering::Relaxed) > 0 || entry.late.load(Ordering::Relaxed) > 0)
    }

    /// Runs an operation on several targets at the same time. The key identifies each run. A run
    /// that takes longer than the deadline has failed. Failures are recorded for their targets.
    pub fn each<T: Send + 'static>(
        &self,
        places: impl IntoIterator<Item = (usize, TargetId)>,
        operation: impl Fn(usize, &dyn Target) -> io::Result<T> + Send + Sync + 'static,
    ) -> Vec<(usize, TargetId, io::Result<T>)> {
        let operation = Arc::new(operation);
        let mut batch = Batch::new();
        for (key, id) in places {
            let operation = operation.clone();
            batch.run(self, key, id, move |target| operation(key, target));
        }
        batch.wait(self)
    }

    /// The space on a target, at most a moment old.
    ///
    /// # Errors
    /// If the target is missing or does not answer.
    pub fn space(&self, id: TargetId) -> io::Result<Space> {
        self.spaces_of(&[id], false).pop().map_or(Err(io::ErrorKind::NotFound.into()), |(_, found)| found)
    }

    /// The space on all targets that answer. With `fresh`, recent reports do not count. The targets
    /// are asked at the same time, so several that hang delay the caller no longer than one.
    pub fn spaces(&self, fresh: bool) -> Vec<(TargetId, Space)> {
        let all = self.spaces_of(&self.ids(), fresh).into_iter();
        all.filter_map(|(id, found)| Some((id, found.ok()?))).collect()
    }

    fn spaces_of(&self, ids: &[TargetId], fresh: bool) -> Vec<(TargetId, io::Result<Space>)> {
        let mut batch = Batch::new();
        let mut all: BTreeMap<TargetId, io::Result<Space>> = BTreeMap::new();
        for &id in ids {
            let Some(entry) = self.entry(id) else { continue };
            match entry.known_space().filter(|known| !fresh || known.is_err()) {
                Some(known) => _ = all.insert(id, known),
                None => {
                    let weak = Arc::downgrade(&entry);
                    batch.run(self, usize::from(id.0), id, move |target| {
                        let found = target.space();
                        // Record the answer even if the caller gave up: a late target has answered
                        // then.
                        if let Some(entry) = weak.upgrade() {
                            entry.note_space(&found);
                        }
                        found
                    });
                }
            }
        }
        let (most, asked) = (batch.waiting.len().div_ceil(2), batch.begun);
        // A target that never answered may be overloaded, as all are on a busy machine: a late
        // answer does not mean that it hangs.
        batch.spares_new = true;
        for (_, id, found) in batch.collect_while(|took| plan::late::patience(took, most, most, self.deadline)) {
            if let Some(entry) = self.entry(id).filter(|_| is_late(&found)) {
                entry.note_silence(asked);
            }
            all.insert(id, found);
        }
        all.into_iter().collect()
    }

    /// The space on all targets as far as it is known, including targets that do not answer. With
    /// `fresh`, recent reports do not count.
    pub fn rooms(&self, fresh: bool) -> Vec<Room> {
        let room = |(id, found): (TargetId, io::Result<Space>)| {
            let entry = self.entry(id)?;
            let answer = match &found {
                Ok(_) => Answer::Given,
                Err(why) if why.kind() == io::ErrorKind::TimedOut => {
                    Answer::Awaited(lock(&entry.silent).map_or(Duration::ZERO, |since| since.elapsed()))
                }
                Err(_) => Answer::None,
            };
            let space = found.ok().or(*lock(&entry.last_space));
            Some(Room { id, space, answer })
        };
        self.spaces_of(&self.ids(), fresh).into_iter().filter_map(room).collect()
    }

    /// Whether a target recently rejected a write for lack of space.
    pub fn was_full(&self, id: TargetId) -> bool {
        self.entry(id).is_some_and(|entry| lock(&entry.full).is_some_and(|when| when.elapsed() < FULL_LASTS))
    }

    /// The known state of all targets, without a request to them: for callers that must not wait.
    /// The space is the last reported one.
    pub fn known_health(&self) -> Vec<TargetHealth> {
        let entries = self.entries();
        let known = entries.iter().map(|(&id, entry)| {
            let health = match &*lock(&entry.error) {
                _ if entry.absent.load(Ordering::Relaxed) => Health::Gone("it does not answer".into()),
                Some(error) => Health::Failing(error.clone()),
                None => Health::Healthy,
            };
            entry.told(id, health, lock(&entry.space).and_then(|(_, space)| space))
        });
        known.collect()
    }

    /// The health of all targets.
    pub fn health(&self) -> Vec<TargetHealth> {
        let entries: Vec<(TargetId, Arc<Entry>)> = self.entries().iter().map(|(id, e)| (*id, e.clone())).collect();
        let health = |(id, entry): (TargetId, Arc<Entry>)| {
            let space = self.space(id);
            let health = match (&space, &*lock(&entry.error)) {
                (Err(why), _) => Health::Gone(why.to_string()),
                (Ok(_), Some(error)) => Health::Failing(error.clone()),
                (Ok(_), None) => Health::Healthy,
            };
            entry.told(id, health, space.ok())
        };
        entries.into_iter().map(health).collect()
    }

    /// Records that an operation on a target failed. A full target does not count as failing: other
    /// operations may still use it.
    pub fn failed(&self, id: TargetId, error: &io::Error) {
        use io::ErrorKind as Kind;
        let Some(entry) = self.entry(id) else { return };
        entry.errors.fetch_add(1, Ordering::Relaxed);
        if matches!(error.kind(), Kind::StorageFull | Kind::QuotaExceeded) {
            *lock(&entry.full) = Some(Instant::now());
            return;
        }
        *lock(&entry.error) = Some(error.to_string());
        let mut complained = lock(&entry.complained);
        if complained.is_none_or(|when| when.elapsed() > COMPLAINT) {
            *complained = Some(Instant::now());
            drop(complained);
            if let Some(warn) = &*self.warn.read().unwrap_or_else(PoisonError::into_inner) {
                warn(&format!("target {} fails: {error}", id.0));
            }
        }
    }

    /// Clears the failures of a target that answers again. Called when there is a reason to retry
    /// it.
    pub fn forgive(&self, id: TargetId) {
        if let Some(entry) = self.entry(id) {
            *lock(&entry.error) = None;
            *lock(&entry.complained) = None;
        }
    }

    pub(crate) fn count_read(&self, id: TargetId, bytes: usize) {
        if let Some(entry) = self.entries().get(&id) {
            entry.read_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }

    pub(crate) fn count_written(&self, id: TargetId, bytes: usize) {
        if let Some(entry) = self.entries().get(&id) {
            entry.written_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }
}

/// The progress of a courier.
#[derive(Debug)]
struct Progress<T> {
    begun: bool,
    done: Vec<io::Result<T>>,
    finished: bool,
    /// The caller stopped waiting: other threads do the rest.
    abandoned: bool,
}

impl Targets {
    fn couriers(&self) -> &SyncSender<Errand> {
        self.couriers.get_or_init(|| {
            let (errands, queue) = sync_channel::<Errand>(COURIERS);
            let queue = Arc::new(Mutex::new(queue));
            for _ in 0..COURIERS {
                let queue = queue.clone();
                std::thread::spawn(move || {
                    loop {
                        let errand = lock(&queue).recv();
                        let Ok(errand) = errand else { return };
                        errand();
                    }
                });
            }
            errands
        })
    }

    /// Runs a short operation on one target after the other, all on one thread. Where each run
    /// takes microseconds, waking a thread for each would cost more than the runs themselves. If a
    /// target hangs, the threads of the remaining targets do what is left. Failures are recorded
    /// for their targets.
    pub(crate) fn one_by_one<T: Send + 'static>(
        &self,
        places: &[(usize, TargetId)],
        operation: impl Fn(usize, &dyn Target) -> io::Result<T> + Send + Sync + 'static,
    ) -> Vec<(usize, TargetId, io::Result<T>)> {
        let operation = Arc::new(operation);
        let steps: Option<Vec<(usize, Arc<dyn Target>)>> = {
            let entries = self.entries();
            let healthy = |id: &TargetId| entries.get(id).filter(|entry| lock(&entry.error).is_none());
            places.iter().map(|(key, id)| healthy(id).map(|entry| (*key, entry.target.clone()))).collect()
        };
        let mut done = steps.map_or_else(Vec::new, |steps| self.send_courier(steps, &operation));
        let late = done.len();
        let mut all: Vec<(usize, TargetId, io::Result<T>)> =
            places.iter().zip(done.drain(..)).map(|(&(key, id), result)| (key, id, result)).collect();
        record(self, &all);
        let mut batch = Batch::new();
        for &(key, id) in &places[late..] {
            let operation = operation.clone();
            batch.run(self, key, id, move |target| operation(key, target));
        }
        all.extend(batch.wait(self));
        all
    }

    /// The results that a courier delivered in time. The last one may belong to the operation that
    /// it still tries.
    fn send_courier<T: Send + 'static>(
        &self,
        steps: Vec<(usize, Arc<dyn Target>)>,
        operation: &Arc<impl Fn(usize, &dyn Target) -> io::Result<T> + Send + Sync + 'static>,
    ) -> Vec<io::Result<T>> {
        let count = steps.len();
        let progress = Progress { begun: false, done: Vec::with_capacity(count), finished: false, abandoned: false };
        let shared = Arc::new((Mutex::new(progress), Condvar::new()));
        let (his, operation) = (shared.clone(), operation.clone());
        let errand = Box::new(move || {
            let (progress, finished) = &*his;
            lock(progress).begun = true;
            for (key, target) in steps {
                if lock(progress).abandoned {
                    return;
                }
                let result = operation(key, &*target);
                lock(progress).done.push(result);
            }
            // Release what the operation holds before the caller continues.
            drop(operation);
            lock(progress).finished = true;
            finished.notify_one();
        });
        if self.couriers().try_send(errand).is_err() {
            return Vec::new();
        }
        let begun = Instant::now();
        let (progress, finished) = &*shared;
        let mut progress = lock(progress);
        while !progress.finished {
            let left = self.deadline.saturating_sub(begun.elapsed());
            if left.is_zero() {
                progress.abandoned = true;
                if progress.begun && progress.done.len() < count {
                    progress.done.push(Err(io::Error::new(io::ErrorKind::TimedOut, "it does not answer")));
                }
                break;
            }
            progress = finished.wait_timeout(progress, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        std::mem::take(&mut progress.done)
    }
}

impl std::fmt::Debug for Targets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.entries().iter().map(|(id, entry)| (id.0, &entry.target))).finish()
    }
}

fn is_late<T>(result: &io::Result<T>) -> bool {
    result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::TimedOut)
}

fn record<T>(targets: &Targets, done: &[(usize, TargetId, io::Result<T>)]) {
    for (_, id, result) in done {
        if let Err(error) = result {
            targets.failed(*id, error);
        }
    }
}

impl<T: Send + 'static> Batch<T> {
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
            overtaken: false,
            spares_new: false,
        }
    }

    /// Runs an operation on a thread of a target. `key` identifies it.
    pub fn run(
        &mut self,
        targets: &Targets,
        key: usize,
        id: TargetId,
        operation: impl FnOnce(&dyn Target) -> io::Result<T> + Send + 'static,
    ) {
        let Some(entry) = targets.entry(id) else {
            return self.done.push((key, id, Err(io::ErrorKind::NotFound.into())));
        };
        let stage = Arc::new(Mutex::new(Stage::Queued));
        let (send, his, its) = (self.send.clone(), stage.clone(), Arc::downgrade(&entry));
        let job: Job = Box::new(move |target| {
            // The waiting caller holds the entry until it gives up or has the result.
            let done = match its.upgrade() {
                Some(entry) => entry.perform(&his, || operation(target)),
                None => None,
            };
            if let Some(result) = done {
                // The caller may have stopped listening.
                let _ = send.send((key, result));
            }
        });
        if let Err(job) = entry.submit(job) {
            self.refused.push((key, entry.clone(), job));
        }
        self.waiting.insert(key, Waiting { id, entry, stage });
    }

    /// Waits for all operations. Failures are recorded for their targets.
    pub fn wait(self, targets: &Targets) -> Vec<(usize, TargetId, io::Result<T>)> {
        let done = self.collect(targets.deadline);
        record(targets, &done);
        done
    }

    /// Waits for reads that the caller can do without, at most until they are late. Late reads
    /// return `TimedOut`, which says nothing about their targets; other failures are recorded.
    pub fn hedged(mut self, targets: &Targets) -> Vec<(usize, TargetId, io::Result<T>)> {
        self.overtaken = true;
        let patience = targets.pace.patience();
        // Do not record the time of late reads: each would make the wait for the next one longer.
        if let Some(&slowest) = self.gather(|_, _| patience).last() {
            targets.pace.note(slowest);
        }
        let (late, done): (Vec<_>, Vec<_>) = self.done.into_iter().partition(|(.., result)| is_late(result));
        record(targets, &done);
        done.into_iter().chain(late).collect()
    }

    /// Waits for all operations, but for late ones no longer than it takes to know that they are
    /// late: `least` successes suffice, `wanted` are better. A late target counts as failed until
    /// it answers. Failures are recorded for their targets.
    pub fn wait_for_most(
        self,
        targets: &Targets,
        least: usize,
        wanted: usize,
    ) -> Vec<(usize, TargetId, io::Result<T>)> {
        let deadline = targets.deadline;
        let done = self.collect_while(|took| plan::late::patience(took, least, wanted, deadline));
        record(targets, &done);
        done
    }

    /// Waits for all operations, until the deadline.
    pub fn collect(self, deadline: Duration) -> Vec<(usize, TargetId, io::Result<T>)> {
        self.collect_while(|_| deadline)
    }

    /// Runs [`Self::gather`] and returns the result of each operation.
    fn collect_while(mut self, patience: impl Fn(&[Duration]) -> Duration) -> Vec<(usize, TargetId, io::Result<T>)> {
        self.gather(|took, _| patience(took));
        self.done
    }

    /// Waits until the successful operations are enough, for all operations, or until the deadline.
    /// Returns the keys of the successful ones. Failures are recorded for their targets; operations
    /// that need not be waited for do not count as failures.
    pub fn until_enough(mut self, targets: &Targets, enough: impl Fn(&[usize]) -> bool) -> Vec<usize> {
        self.overtaken = true;
        let well = |done: &[(usize, TargetId, io::Result<T>)]| -> Vec<usize> {
            done.iter().filter(|(.., result)| result.is_ok()).map(|(key, ..)| *key).collect()
        };
        self.gather(|_, done| if enough(&well(done)) { Duration::ZERO } else { targets.deadline });
        let answered = well(&self.done);
        let is_enough = enough(&answered);
        self.done.retain(|(.., result)| !(is_enough && is_late(result)));
        record(targets, &self.done);
        answered
    }

    /// Waits for all operations, for as long as `patience` allows. It gets the durations of the
    /// successful operations and the results so far. Returns these durations.
    fn gather(
        &mut self,
        patience: impl Fn(&[Duration], &[(usize, TargetId, io::Result<T>)]) -> Duration,
    ) -> Vec<Duration> {
        let mut took = Vec::with_capacity(self.waiting.len());
        while !self.waiting.is_empty() {
            for (key, entry, job) in std::mem::take(&mut self.refused) {
                if let Err(job) = entry.submit(job) {
                    self.refused.push((key, entry, job));
                }
            }
            let left = patience(&took, &self.done).saturating_sub(self.begun.elapsed());
            let pause = if self.refused.is_empty() { left } else { left.min(RETRY) };
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
                        if self.overtaken || self.spares_new && lock(&entry.last_space).is_none() {
                            entry.overtake(&stage)
                        } else {
                            entry.give_up(&stage)
                        }
                        self.done.push((key, id, error()));
                    }
                }
            }
        }
        took
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Memory;

    #[test]
    fn patience_does_not_grow_with_each_that_is_late() {
        let targets = Targets::with_deadline(Duration::from_secs(20));
        let (fast, late) = (TargetId(0), TargetId(1));
        [fast, late].iter().for_each(|&id| targets.add(id, Arc::new(Memory::default())));
        let (release, held) = channel::<()>();
        let held = Arc::new(Mutex::new(held));
        for _ in 0..6 {
            let (mut batch, held) = (Batch::new(), held.clone());
            batch.run(&targets, 0, fast, |_| Ok(()));
            batch.run(&targets, 1, late, move |_| {
                let _ = lock(&held).recv();
                Ok(())
            });
            let done = batch.hedged(&targets);
            assert_eq!(
                done.iter().map(|(key, _, result)| (*key, result.is_ok())).collect::<Vec<_>>(),
                [(0, true), (1, false)]
            );
            assert!(targets.is_slow(late) && !targets.is_slow(fast));
        }
        assert_eq!(targets.pace.patience(), Pace::SOONEST);
        drop(release);
    }
}
