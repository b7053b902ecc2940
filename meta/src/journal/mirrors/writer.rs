//! The journal thread: sends pending transactions to all mirrors in parallel. They are durable when
//! m+1 mirrors have them and everything before. `roster` replaces mirrors that fail.

use super::super::frame::{Frame, HEAD_BYTES, RecordKind};
use super::super::opening::recover::Chosen;
use super::super::options::{MirrorTarget, closed, is_full, unavailable};
use super::super::shared::Shared;
use super::answers::{Answer, Answers};
use super::mirror::{Job, Mirror};
use super::queue::MAX_HELD_BYTES;
use super::recruit::is_gone;
use crate::kv::KvError;
use plan::{TargetId, TxId};
use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use volume::Carried;
use volume::target::{Allocation, Durable, Target, TargetFile};

/// A snapshot is made when there are more segments than this, however short: every opening begins
/// one.
const MAX_SEGMENTS: usize = 64;
/// How often mirrors are tried again while too few take a batch.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);
/// How long callers wait before they learn that too few mirrors answer.
const FAILURE_DELAY: Duration = Duration::from_millis(500);
/// A mirror may be this many bytes behind, or more if more may wait to be written.
const MAX_BEHIND_BYTES: usize = 8 << 20;
/// The mirror that is not needed gets a batch at once when the others take this many times longer
/// for it than they usually do, and that at least.
const STRAGGLER_FACTOR: u32 = 4;
const MIN_STRAGGLER_TIMEOUT: Duration = Duration::from_millis(2);
/// How often the thread looks at the checkpointer's work while it waits for it.
const CHECKPOINT_POLL_INTERVAL: Duration = Duration::from_millis(2);

/// The end of the journal on the mirrors.
pub(in crate::journal) struct Writer {
    pub shared: Arc<Shared>,
    pub mirrors: Vec<Mirror>,
    /// The current segment and its length; None when the next batch begins one.
    pub segment: Option<(TargetFile, u64)>,
    /// The last value of `Files::asked` that was handled.
    pub settled: u64,
    /// The number of the last batch.
    pub number: u64,
    /// The batch in progress.
    pub batch: Option<Batch>,
    /// The last durable transaction.
    pub durable: TxId,
    /// Former mirrors that were whole, each with the last batch and the snapshot that it has.
    pub parked: Vec<(MirrorTarget, u64, TxId)>,
    /// Threads of former mirrors. A target is not used again while it may still do what failed.
    pub ending: Vec<(TargetId, Weak<()>)>,
    pub answers: Answers,
    pub next_key: u64,
    /// The volume has no snapshot yet, and every mirror begins empty.
    pub fresh: bool,
    /// How many mirrors there should be.
    pub wanted: usize,
    /// The mirrors have changed: the next batch begins a segment.
    pub restart: bool,
    /// The first transaction of the last segment that was begun.
    begun: Option<TxId>,
    /// How many times in a row a copy to a target failed because its sources went away.
    pub stranded: BTreeMap<TargetId, u32>,
    /// The key of the mirror that is not needed, because there is one more than that: the one that
    /// was late last.
    spare: Option<u64>,
    /// How long batches take, averaged.
    usual: Duration,
    /// The longest time that a mirror itself took for the batch in progress.
    slave: Duration,
    /// The last failure of a mirror since the last durable batch.
    error: Option<KvError>,
}

/// Records that are written at once.
#[derive(Clone)]
pub(in crate::journal) struct Batch {
    file: TargetFile,
    at: u64,
    head: Arc<Vec<u8>>,
    records: Arc<Vec<u8>>,
    last: TxId,
    /// A file of the segment's name may be of another epoch.
    replaces: bool,
}

impl Batch {
    fn bytes(&self) -> u64 {
        (self.head.len() + self.records.len()) as u64
    }
}

impl Writer {
    /// Begins with the mirrors that recovery chose. The first batch is the barrier: the head of a
    /// segment of the new epoch.
    pub fn begin(shared: Arc<Shared>, chosen: &[Chosen], last: TxId, fresh: bool) -> Self {
        let mut writer = Self {
            shared,
            mirrors: Vec::new(),
            segment: None,
            settled: 0,
            number: 0,
            batch: None,
            durable: last,
            parked: Vec::new(),
            ending: Vec::new(),
            answers: Answers::default(),
            next_key: 0,
            fresh,
            wanted: 0,
            restart: false,
            begun: None,
            stranded: BTreeMap::new(),
            spare: None,
            usual: Duration::ZERO,
            slave: Duration::ZERO,
            error: None,
        };
        for Chosen { place, whole, lacks } in chosen {
            writer.join(place, *whole, lacks.is_some());
        }
        writer.changed();
        writer.wanted = writer.shared.wanted(writer.shared.files().places.len());
        // Segments of an engine that was not closed may have reserved space that they will never
        // need.
        let old = writer.shared.files().segments.clone();
        writer.trim(&old);
        writer.shared.kick();
        writer
    }

    /// Writes until the engine stops.
    pub fn run(mut self) {
        let mut spare = Vec::new();
        while let Some((pending, last)) = self.shared.take_pending(std::mem::take(&mut spare)) {
            match self.write(pending, last) {
                Ok(used) => spare = used,
                Err(error) => return self.shared.fail(&error),
            }
        }
        // Those behind get the rest, if they are not too slow.
        self.mirrors.iter().for_each(Mirror::hurry);
        let begun = Instant::now();
        while self.mirrors.iter().any(Mirror::is_behind) {
            let left = self.shared.limits.deadline.saturating_sub(begun.elapsed());
            let Some(answer) = self.answers.wait(1, left) else { break };
            if self.answer(answer).is_err() {
                break;
            }
        }
        if let Some((TargetFile::Journal { first }, _)) = self.segment {
            self.trim(&[first]);
        }
    }

    /// Frees the space that was reserved for segments and is not needed.
    fn trim(&self, segments: &[TxId]) {
        let places: Vec<MirrorTarget> = self.mirrors.iter().map(|mirror| mirror.place.clone()).collect();
        let segments: Vec<TxId> = segments.to_vec();
        let (count, deadline) = (places.len(), self.shared.limits.deadline);
        super::super::opening::inventory::ask(&places, count, count, deadline, move |target| {
            // A segment that is missing or cannot be changed takes no more space than before.
            segments.iter().for_each(|&first| _ = target.allocate(TargetFile::Journal { first }, Allocation::Trim));
            Ok(())
        });
    }

    /// Makes the records durable. Returns the emptied buffer.
    ///
    /// # Errors
    /// `Fenced` when another opening has taken the volume over; `Unavailable` when the engine stops
    /// meanwhile.
    fn write(&mut self, records: Vec<u8>, last: TxId) -> Result<Vec<u8>, KvError> {
        self.poll()?;
        self.settle()?;
        if self.mirrors.len() < self.wanted {
            self.fill();
        }
        if std::mem::take(&mut self.restart) {
            self.segment = None;
        }
        if records.is_empty() && self.segment.is_some() {
            return Ok(records);
        }
        let batch = self.next(Arc::new(records), last);
        // A mirror without space for the last batch has a gap now.
        let full = |mirror: &Mirror| mirror.full.is_some();
        while let Some(number) = self.mirrors.iter().position(full) {
            let error = self.mirrors[number].full.take().unwrap_or_else(|| io::ErrorKind::StorageFull.into());
            self.lose(number, &error);
        }
        self.number += 1;
        self.parked.retain(|(_, done, _)| done + 1 >= self.number);
        self.batch = Some(batch.clone());
        self.slave = Duration::ZERO;
        let begun = Instant::now();
        let spare = self.spare(&batch);
        for number in 0..self.mirrors.len() {
            if Some(self.mirrors[number].key) == spare {
                self.mirrors[number].hold(self.number, batch.last, batch.file, batch.at, &batch.records);
            } else {
                self.send(number, &batch);
            }
        }
        self.wait()?;
        let (took, slave) = (begun.elapsed(), self.slave);
        self.usual = (self.usual * 7 + took) / 8;
        self.shared.cost.set(Carried { distribution: took.saturating_sub(slave), slave }.within(took));
        self.finish(&batch);
        let Batch { records, .. } = batch;
        self.batch = None;
        // The mirrors behind still have it.
        let mut records = Arc::try_unwrap(records).unwrap_or_default();
        records.clear();
        // A large transaction must not remain forever as an empty buffer.
        records.shrink_to(2 * self.shared.limits.group_bytes);
        Ok(records)
    }

    /// The next batch, at its place in the journal.
    fn next(&self, records: Arc<Vec<u8>>, last: TxId) -> Batch {
        let full = |at: u64| at > HEAD_BYTES as u64 && at + records.len() as u64 > self.shared.limits.segment_bytes;
        let mut head = Vec::new();
        let (file, at) = match self.segment {
            Some((file, at)) if !full(at) => (file, at),
            _ => {
                let first = self.durable.next();
                let whole = self.mirrors.iter().filter(|mirror| mirror.whole && mirror.full.is_none());
                let mirrors: Vec<TargetId> = whole.map(|mirror| mirror.place.0).collect();
                let Shared { volume, epoch, origin, .. } = &*self.shared;
                Frame::new(RecordKind::Segment, first.0, *epoch, self.durable)
                    .encode_head(volume, origin, &mirrors, &mut head);
                (TargetFile::Journal { first }, 0)
            }
        };
        let replaces = !head.is_empty() && self.begun != Some(self.durable.next());
        Batch { file, at, head: Arc::new(head), records, last, replaces }
    }

    /// The mirror that others spare a batch for now. Heads of segments go to all: they are what an
    /// opening counts.
    fn spare(&mut self, batch: &Batch) -> Option<u64> {
        let counts = |mirror: &&Mirror| mirror.whole && mirror.copying.is_none() && mirror.full.is_none();
        let keys = || self.mirrors.iter().filter(counts).map(|mirror| mirror.key);
        if !batch.head.is_empty() || batch.records.len() >= MAX_HELD_BYTES || keys().count() <= self.shared.need() {
            return None;
        }
        let before = self.spare.filter(|&spare| keys().any(|key| key == spare));
        self.spare = before.or_else(|| keys().next_back());
        self.spare
    }

    /// Queues a batch at a mirror.
    pub fn send(&mut self, number: usize, batch: &Batch) {
        let Batch { file, at, head, records, last, replaces } = batch.clone();
        let reserve = self.shared.limits.segment_bytes;
        let job: Job = Box::new(move |target: &dyn Target| {
            if head.is_empty() {
                return target.write(file, at, &[IoSlice::new(&records)], Durable::Now);
            }
            // A file of this name has none of these transactions, or has them from an epoch that
            // ended before. One of this epoch is a head without records.
            if replaces {
                target.remove(file)?;
            }
            let wrote = target.write(file, 0, &[IoSlice::new(&head), IoSlice::new(&records)], Durable::Later)?;
            // If there is no space to reserve, later writes fail on their own.
            let _ = target.allocate(file, Allocation::Reserve(reserve));
            Ok(wrote.saturating_add(target.sync(file)?))
        });
        self.mirrors[number].send(self.number, last, batch.bytes() as usize, job);
    }

    /// Waits until m+1 mirrors have the batch in progress.
    fn wait(&mut self) -> Result<(), KvError> {
        let (begun, mut resumed) = (Instant::now(), Instant::now());
        let straggles = MIN_STRAGGLER_TIMEOUT.max(self.usual * STRAGGLER_FACTOR);
        let mut hurried = false;
        loop {
            let need = self.shared.need();
            let has = |mirror: &&Mirror| mirror.whole && mirror.done >= self.number;
            let missing = need.saturating_sub(self.mirrors.iter().filter(has).count());
            if missing == 0 {
                self.error = None;
                // With one late that should not be, the spare one was needed.
                let late = |mirror: &&Mirror| mirror.whole && mirror.done < self.number;
                if let Some(late) = self.mirrors.iter().filter(late).find(|late| Some(late.key) != self.spare) {
                    self.spare = Some(late.key);
                }
                return Ok(());
            }
            let rest = straggles.saturating_sub(begun.elapsed());
            if !hurried && rest == Duration::ZERO {
                self.mirrors.iter().for_each(Mirror::hurry);
                hurried = true;
            }
            self.settle()?;
            let unusual = |mirror: &Mirror| mirror.full.is_some() || mirror.copying.is_some();
            if self.mirrors.len() < self.wanted || self.mirrors.iter().any(unusual) {
                self.fill();
            }
            let alive = self.mirrors.iter().filter(|mirror| mirror.full.is_none()).count();
            // A mirror that has just failed may be replaced before a caller learns of it.
            let stuck = alive + self.coming() < need || begun.elapsed() >= self.shared.limits.deadline;
            if stuck {
                let why = self.why();
                if why != KvError::NoSpace {
                    // Perhaps the network failed. Until a target answers, it is best to try all of
                    // them.
                    self.shared.retry();
                }
                // Targets that failed one after the other may all work again.
                if why == KvError::NoSpace || begun.elapsed() >= FAILURE_DELAY.min(self.shared.limits.deadline) {
                    self.shared.set_stuck(&why);
                }
            }
            // A mirror that waits for a snapshot is whole once the checkpointer has written it. A
            // target that is still busy becomes a mirror after that.
            let waits = self.mirrors.iter().any(|mirror| !mirror.whole && mirror.copying.is_none())
                || self.mirrors.len() < self.wanted && self.coming() > 0;
            let interval = if waits { CHECKPOINT_POLL_INTERVAL } else { RETRY_INTERVAL };
            match self.answers.wait(missing, if hurried { interval } else { interval.min(rest) }) {
                Some(answer) => self.answer(answer)?,
                None if resumed.elapsed() >= RETRY_INTERVAL => {
                    self.resume();
                    resumed = Instant::now();
                }
                None => {}
            }
            self.poll()?;
            if self.shared.is_stopping() {
                return Err(self.error.take().unwrap_or_else(closed));
            }
        }
    }

    /// Why too few mirrors take the batch.
    fn why(&self) -> KvError {
        if self.mirrors.iter().any(|mirror| mirror.full.is_some()) {
            return KvError::NoSpace;
        }
        let known = || KvError::Unavailable(self.shared.files().last_error.clone().unwrap_or_default());
        self.error.clone().unwrap_or_else(known)
    }

    /// Handles what mirrors have answered, and drops those that are late.
    fn poll(&mut self) -> Result<(), KvError> {
        while let Some(answer) = self.answers.next() {
            self.answer(answer)?;
        }
        let (deadline, bytes) = (self.shared.limits.deadline, self.shared.limits.pending_bytes.max(MAX_BEHIND_BYTES));
        while let Some(number) = self.mirrors.iter().position(|mirror| mirror.is_late(deadline, bytes)) {
            self.lose(number, &io::ErrorKind::TimedOut.into());
        }
        self.note_least();
        Ok(())
    }

    fn answer(&mut self, Answer { key, jobs, result }: Answer) -> Result<(), KvError> {
        let Some(number) = self.mirrors.iter().position(|mirror| mirror.key == key) else { return Ok(()) };
        let mirror = &mut self.mirrors[number];
        match result {
            Ok(slave) => {
                let copied = (0..jobs).fold(false, |copied, _| mirror.answered() | copied);
                if mirror.done == self.number {
                    self.slave = self.slave.max(slave);
                }
                if copied {
                    self.joined(number);
                }
            }
            Err(error) => {
                if is_gone(&error) {
                    self.strand(number, &error);
                    return Ok(());
                }
                let failed = unavailable(mirror.place.0, &error);
                if matches!(failed, KvError::Fenced(_)) {
                    return Err(failed);
                }
                // A full disk is not a broken one: it works again when there is space. One that has
                // a gap is of no use.
                let current = mirror.whole && mirror.done + 1 >= self.number && self.batch.is_some();
                if is_full(&error) && current {
                    mirror.stalled(error);
                    self.mirrors.iter().for_each(Mirror::hurry);
                } else {
                    self.lose(number, &error);
                }
                if self.error != Some(KvError::NoSpace) {
                    self.error = Some(failed);
                }
            }
        }
        Ok(())
    }

    /// Sends the batch again to mirrors that had no space for it.
    fn resume(&mut self) {
        let Some(batch) = self.batch.clone() else { return };
        for number in 0..self.mirrors.len() {
            if self.mirrors[number].full.is_some() {
                self.mirrors[number].restart();
                self.send(number, &batch);
            }
        }
    }

    /// Notes that a batch is durable.
    fn finish(&mut self, batch: &Batch) {
        self.durable = batch.last;
        self.segment = Some((batch.file, batch.at + batch.bytes()));
        let TargetFile::Journal { first } = batch.file else { unreachable!() };
        self.begun = Some(first);
        {
            let mut files = self.shared.files();
            files.written += batch.bytes();
            if files.segments.last() != Some(&first) {
                files.segments.push(first);
            }
            let crowded = files.due < u64::MAX && files.segments.len() > MAX_SEGMENTS;
            if files.written >= files.due || crowded {
                files.due = u64::MAX;
                drop(files);
                self.shared.task(|tasks| tasks.snapshot = true);
            }
        }
        self.note_least();
        self.shared.set_durable(batch.last);
        if self.restart {
            self.shared.kick();
        }
    }
}
