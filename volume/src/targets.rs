//! The targets of a volume, each with threads of its own, so that a slow one keeps nobody from the others and one that hangs is given up after a while.

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

/// An operation that takes longer counts as failed. One that was begun may still happen.
const DEADLINE: Duration = Duration::from_secs(15);
/// Threads of a target.
const THREADS: usize = 2;
/// Operations that wait for a thread of a target. Each may hold a stripe in memory.
const QUEUE: usize = 32;
/// Threads that serve all targets, for what is too little to wake a thread of each.
const COURIERS: usize = 2;
/// How often a full queue is tried again.
const RETRY: Duration = Duration::from_micros(500);
/// How long it is believed what room there was, or that there was no answer.
const SPACE_LASTS: Duration = Duration::from_millis(50);
const SILENCE_LASTS: Duration = Duration::from_secs(5);
/// How long a target that had no room for something is believed to have none for more, whatever it says.
const FULL_LASTS: Duration = Duration::from_secs(30);
/// A target that goes on failing is not complained of more often.
const COMPLAINT: Duration = Duration::from_secs(30);

type Job = Box<dyn FnOnce(&dyn Target) + Send>;
type Errand = Box<dyn FnOnce() + Send>;
type Warn = Box<dyn Fn(&str) + Send + Sync>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How a target is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// As it should be.
    Healthy,
    /// It is there, and something failed on it that is not forgiven.
    Failing(String),
    /// It is not there, or does not answer.
    Gone(String),
}

/// What is known of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetHealth {
    /// The target.
    pub id: TargetId,
    /// How it is.
    pub health: Health,
    /// Its room, if it can be told.
    pub space: Option<Space>,
    /// Operations that wait for it, or that it does.
    pub queued: usize,
    /// Operations that failed since it was added.
    pub errors: u64,
    /// Bytes of records that were read from it.
    pub read_bytes: u64,
    /// Bytes of records that were written to it.
    pub written_bytes: u64,
}

/// The room on a target, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// The target.
    pub id: TargetId,
    /// What it said last; None when it never said anything.
    pub space: Option<Space>,
    /// Whether it said so just now.
    pub answer: Answer,
}

/// Whether a target says what room it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It does.
    Given,
    /// Not yet, for so long: that says nothing of its room.
    Awaited(Duration),
    /// It is not there.
    None,
}

/// A target and its threads, which end when it is dropped and their queue is done.
#[derive(Debug)]
struct Entry {
    target: Arc<dyn Target>,
    jobs: SyncSender<Job>,
    /// The other end of the queue, until the threads begin.
    idle: Mutex<Option<Receiver<Job>>>,
    error: Mutex<Option<String>>,
    complained: Mutex<Option<Instant>>,
    space: Mutex<Option<(Instant, Option<Space>)>>,
    /// What it ever said last of its room.
    last_space: Mutex<Option<Space>>,
    /// Since when it does not answer that.
    silent: Mutex<Option<Instant>>,
    /// It did not say what room it has when it was asked last.
    absent: AtomicBool,
    /// When it last had no room for something.
    full: Mutex<Option<Instant>>,
    /// Operations that wait for a thread or have one.
    queued: Arc<AtomicUsize>,
    errors: AtomicU64,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    /// Operations that were given up and have not ended.
    late: AtomicUsize,
    /// Reads that somebody did without and that have not ended.
    slow: AtomicUsize,
}

/// How far an operation is.
#[derive(Debug)]
enum Stage {
    Queued,
    Begun,
    Ended,
    /// Nobody waits for it any more.
    GivenUp,
    /// Nobody waits for it any more, which says nothing but that there was a faster way.
    Overtaken,
}

/// An operation that somebody waits for.
struct Waiting {
    id: TargetId,
    entry: Arc<Entry>,
    stage: Arc<Mutex<Stage>>,
}

/// The targets of a volume by their numbers.
pub struct Targets {
    entries: RwLock<BTreeMap<TargetId, Arc<Entry>>>,
    deadline: Duration,
    warn: RwLock<Option<Warn>>,
    couriers: OnceLock<SyncSender<Errand>>,
    pub(crate) headers: Headers,
    /// Where the time of writes to them goes.
    steps: Steps,
    reads: ReadCounts,
    /// How long reads take.
    pub(crate) pace: Pace,
    /// How long Masters take for a stripe.
    pub(crate) masters: Pace,
}

/// How long something usually takes, reads above all, and so when one is late.
#[derive(Debug, Default)]
pub(crate) struct Pace(AtomicU64);

impl Pace {
    /// A read is late after so many times the usual.
    const LATE: u64 = 10;
    /// A read is not late before, so that a moment's load is not taken for a hanging disk.
    const SOONEST: Duration = Duration::from_millis(100);
    const LATEST: Duration = Duration::from_secs(3);

    /// A read took so long.
    pub fn note(&self, took: Duration) {
        let took = took.as_micros() as u64;
        let usual = self.0.load(Ordering::Relaxed);
        self.0.store(usual - usual / 8 + took / 8, Ordering::Relaxed);
    }

    /// When a read is late.
    pub fn patience(&self) -> Duration {
        self.patience_within(Self::SOONEST..=Self::LATEST)
    }

    /// The same within other limits.
    pub fn patience_within(&self, limits: RangeInclusive<Duration>) -> Duration {
        let usual = self.0.load(Ordering::Relaxed);
        Duration::from_micros(usual.saturating_mul(Self::LATE)).clamp(*limits.start(), *limits.end())
    }
}

/// Operations on several targets at the same time. Its deadline begins with the first.
pub(crate) struct Batch<T> {
    send: Sender<(usize, io::Result<T>)>,
    results: Receiver<(usize, io::Result<T>)>,
    /// What waits for room in a queue.
    refused: Vec<(usize, Arc<Entry>, Job)>,
    waiting: BTreeMap<usize, Waiting>,
    done: Vec<(usize, TargetId, io::Result<T>)>,
    begun: Instant,
    /// What is late is done without.
    overtaken: bool,
    /// The same, on targets that never said what room they have.
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

    /// Does an operation, unless it was given up before.
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

    /// Does without a read.
    fn overtake(&self, stage: &Mutex<Stage>) {
        let mut stage = lock(stage);
        if let Stage::Begun = *stage {
            self.slow.fetch_add(1, Ordering::Relaxed);
        }
        *stage = Stage::Overtaken;
    }

    /// Waits no longer for an operation. It does not happen if it has not begun.
    fn give_up(&self, stage: &Mutex<Stage>) {
        let mut stage = lock(stage);
        if let Stage::Begun = *stage {
            self.late.fetch_add(1, Ordering::Relaxed);
        }
        *stage = Stage::GivenUp;
    }

    /// What was said of its room a moment ago, if that still counts.
    fn known_space(&self) -> Option<io::Result<Space>> {
        // All its threads wait for it: one more would, too.
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

    /// It was asked at this time and did not answer, unless it does just now.
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

    /// Puts an operation in the queue; gives it back when that is full.
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
    /// None yet. An operation that takes 15 seconds counts as failed.
    pub fn new() -> Self {
        Self::default()
    }

    /// None yet. An operation that takes longer than `deadline` counts as failed.
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

    /// Has `warn` called, with one line, when a target begins to fail, and from time to time while it goes on.
    pub fn on_warning(&self, warn: Box<dyn Fn(&str) + Send + Sync>) {
        *self.warn.write().unwrap_or_else(PoisonError::into_inner) = Some(warn);
    }

    /// Where the time of writes to them goes: counted by all who write.
    pub fn steps(&self) -> &Steps {
        &self.steps
    }

    /// Reads from them that were not as simple as they should be.
    pub fn reads(&self) -> &ReadCounts {
        &self.reads
    }

    fn entries(&self) -> RwLockReadGuard<'_, BTreeMap<TargetId, Arc<Entry>>> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn entry(&self, id: TargetId) -> Option<Arc<Entry>> {
        self.entries().get(&id).cloned()
    }

    /// Adds a target, or puts another one in its place. Its threads begin with its first operation.
    pub fn add(&self, id: TargetId, target: Arc<dyn Target>) {
        let entry = Arc::new(Entry::new(target));
        self.entries.write().unwrap_or_else(PoisonError::into_inner).insert(id, entry);
    }

    /// Forgets a target.
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

    /// The last failure of a target that still counts.
    pub fn error(&self, id: TargetId) -> Option<String> {
        let entry = self.entry(id)?;
        lock(&entry.error).clone()
    }

    /// Whether a target is there: it may have chunks.
    pub fn is_usable(&self, id: TargetId) -> bool {
        self.space(id).is_ok()
    }

    /// Whether a target is there and nothing failed on it: it may get chunks.
    pub fn is_healthy(&self, id: TargetId) -> bool {
        self.error(id).is_none() && !self.hangs(id) && self.is_usable(id)
    }

    /// Whether an operation that was given up goes on. It may yet change what came after it, so nothing new is to be made there.
    pub fn hangs(&self, id: TargetId) -> bool {
        self.entry(id).is_some_and(|entry| entry.late.load(Ordering::Relaxed) > 0)
    }

    /// Whether a target is best left alone by whoever can read elsewhere: an operation on it goes on for too long.
    pub(crate) fn is_slow(&self, id: TargetId) -> bool {
        self.entry(id)
            .is_some_and(|entry| entry.slow.load(Ordering::Relaxed) > 0 || entry.late.load(Ordering::Relaxed) > 0)
    }

    /// Does something on several targets at the same time, each time with a key that tells it from the others. One that takes longer than
    /// the deadline has failed. Failures are recorded with their targets.
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

    /// The room on a target, a moment ago at most.
    ///
    /// # Errors
    /// When it is not there or does not answer.
    pub fn space(&self, id: TargetId) -> io::Result<Space> {
        self.spaces_of(&[id], false).pop().map_or(Err(io::ErrorKind::NotFound.into()), |(_, found)| found)
    }

    /// The room on all targets that are there and answer; what was said a moment ago counts only without `fresh`. They are asked at the same time, so that
    /// several that hang take no longer than one.
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
                        // Also when nobody waits for it any more: who is late has answered then.
                        if let Some(entry) = weak.upgrade() {
                            entry.note_space(&found);
                        }
                        found
                    });
                }
            }
        }
        let (most, asked) = (batch.waiting.len().div_ceil(2), batch.begun);
        // One that never answered may have more to do than it can, as all have on a busy machine: that it is late does not mean that it hangs.
        batch.spares_new = true;
        for (_, id, found) in batch.collect_while(|took| plan::late::patience(took, most, most, self.deadline)) {
            if let Some(entry) = self.entry(id).filter(|_| is_late(&found)) {
                entry.note_silence(asked);
            }
            all.insert(id, found);
        }
        all.into_iter().collect()
    }

    /// The room on all targets as far as it is known, those that do not answer included; what was said a moment ago counts only without `fresh`.
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

    /// Whether a target had no room for something lately.
    pub fn was_full(&self, id: TargetId) -> bool {
        self.entry(id).is_some_and(|entry| lock(&entry.full).is_some_and(|when| when.elapsed() < FULL_LASTS))
    }

    /// What is known of all targets without asking them: for who must not wait. The room is what was said last.
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

    /// How all targets are.
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

    /// Records that an operation on a target failed. A target without room does not fail: others may still go to it.
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

    /// Forgets failures of a target that is there again. Called by whoever has reason to try it once more.
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

/// How far a courier is.
#[derive(Debug)]
struct Progress<T> {
    begun: bool,
    done: Vec<io::Result<T>>,
    finished: bool,
    /// Nobody waits any more: what is left is done by others.
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

    /// Has a short operation done on one target after the other, all by one thread: where each takes microseconds, waking a thread for each of them would
    /// cost more than they do. What a target that hangs keeps from being done in time is done by the threads of the others.
    /// Failures are recorded with their targets.
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

    /// What a courier did of these steps in time; the last of it may be the one that it still tries.
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
            // What it holds must be free when the caller goes on.
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
    /// No operations yet.
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

    /// Has an operation done by a thread of a target. `key` tells it from the others.
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
            // Whoever waits holds the entry until it gives up or has the result.
            let done = match its.upgrade() {
                Some(entry) => entry.perform(&his, || operation(target)),
                None => None,
            };
            if let Some(result) = done {
                // Nobody may listen any more.
                let _ = send.send((key, result));
            }
        });
        if let Err(job) = entry.submit(job) {
            self.refused.push((key, entry.clone(), job));
        }
        self.waiting.insert(key, Waiting { id, entry, stage });
    }

    /// Waits for all of them. Failures are recorded with their targets.
    pub fn wait(self, targets: &Targets) -> Vec<(usize, TargetId, io::Result<T>)> {
        let done = self.collect(targets.deadline);
        record(targets, &done);
        done
    }

    /// Waits for reads that one can do without, for as long as they usually take at most. Those that are late have `TimedOut`, which says nothing of their
    /// targets; other failures are recorded.
    pub fn hedged(mut self, targets: &Targets) -> Vec<(usize, TargetId, io::Result<T>)> {
        self.overtaken = true;
        let patience = targets.pace.patience();
        // What was late is not noted: with each, the next would be waited for longer.
        if let Some(&slowest) = self.gather(|_, _| patience).last() {
            targets.pace.note(slowest);
        }
        let (late, done): (Vec<_>, Vec<_>) = self.done.into_iter().partition(|(.., result)| is_late(result));
        record(targets, &done);
        done.into_iter().chain(late).collect()
    }

    /// Waits for all of them, but for those that are late no longer than it takes to know that: `least` that were done well suffice, `wanted` are better.
    /// Who is late has failed, until it answers. Failures are recorded with their targets.
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

    /// Waits for all of them, until the deadline.
    pub fn collect(self, deadline: Duration) -> Vec<(usize, TargetId, io::Result<T>)> {
        self.collect_while(|_| deadline)
    }

    /// [`Self::gather`], and what came of each.
    fn collect_while(mut self, patience: impl Fn(&[Duration]) -> Duration) -> Vec<(usize, TargetId, io::Result<T>)> {
        self.gather(|took, _| patience(took));
        self.done
    }

    /// Waits until it is enough what was done well, or for all of them, until the deadline. Failures are recorded with their targets; what is not waited for
    /// any more is none.
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

    /// Waits for all of them, for as long as `patience` says of the times that those took that were done well so far, and of all that are done.
    /// Returns these times.
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
