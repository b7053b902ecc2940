//! Reads stripes. A read transfers only what is requested, returns only verified data, and works
//! around blocks that are missing, corrupt or late.
//!
//! The caller reads what is in the page cache. The threads of the targets read from devices, all at
//! the same time and until the deadline, so a disk that hangs is an erasure like any other.

use super::block_state::BlockState;
use super::headers::Key;
use super::layout::SetLayout;
use super::overloaded::overloaded;
use crate::format::{GRANULE_BYTES, StripeHeader};
use crate::target::{ReadAt, ReadPart, Target, TargetFile, Wait, read_to_vec};
use crate::targets::{Batch, Targets};
use crate::{Error, Result};
use gf::checksum::crc64;
use plan::stripe::Part;
use plan::{Position, RecordOffset, Span, StripeSeq, TargetId};
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// If at most this many bytes lie between a record header and the granules, one read covers both.
const MAX_GAP_BYTES: usize = 32 << 10;
/// How often to retry a read with too many late blocks before it waits for them.
const MAX_RETRIES: usize = 2;
/// No retry begins after this time: a read that took so long waits for all late blocks.
const RETRIES_WITHIN: Duration = Duration::from_secs(2);
/// How long a retry waits at most for one of the late targets to answer.
const RETRY_TIMEOUT: Duration = Duration::from_millis(300);

/// What a read found on its way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadReport {
    /// Positions whose blocks were unusable, and why.
    pub bad: Vec<(Position, String)>,
}

/// Granules of a block, verified against their checksums.
pub(super) struct Granules {
    pub header: Arc<StripeHeader>,
    pub bytes: Vec<u8>,
}

/// Positions whose blocks are unusable, and why.
type Bad = BTreeMap<usize, BlockState>;

/// Blocks by position, or why a block is unusable.
pub(super) type FoundBlocks = BTreeMap<usize, std::result::Result<Granules, BlockState>>;

/// A stripe of a set.
#[derive(Clone, Copy)]
pub(super) struct StripeAt<'a> {
    pub targets: &'a Targets,
    pub layout: &'a SetLayout,
    pub record: RecordOffset,
    pub block: u32,
    /// Ignores cached headers: for callers that verify the stored data.
    pub fresh: bool,
    /// Continues without late blocks where possible.
    pub hedged: bool,
}

/// A request to read part of a chunk.
struct Ask {
    file: TargetFile,
    record: u64,
    header_bytes: usize,
    /// The range in the block, in bytes.
    range: Range<usize>,
    /// The record header is cached and need not be read.
    known: bool,
}

/// The bytes read from a chunk: the record header, unless it was cached, and granules. Either may
/// be too short.
struct Raw {
    header: Vec<u8>,
    granules: Vec<u8>,
}

impl Ask {
    fn answer(&self, target: &dyn Target, wait: Wait) -> io::Result<Raw> {
        match self.apart() {
            Some(both) => self.read_apart(target, both, wait),
            None => self.read_together(target, wait),
        }
    }

    /// The ranges of record header and granules if both must be read and lie too far apart for one
    /// read.
    fn apart(&self) -> Option<[Range<u64>; 2]> {
        let begin = self.record + self.header_bytes as u64;
        let granules = begin + self.range.start as u64..begin + self.range.end as u64;
        (!self.known && self.range.start > MAX_GAP_BYTES).then_some([self.record..begin, granules])
    }

    fn read_apart(&self, target: &dyn Target, [header, granules]: [Range<u64>; 2], wait: Wait) -> io::Result<Raw> {
        let room = |range: &Range<u64>| vec![0; (range.end - range.start) as usize];
        let mut raw = Raw { header: room(&header), granules: room(&granules) };
        let mut parts =
            [ReadPart::new(header.start, &mut raw.header), ReadPart::new(granules.start, &mut raw.granules)];
        target.read(self.file, &mut parts, wait)?;
        let read = parts.map(|part| part.read);
        raw.header.truncate(read[0]);
        raw.granules.truncate(read[1]);
        Ok(raw)
    }

    /// Reads header and granules in one read, or only the granules if the header is cached.
    fn read_together(&self, target: &dyn Target, wait: Wait) -> io::Result<Raw> {
        let begin = self.record + self.header_bytes as u64;
        let read =
            |offset: u64, length: usize| read_to_vec(length, |into| target.read_part(self.file, offset, into, wait));
        if self.known {
            let granules = read(begin + self.range.start as u64, self.range.len())?;
            return Ok(Raw { header: Vec::new(), granules });
        }
        let mut header = read(self.record, self.header_bytes + self.range.end)?;
        let granules = header.split_off(header.len().min(self.header_bytes + self.range.start));
        Ok(Raw { header, granules })
    }
}

impl<'a> StripeAt<'a> {
    fn key(&self, position: usize) -> Key {
        (self.layout.volume, self.layout.set, self.record, Position::at(position))
    }

    pub(super) fn header_bytes(&self) -> usize {
        StripeHeader::encoded_bytes(self.block as usize)
    }

    /// The name of the stripe, for error messages.
    pub fn name(&self) -> String {
        format!("chunk set {}, stripe at {}", self.layout.set, self.record)
    }

    pub fn too_degraded(&self, why: ec::Unrecoverable) -> Error {
        Error::TooDegraded { what: self.name(), why }
    }

    /// Decodes a record header and checks that it belongs to the block at `position`.
    pub(super) fn own_header(
        &self,
        position: usize,
        bytes: &[u8],
    ) -> std::result::Result<Arc<StripeHeader>, BlockState> {
        let header = StripeHeader::decode(bytes);
        let header = header.map_err(|why| BlockState::Corrupt(format!("its record header: {why}")))?;
        let expected = (self.layout.volume, self.layout.set, Position::at(position), self.record, self.block);
        if (header.volume, header.set, header.position, header.record, header.block_bytes) != expected {
            return Err(BlockState::Corrupt("its record is that of another block".into()));
        }
        let header = Arc::new(header);
        self.targets.headers.put(self.key(position), header.clone());
        Ok(header)
    }

    pub(super) fn remembered(&self, position: usize) -> Option<Arc<StripeHeader>> {
        if self.fresh { None } else { self.targets.headers.get(&self.key(position)) }
    }

    /// Splits positions into those that are read at once and those whose targets hang, with all
    /// their threads: each read of them would wait for the deadline, so they are read only where
    /// nothing else will do.
    pub fn by_haste(&self, positions: impl IntoIterator<Item = usize>) -> (Vec<usize>, Vec<usize>) {
        let is_stuck = |position: &usize| self.layout.places[*position].is_some_and(|id| self.targets.is_stuck(id));
        positions.into_iter().partition(|position| !is_stuck(position))
    }

    /// Reads the same whole granules of several blocks at the same time.
    pub fn granules(&self, positions: &[usize], at: &Range<usize>) -> FoundBlocks {
        let wanted: Vec<(usize, Range<usize>)> = positions.iter().map(|&position| (position, at.clone())).collect();
        self.several(wanted)
    }

    /// Reads whole granules of several blocks at the same time.
    fn several(&self, wanted: Vec<(usize, Range<usize>)>) -> FoundBlocks {
        let mut found = FoundBlocks::new();
        let mut asked = Vec::with_capacity(wanted.len());
        for (position, at) in wanted {
            let mut bytes = vec![0; at.len()];
            match self.cached(position, &mut [(at.clone(), &mut bytes)]) {
                Some(header) => _ = found.insert(position, Ok(Granules { header, bytes })),
                None => asked.push((position, at)),
            }
        }
        if asked.is_empty() {
            return found;
        }
        // A cached header may belong to a chunk that was replaced since. Forget it and read again.
        let mut doubted = self.ask(asked, true, &mut found);
        doubted.iter().for_each(|(position, _)| self.targets.headers.forget(&self.key(*position)));
        doubted = self.ask(doubted, false, &mut found);
        debug_assert!(doubted.is_empty());
        found
    }

    /// Reads on this thread if the target is remote and can give up by itself. After a failure, the
    /// threads of the targets read.
    fn answer_here(&self, id: TargetId, ask: &Ask) -> Option<Raw> {
        let target = self.targets.get(id).filter(|target| target.is_remote())?;
        let (begun, timeout) = (Instant::now(), &self.targets.read_timeout);
        let meter = self.targets.meter(id)?;
        let _metering = meter.begin();
        let raw = ask.answer(&*target, Wait::Within(timeout.current())).ok()?;
        timeout.record(begun.elapsed());
        meter.note_read(ask.range.len(), begun.elapsed());
        Some(raw)
    }

    /// Reads granules on the threads of their targets. Returns the requests whose data did not
    /// match a cached header.
    fn ask(
        &self,
        asked: Vec<(usize, Range<usize>)>,
        remembered: bool,
        found: &mut FoundBlocks,
    ) -> Vec<(usize, Range<usize>)> {
        let mut doubted = Vec::new();
        let mut sent = BTreeMap::new();
        let mut batch = Batch::new();
        let mut results = Vec::new();
        let alone = self.hedged && asked.len() == 1;
        for (position, range) in asked {
            let Some(id) = self.layout.places[position] else {
                found.insert(position, Err(BlockState::Missing));
                continue;
            };
            if self.targets.get(id).is_none() {
                found.insert(position, Err(BlockState::Unreachable(format!("target {} is not there", id.0))));
                continue;
            }
            if self.hedged && self.targets.is_slow(id) {
                found.insert(position, Err(BlockState::Late));
                continue;
            }
            let header = if remembered { self.remembered(position) } else { None };
            let ask = Ask {
                file: self.layout.file(Position::at(position)),
                record: u64::from(self.record.0),
                header_bytes: self.header_bytes(),
                range: range.clone(),
                known: header.is_some(),
            };
            // A single request to a target that can give up by itself needs no other thread.
            match if alone { self.answer_here(id, &ask) } else { None } {
                Some(raw) => results.push((position, id, Ok(Some(raw)))),
                None => {
                    let (begun, meter) = (Instant::now(), self.targets.meter(id));
                    batch.run(self.targets, position, id, move |target| {
                        let raw = ask.answer(target, Wait::Always);
                        // Also if nobody waits for it any more: then it says most.
                        if let (Ok(_), Some(meter)) = (&raw, meter) {
                            meter.note_read(ask.range.len(), begun.elapsed());
                        }
                        match raw {
                            // A missing chunk is no failure of its target.
                            Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(None),
                            raw => raw.map(Some),
                        }
                    });
                }
            }
            sent.insert(position, (range, header));
        }
        results.extend(if self.hedged { batch.hedged(self.targets) } else { batch.wait(self.targets) });
        for (position, id, result) in results {
            let Some((range, header)) = sent.remove(&position) else { continue };
            let was_remembered = header.is_some();
            let checked = match result {
                Err(why) if self.hedged && why.kind() == io::ErrorKind::TimedOut => Err(BlockState::Late),
                Err(why) => Err(BlockState::Unreachable(why.to_string())),
                Ok(None) => Err(BlockState::Missing),
                Ok(Some(raw)) => {
                    self.targets.count_read(id, raw.granules.len());
                    header.map_or_else(|| self.own_header(position, &raw.header), Ok).and_then(|header| {
                        let bytes = raw.granules;
                        if bytes.len() < range.len() {
                            Err(BlockState::Corrupt("its chunk ends too early".into()))
                        } else if are_sound(&header, &range, &bytes) {
                            Ok(Granules { header, bytes })
                        } else {
                            Err(BlockState::Corrupt("its checksum does not fit".into()))
                        }
                    })
                }
            };
            match checked {
                Err(BlockState::Corrupt(_)) if was_remembered => doubted.push((position, range)),
                checked => _ = found.insert(position, checked),
            }
        }
        doubted
    }

    /// Turns blocks that belong to another stripe than the majority into erasures: a failed write
    /// may have left an older record, which is sound by itself.
    pub fn outvote(&self, found: &mut FoundBlocks) {
        let mut votes: BTreeMap<(StripeSeq, u32, u32), usize> = BTreeMap::new();
        for granules in found.values().flatten() {
            *votes.entry(granules.header.stripe()).or_default() += 1;
        }
        if votes.len() < 2 {
            return;
        }
        // All positions vote, not only those that were read.
        for position in (0..self.layout.blocks()).filter(|position| !found.contains_key(position)) {
            if let Some(Ok(granules)) = self.granules(&[position], &(0..0)).remove(&position) {
                *votes.entry(granules.header.stripe()).or_default() += 1;
            }
        }
        // If the votes are equal, the later stripe wins.
        let Some((&winner, _)) = votes.iter().max_by_key(|(stripe, votes)| (**votes, stripe.0)) else { return };
        for granules in found.values_mut() {
            if granules.as_ref().is_ok_and(|granules| granules.header.stripe() != winner) {
                *granules = Err(BlockState::Corrupt("its record is that of another stripe".into()));
            }
        }
    }

    /// Extends the range to whole granules and whole units of the code.
    fn widen(&self, range: &Range<usize>) -> Range<usize> {
        if GRANULE_BYTES.is_multiple_of(self.layout.code.unit()) {
            self.in_granules(range)
        } else {
            0..self.block as usize
        }
    }

    pub(super) fn in_granules(&self, range: &Range<usize>) -> Range<usize> {
        let end = range.end.next_multiple_of(GRANULE_BYTES).min(self.block as usize);
        range.start / GRANULE_BYTES * GRANULE_BYTES..end
    }

    /// Reads parts of data blocks as they are stored. Returns the parts that could not be read.
    fn direct(&self, parts: Vec<Part>, bad: &mut Bad, out: &mut [u8]) -> Vec<Part> {
        let mut headers: Vec<Arc<StripeHeader>> = Vec::new();
        let mut rest: Vec<&Part> = Vec::new();
        for part in &parts {
            match self.cached_range(part.block, &part.range, &mut out[part.at..part.at + part.range.len()]) {
                Some(header) => headers.push(header),
                None => rest.push(part),
            }
        }
        let mut found = self.several(rest.iter().map(|part| (part.block, self.in_granules(&part.range))).collect());
        let all = headers.iter().chain(found.values().flatten().map(|granules| &granules.header));
        let first = all.clone().next().map(|header| header.stripe());
        let differ = all.into_iter().any(|header| Some(header.stripe()) != first);
        if differ {
            // Parts belong to different stripes: read all again, and decode those that lose the
            // vote.
            found = self.several(parts.iter().map(|part| (part.block, self.in_granules(&part.range))).collect());
            self.outvote(&mut found);
            rest = parts.iter().collect();
        }
        let mut missing = Vec::new();
        for part in rest {
            match found.remove(&part.block) {
                Some(Ok(granules)) => {
                    let from = part.range.start - self.in_granules(&part.range).start;
                    let source = &granules.bytes[from..from + part.range.len()];
                    out[part.at..part.at + part.range.len()].copy_from_slice(source);
                }
                Some(Err(why)) => {
                    bad.insert(part.block, why);
                    missing.push(part.clone());
                }
                None => missing.push(part.clone()),
            }
        }
        missing
    }

    /// Waits until enough late blocks answer to decode these parts. It waits for all at once, so
    /// several silent targets take no longer than one. Returns the positions that did not answer.
    fn silent(&self, parts: &[Part], bad: &Bad) -> Bad {
        let code = &*self.layout.code;
        let mut batch = Batch::new();
        for position in late(bad) {
            if let Some(id) = self.layout.places[position] {
                let (file, record, length) =
                    (self.layout.file(Position::at(position)), u64::from(self.record.0), self.header_bytes());
                batch.run(self.targets, position, id, move |target| {
                    match target.read_at(file, record, &mut vec![0; length]) {
                        // A missing chunk is an answer, too.
                        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(()),
                        read => read.map(drop),
                    }
                });
            }
        }
        let answered = batch.until_enough(self.targets, |answered| {
            let is_had = |position: &usize| !bad.contains_key(position) || answered.contains(position);
            let have: Vec<usize> = (0..self.layout.blocks()).filter(is_had).collect();
            let wanted = || parts.iter().map(|part| part.block);
            if code.systematic() {
                code.repair(&wanted().filter(|block| !have.contains(block)).collect::<Vec<_>>(), &have).is_ok()
            } else {
                code.read(&wanted().collect::<Vec<_>>(), &have).is_ok()
            }
        });
        late(bad).filter(|position| !answered.contains(position)).map(|position| (position, BlockState::Late)).collect()
    }

    /// Decodes parts of data blocks from other blocks. `bad` holds the positions that are known to
    /// be unusable; those found on the way are added.
    fn decode(&self, parts: &[Part], bad: &mut Bad, out: &mut [u8]) -> Result<()> {
        let code = &*self.layout.code;
        let mut range = parts[0].range.clone();
        for part in parts {
            range = range.start.min(part.range.start)..range.end.max(part.range.end);
        }
        let range = self.widen(&range);
        let wanted: Vec<usize> = parts.iter().map(|part| part.block).collect();
        let mut found = FoundBlocks::new();
        loop {
            // With a systematic code, the wanted blocks are never sources, sound or not.
            let is_wanted = |position: &usize| code.systematic() && wanted.contains(position);
            let usable = |position: &usize| !bad.contains_key(position) && !is_wanted(position);
            let have: Vec<usize> = (0..self.layout.blocks()).filter(usable).collect();
            let repair = if code.systematic() { code.repair(&wanted, &have) } else { code.read(&wanted, &have) };
            let repair = repair.map_err(|why| self.too_degraded(why))?;
            let needed: Vec<usize> = repair.reads().iter().map(|read| read.block).collect();
            let new: Vec<usize> = needed.iter().copied().filter(|position| !found.contains_key(position)).collect();
            found.extend(self.granules(&new, &range));
            self.outvote(&mut found);
            let failed = found.iter().filter_map(|(&position, block)| Some((position, block.as_ref().err()?.clone())));
            bad.extend(failed);
            let sources = needed.iter().map(|position| found[position].as_ref().ok().map(|block| &block.bytes[..]));
            let Some(sources) = sources.collect::<Option<Vec<&[u8]>>>() else { continue };
            let mut made = vec![vec![0; range.len()]; wanted.len()];
            let mut makes: Vec<&mut [u8]> = made.iter_mut().map(Vec::as_mut_slice).collect();
            repair.run(&sources, &mut makes);
            for (part, block) in parts.iter().zip(&made) {
                let from = part.range.start - range.start;
                out[part.at..part.at + part.range.len()].copy_from_slice(&block[from..from + part.range.len()]);
            }
            return Ok(());
        }
    }
}

/// Whether granules match their checksums.
pub(super) fn are_sound(header: &StripeHeader, at: &Range<usize>, bytes: &[u8]) -> bool {
    let checksums = &header.checksums[at.start / GRANULE_BYTES..];
    bytes.chunks(GRANULE_BYTES).zip(checksums).all(|(granule, &checksum)| crc64(granule) == checksum)
}

/// The positions that are late.
fn late(bad: &Bad) -> impl Iterator<Item = usize> {
    bad.iter().filter(|(_, why)| **why == BlockState::Late).map(|(&position, _)| position)
}

/// Whether one of the late targets has caught up, or does so soon.
fn one_answers(targets: &Targets, layout: &SetLayout, bad: &Bad) -> bool {
    let begun = Instant::now();
    loop {
        if late(bad).filter_map(|position| layout.places[position]).any(|id| !targets.is_slow(id)) {
            return true;
        }
        if begun.elapsed() >= RETRY_TIMEOUT {
            return false;
        }
        std::thread::sleep(RETRY_TIMEOUT / 60);
    }
}

/// Reads the bytes of a span.
///
/// # Errors
/// `TooDegraded` if too few blocks are left to decode the data. Unverified data is never returned.
pub fn read(targets: &Targets, layout: &SetLayout, span: Span, out: &mut [u8]) -> Result<ReadReport> {
    let parts = layout
        .parts(span, out.len())
        .ok_or_else(|| Error::Invalid(format!("a span of chunk set {} is longer than its stripe", span.set)))?;
    let stripe = |hedged| StripeAt { targets, layout, record: span.record, block: span.block, fresh: false, hedged };
    // Pass the bad positions by reference: rustc 1.95 and 1.96 free the second of two equal
    // constant arguments twice (rust-lang/rust#158830), and there are several attempts.
    let mut attempt = |hedged: bool, bad: &mut Bad| {
        let stripe = stripe(hedged);
        let mut missing = parts.clone();
        if layout.code.systematic() {
            let (asked, known) = missing.into_iter().partition(|part| !bad.contains_key(&part.block));
            missing = stripe.direct(asked, bad, out);
            missing.extend::<Vec<Part>>(known);
        }
        // A code without data blocks always decodes: such a read is not degraded.
        if !missing.is_empty() && layout.code.systematic() {
            targets.reads().add_degraded();
        }
        if missing.is_empty() { Ok(()) } else { stripe.decode(&missing, bad, out) }
    };
    let begun = Instant::now();
    let overloaded = overloaded(targets, layout, &parts).into_iter();
    let mut bad: Bad = overloaded.map(|position| (position, BlockState::Late)).collect();
    let mut done = attempt(true, &mut bad);
    let too_late = |done: &Result<()>, bad: &Bad| done.is_err() && late(bad).next().is_some();
    // Too few other blocks are left. Some targets may have been late only for a moment; the read
    // may then do without the really slow ones.
    for _ in 0..MAX_RETRIES {
        if begun.elapsed() < RETRIES_WITHIN && too_late(&done, &bad) && one_answers(targets, layout, &bad) {
            bad.clear();
            done = attempt(true, &mut bad);
        }
    }
    if too_late(&done, &bad) {
        // Wait for the late blocks. The measured time raises the limit, so that reads that usually
        // take this long do not count as late again.
        bad = stripe(false).silent(&parts, &bad);
        let begun = Instant::now();
        done = attempt(false, &mut bad);
        if done.is_ok() {
            targets.read_timeout.record(begun.elapsed());
        }
    }
    targets.reads().add_refused(bad.values().filter(|why| matches!(why, BlockState::Corrupt(_))).count());
    done?;
    if late(&bad).next().is_some() {
        targets.reads().add_hedged();
    }
    bad.retain(|_, why| *why != BlockState::Late);
    Ok(ReadReport { bad: bad.into_iter().map(|(position, why)| (Position::at(position), why.to_string())).collect() })
}

/// Reads the manifest of a stripe.
///
/// # Errors
/// `TooDegraded` if too few blocks are left to read it.
pub fn read_manifest(targets: &Targets, layout: &SetLayout, record: RecordOffset, block: u32) -> Result<Vec<u8>> {
    let stripe = StripeAt { targets, layout, record, block, fresh: false, hedged: false };
    let (quick, hanging) = stripe.by_haste(0..layout.blocks());
    let mut found = stripe.granules(&quick, &(0..0));
    if !found.values().any(|header| header.is_ok()) {
        found.extend(stripe.granules(&hanging, &(0..0)));
    }
    stripe.outvote(&mut found);
    let header = found.into_values().flatten().next().map(|granules| granules.header).ok_or_else(|| {
        stripe.too_degraded(ec::Unrecoverable { blocks: Vec::new(), have: 0, need: layout.code.shape().k })
    })?;
    let span = Span { set: layout.set, record, block, start: header.data_bytes };
    let limit = (block as usize * layout.code.shape().k).saturating_sub(header.data_bytes as usize);
    let mut manifest = vec![0; (header.manifest_bytes as usize).min(limit)];
    read(targets, layout, span, &mut manifest)?;
    Ok(manifest)
}
