//! Writes stripes: one pass codes and checksums them, and all targets get their blocks at the same
//! time.

use super::buffers::{BufferPool, StripeBuffer};
use super::encoded::{Encoded, chunk_headers};
use super::failures::{Failures, is_full};
use super::layout::{SetLayout, geometry};
use super::orders::{NoMaster, Order};
use super::pages::Pages;
use super::sealing::Sealing;
use crate::format::{CHUNK_HEADER_BYTES, GRANULE_BYTES, RECORD_ALIGNMENT, StripeHeader, Timestamp};
use crate::lock;
use crate::steps::{Cost, WriteStep};
use crate::target::{Durable, Target, TargetFile};
use crate::targets::{Batch, Targets};
use crate::{Error, Result};
use plan::coding::Coder;
use plan::placement::blocks_needed;
use plan::{Position, RecordOffset, StripeSeq, TargetId};
use std::collections::BTreeSet;
use std::io::{self, IoSlice};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// If all targets are local, one thread writes blocks up to this size one after the other. Longer
/// blocks go to all targets at the same time.
const SMALL_BLOCK: usize = 16 << 10;
/// They do so, too, after a stripe that took longer than this: a target is slow, and one thread
/// would wait for it while the others get nothing.
const SLOW_STRIPE: Duration = Duration::from_millis(50);
/// A Master that was silent for longer than this does not get its own block, either.
const HANGING_AFTER: Duration = Duration::from_secs(1);
/// How long to wait for a Master: the lower limit while Masters are quick, the upper one while all
/// are slow. Both exceed the time that a Master waits for a late store.
const MASTER_IS_LATE: RangeInclusive<Duration> = Duration::from_secs(3)..=Duration::from_secs(10);

/// The result of an append.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Where its record begins in the chunks.
    pub record: RecordOffset,
    /// The length of its blocks.
    pub block: u32,
    /// Positions that missed this stripe and have all earlier ones.
    pub missing: Vec<Position>,
    /// Which process coded the stripe.
    pub by: Coder,
    /// The cost in that process.
    pub cost: Cost,
}

/// The result of a sync.
#[derive(Debug)]
pub struct Synced {
    /// As [`SetWriter::sync`] returns them.
    pub missing: Result<Vec<Position>>,
    /// What it cost; None if there was nothing to do.
    pub cost: Option<Cost>,
}

/// Whether the stripe at a record is the first one, which carries the headers of the chunks.
fn is_first(record: RecordOffset) -> bool {
    record.0 as usize == CHUNK_HEADER_BYTES
}

/// The results of writing the blocks of a stripe, by position, with the time that each successful
/// write took.
type Outcomes = Vec<(Position, TargetId, io::Result<Duration>)>;

/// A chunk set that is open for writing. Several threads may append at the same time.
#[derive(Debug)]
pub struct SetWriter {
    targets: Arc<Targets>,
    pool: Arc<BufferPool>,
    layout: SetLayout,
    chunk_bytes: u32,
    /// When the set was created, as the headers of its chunks say.
    created: Timestamp,
    need: usize,
    remote: bool,
    /// The last stripe took long.
    is_slow: AtomicBool,
    next: Mutex<u32>,
    failures: Mutex<Failures>,
    /// The number of stripes that were written, and how many of them are durable.
    appended: AtomicU64,
    synced: Mutex<u64>,
}

/// Positions that failed in this write, the whole duration, and that of the slowest target itself.
struct Sent {
    missing: Vec<Position>,
    took: Duration,
    slave: Duration,
}

impl SetWriter {
    /// Creates a writer for a new chunk set with chunks of at most `chunk_bytes`. A stripe counts
    /// as written when k + `spare` targets have it: when `spare` of those can be lost.
    pub fn create(
        targets: Arc<Targets>,
        pool: Arc<BufferPool>,
        layout: SetLayout,
        chunk_bytes: u32,
        spare: usize,
    ) -> Self {
        let missing = |position: &Position| layout.places[position.index()].is_none();
        let failed: BTreeSet<Position> = Position::all(layout.blocks()).filter(missing).collect();
        let is_remote = |id: &TargetId| targets.get(*id).is_some_and(|target| target.is_remote());
        Self {
            remote: layout.places.iter().flatten().any(is_remote),
            is_slow: AtomicBool::new(false),
            need: blocks_needed(&layout.places, layout.code.shape().k, layout.code.tolerates(), spare),
            targets,
            pool,
            layout,
            chunk_bytes,
            created: Timestamp::now(),
            next: Mutex::new(CHUNK_HEADER_BYTES as u32),
            failures: Mutex::new(Failures::new(failed)),
            appended: AtomicU64::new(0),
            synced: Mutex::new(0),
        }
    }

    /// Creates a writer that continues an existing chunk set at `next_record`, after the last
    /// stripe. Anything stored there is overwritten.
    pub fn resume(
        targets: Arc<Targets>,
        pool: Arc<BufferPool>,
        layout: SetLayout,
        chunk_bytes: u32,
        spare: usize,
        next_record: RecordOffset,
    ) -> Self {
        let mut writer = Self::create(targets, pool, layout, chunk_bytes, spare);
        writer.next =
            Mutex::new(next_record.0.max(CHUNK_HEADER_BYTES as u32).next_multiple_of(RECORD_ALIGNMENT as u32));
        writer
    }

    /// Sets the time at which the set was created.
    pub(super) fn created(self, created: Timestamp) -> Self {
        Self { created, ..self }
    }

    /// The layout of the set.
    pub fn layout(&self) -> &SetLayout {
        &self.layout
    }

    /// The offset of the next record.
    pub fn next_record(&self) -> RecordOffset {
        RecordOffset(*lock(&self.next))
    }

    /// Whether a full stripe may no longer fit.
    pub fn full(&self) -> bool {
        let longest = geometry(&*self.layout.code).block_bytes(self.pool.capacity());
        let begin = (self.next_record().0 as usize).next_multiple_of(StripeHeader::alignment(longest));
        begin + StripeHeader::record_bytes(longest) > self.chunk_bytes as usize
    }

    /// Begins to describe the chunks as they are now. None if no stripe was written.
    pub fn seal(&self) -> Option<Sealing> {
        let failed = self.failures().positions().clone();
        let chunks = Position::placed(&self.layout.places).filter(|(position, _)| !failed.contains(position));
        let is_used = self.appended.load(Ordering::Acquire) > 0;
        is_used.then(|| Sealing::of_chunks(&self.targets, &self.layout, chunks))
    }

    /// Whether a written stripe is not yet durable.
    pub fn has_unsynced(&self) -> bool {
        *lock(&self.synced) < self.appended.load(Ordering::Acquire)
    }

    /// With this many blocks of a stripe, any others may be lost.
    fn enough(&self) -> usize {
        self.layout.blocks() - self.layout.code.tolerates()
    }

    /// Positions that get no more stripes: writing one there failed.
    pub fn missing(&self) -> Vec<Position> {
        self.failures().positions().iter().copied().collect()
    }

    /// Positions that lack at least one stripe, or may have lost one.
    pub fn lacking(&self) -> Vec<Position> {
        self.failures().lacking().into_iter().collect()
    }

    /// Whether stripes that were not durable are lost: too few positions have them, and no other
    /// sync can succeed.
    pub fn has_lost(&self) -> bool {
        self.has_unsynced() && self.layout.blocks() - self.failures().lacking().len() < self.layout.code.shape().k
    }

    fn failures(&self) -> MutexGuard<'_, Failures> {
        lock(&self.failures)
    }

    /// Writes a stripe: the buffer's data, followed by a manifest. `sequence` identifies the stripe
    /// in the volume.
    ///
    /// # Errors
    /// If too few targets took the stripe, or the set is full. The error comes with the buffer,
    /// which still holds the data.
    #[allow(clippy::result_large_err, reason = "the buffer goes back to be written elsewhere")]
    pub fn append(
        &self,
        buffer: StripeBuffer,
        sequence: StripeSeq,
        manifest: &[u8],
    ) -> std::result::Result<Appended, (Error, StripeBuffer)> {
        self.append_by(Coder::Here, buffer, sequence, manifest)
    }

    /// As `append`, but `by` chooses the coding process. If the Master does not do it, this process
    /// does.
    ///
    /// # Errors
    /// As `append`.
    #[allow(clippy::result_large_err, reason = "the buffer goes back to be written elsewhere")]
    pub fn append_by(
        &self,
        by: Coder,
        mut buffer: StripeBuffer,
        sequence: StripeSeq,
        manifest: &[u8],
    ) -> std::result::Result<Appended, (Error, StripeBuffer)> {
        let mut begun = Instant::now();
        let code = &*self.layout.code;
        let total = buffer.length + manifest.len();
        let block = geometry(code).block_bytes(total);
        let record = {
            let mut next = lock(&self.next);
            let begin = (*next as usize).next_multiple_of(StripeHeader::alignment(block));
            let end = begin + StripeHeader::record_bytes(block);
            if end > self.chunk_bytes as usize || block * code.shape().k > buffer.data.len() {
                let what = format!("a stripe of {total} bytes does not fit chunk set {}", self.layout.set);
                return Err((Error::Invalid(what), buffer));
            }
            *next = end as u32;
            RecordOffset(begin as u32)
        };
        buffer.data[buffer.length..total].copy_from_slice(manifest);
        let known = self.failures().positions().clone();
        if by == Coder::Master
            && let Some((outcomes, cost)) = self.have_coded(&buffer.data[..total], record, sequence, manifest.len())
        {
            return match self.settle(&known, outcomes, record, StripeHeader::encoded_bytes(block) + block, false) {
                Ok((missing, _)) => {
                    self.appended.fetch_add(1, Ordering::Release);
                    self.pool.give(buffer);
                    Ok(Appended { record, block: block as u32, missing, by, cost })
                }
                Err(error) => Err((error, buffer)),
            };
        }
        if by == Coder::Master {
            // The wait for a Master that did nothing is not coding time.
            self.targets.steps().extend(WriteStep::Transfer, begun.elapsed());
            begun = Instant::now();
        }
        let _span = WriteStep::Master.span().entered();
        buffer.data[total..block * code.shape().k].fill(0);
        let encoded = Arc::new(self.encode(buffer, record, block, sequence, manifest.len()));
        let parity = encoded.parity;
        let result = WriteStep::Distribution.span().in_scope(|| self.write(&encoded, record, &known));
        // A target that does not answer may still hold the buffer; then copy the data.
        let mut buffer = match Arc::try_unwrap(encoded) {
            Ok(encoded) => encoded.buffer,
            Err(encoded) if result.is_err() => StripeBuffer {
                data: encoded.buffer.data.clone(),
                coded: encoded.buffer.coded.clone(),
                length: encoded.buffer.length,
                capacity: encoded.buffer.capacity,
            },
            Err(_) => self.pool.take(),
        };
        match result {
            Ok(Sent { missing, took, slave }) => {
                self.appended.fetch_add(1, Ordering::Release);
                self.pool.give(buffer);
                let cost = Cost::of(begun.elapsed(), parity, took, slave);
                self.targets.steps().add_stripe(&cost);
                Ok(Appended { record, block: block as u32, missing, by: Coder::Here, cost })
            }
            Err(error) => {
                buffer.length = total - manifest.len();
                Err((error, buffer))
            }
        }
    }

    fn encode(
        &self,
        mut buffer: StripeBuffer,
        record: RecordOffset,
        block: usize,
        sequence: StripeSeq,
        manifest: usize,
    ) -> Encoded {
        let code = &*self.layout.code;
        let (k, coded) = (code.shape().k, code.coded());
        let data: Vec<&[u8]> = buffer.data[..k * block].chunks_exact(block).collect();
        let mut made: Vec<&mut [u8]> = buffer.coded[..coded.len() * block].chunks_exact_mut(block).collect();
        let begun = Instant::now();
        let encode = || ec::partition::encode_checksummed(code, &data, &mut made, GRANULE_BYTES);
        let sums = WriteStep::Parity.span().in_scope(encode);
        let parity = begun.elapsed();
        // The first stripe carries the headers of the chunks.
        let first = is_first(record);
        let chunks = if first { chunk_headers(&self.layout, self.created) } else { Vec::new() };
        let before = if first { CHUNK_HEADER_BYTES } else { 0 };
        let header_bytes = before + StripeHeader::encoded_bytes(block);
        let mut headers = Pages::new(header_bytes * sums.len());
        for ((position, checksums), into) in sums.into_iter().enumerate().zip(headers.chunks_exact_mut(header_bytes)) {
            let header = StripeHeader {
                volume: self.layout.volume,
                set: self.layout.set,
                position: Position::at(position),
                record,
                sequence,
                data_bytes: buffer.length as u32,
                manifest_bytes: manifest as u32,
                block_bytes: block as u32,
                checksums,
            };
            if let Some(chunk) = chunks.get(position) {
                into[..before].copy_from_slice(chunk);
            }
            into[before..].copy_from_slice(&header.encode());
        }
        Encoded { headers, header_bytes, first, buffer, block, parity }
    }

    /// Lets a Master, one of the stores of the set, code and write a stripe. Returns None if there
    /// is no Master, or if it fails. Then this process codes the stripe, with the same bytes at the
    /// same place.
    fn have_coded(
        &self,
        data: &[u8],
        record: RecordOffset,
        sequence: StripeSeq,
        manifest: usize,
    ) -> Option<(Outcomes, Cost)> {
        let mut layout = self.layout.clone();
        self.failures().positions().iter().for_each(|&position| layout.places[position.index()] = None);
        let sound = |id: &TargetId| self.targets.error(*id).is_none();
        let willing: Vec<Option<TargetId>> = layout.places.iter().map(|id| id.filter(sound)).collect();
        let k = layout.code.shape().k;
        let position = self.targets.master(layout.set, &willing, k, data.len())?;
        let target = self.targets.get(willing[position.index()]?)?;
        let master = target.owner()?.master;
        let address = |id: &Option<TargetId>| Some(self.targets.get((*id)?)?.owner()?.address.to_string());
        let addresses: Vec<Option<String>> = layout.places.iter().map(address).collect();
        // Only this process can reach some target.
        if layout.places.iter().zip(&addresses).any(|(id, address)| id.is_some() && address.is_none()) {
            return None;
        }
        let order = Order {
            layout: &layout,
            created: self.created,
            record,
            sequence,
            data,
            manifest_bytes: manifest,
            checksum: gf::checksum::crc64(data),
            spare: self.need - layout.code.shape().k,
        };
        let begun = Instant::now();
        let timeout = self.targets.master_timeout.current_within(MASTER_IS_LATE);
        let answer = WriteStep::Transfer.span().in_scope(|| master.distribute(&order, &addresses, timeout));
        let took = begun.elapsed();
        self.targets.master_timeout.record(took);
        // One that refuses, or is not there, says so at once, and is not fast.
        if answer.is_ok() || took > HANGING_AFTER {
            self.targets.master_took(willing[position.index()]?, data.len(), took);
        }
        let mut done = match answer {
            Ok(done) => done,
            Err(NoMaster::Silent(why)) if took > HANGING_AFTER => {
                self.targets.failed(willing[position.index()]?, &why);
                let mut failures = self.failures();
                failures.not_written([(position, &why)]);
                failures.no_header(is_first(record).then_some(position));
                return None;
            }
            Err(_) => return None,
        };
        let there = Position::placed(&layout.places);
        let mut outcomes: Outcomes = there
            .map(|(position, id)| {
                let failed = done.failed.iter().position(|(failed, _)| *failed == position);
                (position, id, failed.map_or(Ok(Duration::ZERO), |at| Err(done.failed.swap_remove(at).1)))
            })
            .collect();
        // A Master that reaches too few targets says nothing about them.
        if outcomes.iter().filter(|(.., result)| result.is_ok()).count() < self.need {
            return None;
        }
        for (position, id, result) in &mut outcomes {
            if result.is_ok() {
                *result = self.wrote(*position, *id, &done.boots).map(|()| Duration::ZERO);
            }
            if let Err(error) = result {
                self.targets.failed(*id, error);
            }
        }
        self.targets.steps().add_stripe(&done.cost);
        self.targets.steps().add(WriteStep::Transfer, took.saturating_sub(done.cost.total()));
        Some((outcomes, done.cost))
    }

    /// A Master wrote a block. Before the stripe counts, its target knows the boot that a sync must
    /// find.
    fn wrote(&self, position: Position, id: TargetId, boots: &[(Position, u64)]) -> io::Result<()> {
        let target = self.targets.get(id);
        let owner = target.as_ref().and_then(|target| target.owner());
        match (owner, boots.iter().find(|(of, _)| *of == position)) {
            (Some(owner), Some(&(_, boot))) => owner.master.wrote(self.layout.file(position), boot),
            _ => {
                self.failures().untold(position);
                Ok(())
            }
        }
    }

    /// Writes to all positions. Positions that fail and are not in `known` are returned as missing.
    fn write(&self, encoded: &Arc<Encoded>, record: RecordOffset, known: &BTreeSet<Position>) -> Result<Sent> {
        let begun = Instant::now();
        let first_coded = self.layout.code.coded().start;
        let missing = self.failures().positions().clone();
        let layout = &self.layout;
        let there = Position::placed(&layout.places).filter(|(position, _)| !missing.contains(position));
        let places: Vec<(Position, TargetId)> = there.collect();
        let is_small = encoded.block <= SMALL_BLOCK && !self.remote;
        let in_turn = is_small && !self.is_slow.load(Ordering::Relaxed);
        let done = if in_turn {
            let (encoded, set) = (encoded.clone(), layout.set);
            let write = move |position, target: &dyn Target| {
                encoded.write(position, first_coded, target, TargetFile::Chunk { set, position }, record)
            };
            self.targets.one_by_one(&places, write)
        } else {
            let mut batch = Batch::new();
            for (position, id) in places {
                let (encoded, file) = (encoded.clone(), layout.file(position));
                batch.run(&self.targets, position, id, move |target| {
                    encoded.write(position, first_coded, target, file, record)
                });
            }
            // A late target gets no more stripes of this set, and the blocks that it misses are
            // rebuilt. A record that arrives later has the right content. Small blocks are no
            // measure of lateness.
            match is_small {
                true => batch.wait(&self.targets),
                false => batch.wait_for_most(&self.targets, self.enough(), self.need),
            }
        };
        let took = begun.elapsed();
        self.is_slow.store(took > SLOW_STRIPE, Ordering::Relaxed);
        let (missing, slave) = self.settle(known, done, record, encoded.header_bytes + encoded.block, in_turn)?;
        Ok(Sent { missing, took, slave })
    }

    /// Evaluates the outcomes of a write of `bytes` bytes per block and header. Returns the
    /// positions that failed and are not in `known`, and the time of the slowest target itself, or
    /// the sum over all targets that were written one after the other.
    fn settle(
        &self,
        known: &BTreeSet<Position>,
        outcomes: Outcomes,
        record: RecordOffset,
        bytes: usize,
        in_turn: bool,
    ) -> Result<(Vec<Position>, Duration)> {
        let (mut slave, mut full, mut refused) = (Duration::ZERO, false, Vec::new());
        for (position, id, result) in outcomes {
            match result {
                Ok(itself) => {
                    // Writes one after the other add up; parallel writes take as long as the
                    // slowest.
                    slave = if in_turn { slave + itself } else { slave.max(itself) };
                    self.targets.count_written(id, bytes);
                }
                Err(error) => {
                    full |= is_full(&error);
                    refused.push((position, error));
                }
            }
        }
        let mut failures = self.failures();
        let mut missing = failures.positions().clone();
        missing.extend(refused.iter().map(|(position, _)| *position));
        let have = self.layout.blocks() - missing.len();
        if have < self.need {
            failures.not_written(refused.iter().map(|(position, error)| (*position, error)));
            failures.no_header(refused.iter().map(|(position, _)| *position).filter(|_| is_first(record)));
            return Err(self.too_few(have, full));
        }
        failures.written(missing.iter().copied());
        Ok((missing.difference(known).copied().collect(), slave))
    }

    fn too_few(&self, have: usize, full: bool) -> Error {
        if full {
            return Error::NoSpace("the targets".into());
        }
        let why = ec::Unrecoverable { blocks: Vec::new(), have, need: self.need };
        Error::TooDegraded { what: format!("writing to chunk set {}", self.layout.set), why }
    }

    /// Whether a stripe can be written, though some targets fail.
    pub fn can_go_on(&self, fails: impl Fn(TargetId) -> bool) -> bool {
        let missing = self.failures().positions().clone();
        let placed = Position::placed(&self.layout.places);
        placed.filter(|(position, id)| !missing.contains(position) && !fails(*id)).count() >= self.need
    }

    /// Whether a sync has anything to do, or waits for another thread that syncs.
    pub fn needs_sync(&self) -> bool {
        self.synced.try_lock().map_or(true, |synced| *synced < self.appended.load(Ordering::Acquire))
    }

    /// Makes all stripes that were written before durable. Returns the positions where that failed
    /// and that had not failed before.
    ///
    /// # Errors
    /// If they are durable on fewer than k targets. Another sync may succeed, unless `has_lost`.
    pub fn sync(&self) -> Result<Vec<Position>> {
        let Synced { missing, cost } = self.sync_uncounted();
        if let Some(cost) = cost {
            self.targets.steps().add_sync(&cost);
        }
        missing
    }

    /// As `sync`, but leaves it to the caller to count the cost: it may sync several sets at the
    /// same time, and waits for the slowest.
    pub fn sync_uncounted(&self) -> Synced {
        let _span = WriteStep::Distribution.span().entered();
        let wanted = self.appended.load(Ordering::Acquire);
        let mut synced = lock(&self.synced);
        if *synced >= wanted {
            return Synced { missing: Ok(Vec::new()), cost: None };
        }
        // A thread that waited for the lock also syncs the stripes written in the meantime.
        let wanted = self.appended.load(Ordering::Acquire);
        let (lacking, headless) = {
            let failures = self.failures();
            (failures.lacking(), failures.headless().clone())
        };
        let begun = Instant::now();
        let mut batch = Batch::new();
        for (position, target) in Position::placed(&self.layout.places).filter(|(at, _)| !lacking.contains(at)) {
            let file = self.layout.file(position);
            let headers = headless.contains(&position).then(|| chunk_headers(&self.layout, self.created));
            batch.run(&self.targets, position, target, move |target| {
                // The stripes are as durable without it. Verifications find such chunks.
                let write = |headers: &Vec<Vec<u8>>| {
                    target.write(file, 0, &[IoSlice::new(&headers[position.index()])], Durable::Later).is_ok()
                };
                let is_headed = headers.as_ref().is_none_or(write);
                target.sync(file).map(|took| (took, is_headed))
            });
        }
        let done = batch.wait_for_most(&self.targets, self.enough(), self.need);
        let took = begun.elapsed();
        let well = || done.iter().filter_map(|(position, _, result)| Some((*position, result.as_ref().ok()?)));
        let slave = well().map(|(_, (took, _))| *took).max().unwrap_or_default();
        let cost = Some(Cost::of(took, Duration::ZERO, took, slave));
        let failed = || done.iter().filter_map(|(position, _, result)| Some((*position, result.as_ref().err()?)));
        let have = self.layout.blocks() - lacking.len() - failed().count();
        let mut failures = self.failures();
        // An append can move to other targets; a sync cannot. So accept it as long as the data is
        // readable. Otherwise try those again that may have it.
        if have < self.layout.code.shape().k {
            failures.not_synced(failed());
            return Synced { missing: Err(self.too_few(have, false)), cost };
        }
        failed().for_each(|(position, _)| failures.lost(position));
        let is_headed =
            |(position, (_, is_headed)): &(Position, &(Duration, bool))| *is_headed && headless.contains(position);
        well().filter(is_headed).for_each(|(position, _)| failures.has_header(position));
        *synced = wanted;
        Synced { missing: Ok(failed().map(|(position, _)| position).collect()), cost }
    }
}
