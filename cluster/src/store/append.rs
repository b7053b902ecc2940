//! Append-only access for clients. Bytes that a client has written stay as they are, whichever
//! token it shows later, and no chunk grows beyond the chunk size.
//!
//! The same bytes may arrive twice for the same place: after a lost answer, or when a Master and
//! its client both write a stripe. The store knows which ranges were written since it first looked
//! at a chunk. All that the chunk had then counts as written, because synced zeroes cannot be told
//! from gaps. So a block for a gap from before a restart of the store is refused: its writer counts
//! the target as one that missed the stripe, as when the write failed, and a repair fills the gap.

use crate::ranks::AppendLedger;
use std::collections::HashMap;
use std::fmt;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::{Arc, Condvar};
use std::time::Duration;
use volume::ranked::{Guard, Ranked};
use volume::target::{
    Allocation, ClaimRequest, ClaimState, Durable, Owner, Presence, ReadAt, ReadPart, Space, Target, TargetFile, Wait,
    read_to_vec,
};

/// Maximum number of ranges remembered for all chunks of a target. Beyond that, the chunks that
/// were written to longest ago are forgotten.
const MAX_REMEMBERED_RANGES: usize = 1 << 16;
/// Maximum number of separate written ranges in a chunk. Writers leave gaps where a long block
/// begins at a whole page; even the longest chunk has at most half this number of gaps.
const RANGES: usize = 8192;
/// Existing content is compared in pieces of this size, in bytes.
const COMPARE_PIECE_BYTES: usize = 256 << 10;
/// A client that tests whether a target works writes at most this many bytes.
const PROBE_BYTES: u64 = 4096;

/// The chunk size of a volume, and the number of chunks in a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AppendLimits {
    pub chunk_bytes: u64,
    pub blocks: u16,
}

impl AppendLimits {
    /// The range of a write, if a client may write there.
    fn range(self, file: TargetFile, offset: u64, length: u64) -> io::Result<Range<u64>> {
        let most = match file {
            TargetFile::Chunk { set, position } if set != fs::PROBE_SET && position.0 < self.blocks => self.chunk_bytes,
            TargetFile::NewChunk { set: fs::PROBE_SET, .. } => PROBE_BYTES,
            _ => return Err(refused("a client appends to chunks alone")),
        };
        let end = offset.checked_add(length).filter(|&end| end <= most);
        end.map(|end| offset..end).ok_or_else(|| refused("a chunk does not get so long"))
    }
}

fn refused(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, what)
}

/// What the store knows of a chunk.
#[derive(Debug)]
struct Chunk {
    /// The written ranges, in order; none overlaps another.
    written: Vec<Range<u64>>,
    pending: Vec<Range<u64>>,
    used: u64,
}

fn meet(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

impl Chunk {
    /// A chunk that has `length` bytes when the store first looks at it.
    fn of(length: u64) -> Self {
        let written = (length > 0).then_some(0..length).into_iter().collect();
        Self { written, pending: Vec::new(), used: 0 }
    }

    /// Adds a written range. Returns by how much the number of ranges grows.
    fn note(&mut self, range: Range<u64>) -> isize {
        let before = self.written.len();
        let from = self.written.partition_point(|written| written.end < range.start);
        let to = self.written.partition_point(|written| written.start <= range.end);
        let met = &self.written[from..to];
        let start = met.first().map_or(range.start, |first| first.start.min(range.start));
        let end = met.last().map_or(range.end, |last| last.end.max(range.end));
        self.written.splice(from..to, std::iter::once(start..end));
        self.written.len() as isize - before as isize
    }

    /// Whether a range touches no written range, so that writing it adds one more.
    fn is_apart(&self, range: &Range<u64>) -> bool {
        let at = self.written.partition_point(|written| written.end < range.start);
        self.written.get(at).is_none_or(|written| written.start > range.end)
    }

    /// The parts of a range that were written before.
    fn remembered(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let from = self.written.partition_point(|written| written.end <= range.start);
        let met = self.written[from..].iter().take_while(|written| written.start < range.end);
        met.map(|written| written.start.max(range.start)..written.end.min(range.end)).collect()
    }
}

/// Whether a piece changes nothing that was written: bytes in known ranges stay, and so do bytes
/// that are not zero. The function reads each byte at most twice, however many ranges there are,
/// because clients choose the ranges. The piece begins at `at`; `remembered` is in order.
fn keeps(old: &[u8], new: &[u8], at: u64, remembered: &[Range<u64>]) -> bool {
    let (old, new) = (&old[..old.len().min(new.len())], &new[..old.len().min(new.len())]);
    if old == new {
        return true;
    }
    let end = at + old.len() as u64;
    let from = remembered.partition_point(|remembered| remembered.end <= at);
    let within = remembered[from..].iter().take_while(|remembered| remembered.start < end);
    let mut within =
        within.map(|remembered| (remembered.start.max(at) - at) as usize..(remembered.end.min(end) - at) as usize);
    within.all(|range| old[range.clone()] == new[range])
        && old.iter().zip(new).all(|(old, new)| old == new || *old == 0)
}

#[derive(Debug, Default)]
struct Chunks {
    of: HashMap<TargetFile, Chunk>,
    ranges: usize,
    clock: u64,
    /// How often a chunk was forgotten.
    forgotten: u64,
}

impl Chunks {
    fn forget(&mut self, file: TargetFile) {
        self.ranges -= self.of.remove(&file).map_or(0, |chunk| chunk.written.len());
        self.forgotten += 1;
    }
}

/// The length of a file, 0 if it does not exist. A target tells the lengths of all its files
/// together only, so this searches the end: a range has bytes exactly up to there.
fn length(target: &dyn Target, file: TargetFile) -> io::Result<u64> {
    let has = |at: u64| match target.read_at(file, at, &mut [0]) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(false),
        read => read.map(|bytes| bytes > 0),
    };
    // All bytes below `least` exist, and none from `most` on.
    let (mut least, mut most) = (0, 1);
    while has(most - 1)? {
        (least, most) = (most, most.saturating_mul(2));
    }
    while least + 1 < most {
        let middle = least.midpoint(most);
        if has(middle - 1)? { least = middle } else { most = middle }
    }
    Ok(least)
}

/// What clients wrote to the chunks of a target.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    chunks: Ranked<Chunks, AppendLedger>,
    done: Condvar,
}

/// A write in progress. No other write to its range runs meanwhile.
struct Admitted<'a> {
    ledger: &'a Ledger,
    file: TargetFile,
    range: Range<u64>,
    /// The parts of the range that were written before.
    remembered: Vec<Range<u64>>,
}

impl Ledger {
    fn chunks(&self) -> Guard<'_, Chunks, AppendLedger> {
        self.chunks.lock()
    }

    /// Forgets a chunk because a server changed it.
    fn forget(&self, file: TargetFile) {
        self.chunks().forget(file);
        self.done.notify_all();
    }

    /// Waits until no other write to a range is in progress, and reserves the range.
    ///
    /// # Errors
    /// When the chunk has too many separate written ranges, or its length cannot be found out.
    fn admit(&self, target: &dyn Target, file: TargetFile, range: Range<u64>) -> io::Result<Admitted<'_>> {
        let mut chunks = self.chunks();
        while !chunks.of.contains_key(&file) {
            let forgotten = chunks.forgotten;
            // Release the lock before reading: the disk may hang.
            drop(chunks);
            let new = Chunk::of(length(target, file)?);
            chunks = self.chunks();
            // What was forgotten meanwhile may be this chunk, longer than it was.
            if chunks.forgotten == forgotten && !chunks.of.contains_key(&file) {
                chunks.ranges += new.written.len();
                chunks.of.insert(file, new);
            }
        }
        while chunks.of.get(&file).is_some_and(|chunk| chunk.pending.iter().any(|other| meet(other, &range))) {
            chunks = chunks.wait(&self.done);
        }
        chunks.clock += 1;
        let clock = chunks.clock;
        let mut remembered = Vec::new();
        if let Some(chunk) = chunks.of.get_mut(&file) {
            if chunk.written.len() >= RANGES && chunk.is_apart(&range) {
                return Err(refused("a chunk is written in too many separate pieces"));
            }
            chunk.used = clock;
            remembered = chunk.remembered(&range);
            chunk.pending.push(range.clone());
        }
        Ok(Admitted { ledger: self, file, range, remembered })
    }
}

impl Admitted<'_> {
    /// Refuses to change existing content.
    fn check(&self, target: &dyn Target, parts: &[IoSlice<'_>]) -> io::Result<()> {
        if self.remembered.is_empty() {
            return Ok(());
        }
        let mut at = self.range.start;
        for piece in parts.iter().flat_map(|part| part.chunks(COMPARE_PIECE_BYTES)) {
            let there = match read_to_vec(piece.len(), |into| target.read_at(self.file, at, into)) {
                Ok(there) => there,
                Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(()),
                Err(why) => return Err(why),
            };
            if !keeps(&there, piece, at, &self.remembered) {
                return Err(refused("what is in a chunk stays as it is"));
            }
            if there.len() < piece.len() {
                return Ok(());
            }
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// Notes that the range was written.
    fn done(&self) {
        let mut chunks = self.ledger.chunks();
        let Some(chunk) = chunks.of.get_mut(&self.file) else { return };
        let more = chunk.note(self.range.clone());
        chunks.ranges = chunks.ranges.saturating_add_signed(more);
        while chunks.ranges > MAX_REMEMBERED_RANGES && chunks.of.len() > 1 {
            let idle = chunks.of.iter().filter(|(_, chunk)| chunk.pending.is_empty());
            let Some(oldest) = idle.min_by_key(|(_, chunk)| chunk.used).map(|(&file, _)| file) else { return };
            chunks.forget(oldest);
        }
    }
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        if let Some(chunk) = self.ledger.chunks().of.get_mut(&self.file)
            && let Some(at) = chunk.pending.iter().position(|pending| *pending == self.range)
        {
            chunk.pending.swap_remove(at);
        }
        self.ledger.done.notify_all();
    }
}

/// A target as clients see it, with limits, or as servers see it, without.
pub(super) struct Appending {
    pub target: Arc<dyn Target>,
    pub ledger: Arc<Ledger>,
    pub limits: Option<AppendLimits>,
}

impl fmt::Debug for Appending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Appending({:?})", self.target)
    }
}

impl Appending {
    fn append(
        &self,
        file: TargetFile,
        offset: u64,
        parts: &[IoSlice<'_>],
        write: impl FnOnce() -> io::Result<Duration>,
    ) -> io::Result<Duration> {
        let Some(limits) = self.limits else {
            return self.change(&[file], write);
        };
        let range = limits.range(file, offset, parts.iter().map(|part| part.len() as u64).sum())?;
        if !matches!(file, TargetFile::Chunk { .. }) || range.is_empty() {
            return write();
        }
        let admitted = self.ledger.admit(&*self.target, file, range)?;
        admitted.check(&*self.target, parts)?;
        let took = write()?;
        admitted.done();
        Ok(took)
    }

    /// Runs an operation that only servers may do. Afterwards the store no longer knows what
    /// clients wrote to these files.
    fn change<T>(&self, files: &[TargetFile], change: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        if self.limits.is_some() {
            return Err(refused("a client appends to chunks alone"));
        }
        let done = change();
        files.iter().for_each(|&file| self.ledger.forget(file));
        done
    }
}

impl Target for Appending {
    fn write(&self, file: TargetFile, offset: u64, parts: &[IoSlice<'_>], durable: Durable) -> io::Result<Duration> {
        self.append(file, offset, parts, || self.target.write(file, offset, parts, durable))
    }

    fn read(&self, file: TargetFile, parts: &mut [ReadPart<'_>], wait: Wait) -> io::Result<()> {
        self.target.read(file, parts, wait)
    }

    fn is_remote(&self) -> bool {
        self.target.is_remote()
    }

    fn sync(&self, file: TargetFile) -> io::Result<Duration> {
        self.target.sync(file)
    }

    fn allocate(&self, file: TargetFile, change: Allocation) -> io::Result<()> {
        self.change(&[], || self.target.allocate(file, change))
    }

    fn seal(&self, file: TargetFile) -> io::Result<()> {
        self.target.seal(file)
    }

    fn rename(&self, from: TargetFile, to: TargetFile) -> io::Result<()> {
        self.change(&[from, to], || self.target.rename(from, to))
    }

    fn remove(&self, file: TargetFile) -> io::Result<()> {
        match (self.limits, file) {
            (Some(_), TargetFile::NewChunk { set: fs::PROBE_SET, .. }) => self.target.remove(file),
            _ => self.change(&[file], || self.target.remove(file)),
        }
    }

    fn list(&self) -> io::Result<Vec<(TargetFile, u64)>> {
        self.target.list()
    }

    fn list_metadata(&self) -> io::Result<Vec<(TargetFile, u64)>> {
        self.target.list_metadata()
    }

    fn claim(&self, ask: &ClaimRequest) -> io::Result<ClaimState> {
        match ask {
            ClaimRequest::Read => self.target.claim(ask),
            _ => self.change(&[], || self.target.claim(ask)),
        }
    }

    fn look(&self, files: &[TargetFile]) -> io::Result<Vec<Presence>> {
        self.target.look(files)
    }

    fn space(&self) -> io::Result<Space> {
        self.target.space()
    }

    /// None: a Master would not heed the limits.
    fn owner(&self) -> Option<Owner<'_>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plan::Position;
    use plan::SetId;
    use proptest::prelude::*;
    use volume::target::Memory;

    const FILE: TargetFile = TargetFile::Chunk { set: SetId(5), position: Position(1) };
    const LIMITS: AppendLimits = AppendLimits { chunk_bytes: 1000, blocks: 3 };

    fn client(target: &Arc<Memory>, ledger: &Arc<Ledger>) -> Appending {
        Appending { target: target.clone(), ledger: ledger.clone(), limits: Some(LIMITS) }
    }

    fn write(target: &Appending, offset: u64, bytes: &[u8]) -> io::Result<()> {
        target.write(FILE, offset, &[IoSlice::new(bytes)], Durable::Later).map(drop)
    }

    #[test]
    fn what_was_written_stays() {
        let (disk, ledger) = (Arc::new(Memory::default()), Arc::new(Ledger::default()));
        let target = client(&disk, &ledger);
        write(&target, 0, b"header").unwrap();
        write(&target, 6, b"first").unwrap();
        // A later write arrives before an earlier one; zeroes are data, too.
        write(&target, 20, &[0; 5]).unwrap();
        write(&target, 12, b"second").unwrap();
        for (offset, bytes) in [(0, &b"x"[..]), (6, b"firsT"), (4, b"xr"), (20, &[1]), (11, b"xx"), (18, &[0, 0, 0, 1])]
        {
            let refused = write(&target, offset, bytes).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied, "{offset} {bytes:?}");
        }
        // The same bytes again.
        write(&target, 6, b"first").unwrap();
        write(&target, 0, b"headerfirst").unwrap();
        // A new process does not know what was written, but sees the content. It cannot tell the
        // zeroes that were written from a gap, so both stay.
        let later = client(&disk, &Arc::default());
        for (offset, bytes) in [(6, &b"firsT"[..]), (0, b"x"), (20, &[1]), (18, &[7, 7]), (24, b"xx")] {
            let refused = write(&later, offset, bytes).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied, "{offset} {bytes:?}");
        }
        write(&later, 6, b"first").unwrap();
        write(&later, 18, &[0; 7]).unwrap();
        write(&later, 25, b"more").unwrap();
        // A gap that was made since can be filled.
        write(&later, 40, b"behind").unwrap();
        write(&later, 29, b"between").unwrap();
        assert!(write(&later, 29, b"betweem").is_err());
    }

    /// A client can make the store forget a chunk: it writes many ranges of others.
    #[test]
    fn zeroes_stay_when_their_chunk_is_forgotten() {
        let (disk, ledger) = (Arc::new(Memory::default()), Arc::new(Ledger::default()));
        let target = client(&disk, &ledger);
        write(&target, 0, &[0; 25]).unwrap();
        write(&target, 30, b"behind").unwrap();
        let limits = AppendLimits { chunk_bytes: 1 << 20, blocks: 3 };
        let other = Appending { target: disk, ledger: ledger.clone(), limits: Some(limits) };
        for set in (100..).map(SetId) {
            for number in 0..RANGES as u64 {
                let file = TargetFile::Chunk { set, position: Position(0) };
                other.write(file, 3 * number, &[IoSlice::new(b"x")], Durable::Later).unwrap();
            }
            if !ledger.chunks().of.contains_key(&FILE) {
                break;
            }
        }
        assert!(write(&target, 18, &[7, 7]).is_err() && write(&target, 26, &[7]).is_err());
        write(&target, 0, &[0; 25]).unwrap();
        write(&target, 36, b"more").unwrap();
    }

    #[test]
    fn the_length_of_a_chunk_is_found() {
        let disk = Arc::new(Memory::default());
        assert_eq!(length(&*disk, FILE).unwrap(), 0);
        for bytes in (1..70).chain([127, 128, 129, 1000, 4096, 4097, 1_000_003]) {
            disk.write(FILE, bytes - 1, &[IoSlice::new(&[0])], Durable::Later).unwrap();
            assert_eq!(length(&*disk, FILE).unwrap(), bytes);
        }
    }

    #[test]
    fn a_client_only_appends_and_a_chunk_has_an_end() {
        let (disk, ledger) = (Arc::new(Memory::default()), Arc::new(Ledger::default()));
        let target = client(&disk, &ledger);
        write(&target, 990, &[1; 10]).unwrap();
        for offset in [991, 1000, u64::MAX - 3, u64::MAX] {
            assert!(write(&target, offset, &[1; 10]).is_err(), "{offset}");
        }
        let other = |set, position| {
            target.write(
                TargetFile::Chunk { set, position: Position(position) },
                0,
                &[IoSlice::new(b"x")],
                Durable::Later,
            )
        };
        assert!(other(SetId(5), 2).is_ok() && other(SetId(5), 3).is_err() && other(fs::PROBE_SET, 0).is_err());
        assert!(
            target.allocate(FILE, Allocation::Reserve(1)).is_err()
                && target.allocate(FILE, Allocation::Trim).is_err()
                && target.allocate(FILE, Allocation::Punch(0..1)).is_err()
        );
        assert!(target.remove(FILE).is_err() && target.rename(FILE, TargetFile::Label).is_err());
        let probe = TargetFile::NewChunk { set: fs::PROBE_SET, position: Position(9999) };
        target.write(probe, 0, &[IoSlice::new(b"does it work?")], Durable::Later).unwrap();
        assert!(target.write(probe, 4096, &[IoSlice::new(b"x")], Durable::Later).is_err());
        target.sync(probe).unwrap();
        target.remove(probe).unwrap();
    }

    #[test]
    fn what_a_server_puts_in_the_place_of_a_chunk_stays_too() {
        let (disk, ledger) = (Arc::new(Memory::default()), Arc::new(Ledger::default()));
        let target = client(&disk, &ledger);
        let server = Appending { target: disk.clone(), ledger: ledger.clone(), limits: None };
        write(&target, 0, b"header").unwrap();
        let new = TargetFile::NewChunk { set: SetId(5), position: Position(1) };
        server.write(new, 0, &[IoSlice::new(b"header and what was lost")], Durable::Later).unwrap();
        server.rename(new, FILE).unwrap();
        assert!(write(&target, 10, b"x").is_err());
        write(&target, 24, b"more").unwrap();
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (disk, ledger) = (Arc::new(Memory::default()), Arc::new(Ledger::default()));
        let limits = AppendLimits { chunk_bytes: 1 << 20, blocks: 3 };
        let target = Appending { target: disk, ledger: ledger.clone(), limits: Some(limits) };
        for set in (1..33).map(SetId) {
            for number in 0..MAX_REMEMBERED_RANGES as u64 / 16 {
                let file = TargetFile::Chunk { set, position: Position(0) };
                target.write(file, 3 * number, &[IoSlice::new(b"x")], Durable::Later).unwrap();
            }
        }
        let chunks = ledger.chunks();
        assert!(chunks.ranges <= MAX_REMEMBERED_RANGES);
        assert_eq!(chunks.ranges, chunks.of.values().map(|chunk| chunk.written.len()).sum::<usize>());
    }

    /// Zeroes at every other place, and one write over all of them. A walk over all ranges for each
    /// byte would take minutes.
    #[test]
    fn a_check_takes_no_longer_with_many_ranges_and_they_are_limited() {
        const WRITE_BYTES: usize = 8 << 20;
        let (disk, ledger) = (Arc::new(Memory::default()), Arc::new(Ledger::default()));
        let limits = AppendLimits { chunk_bytes: 16 << 20, blocks: 3 };
        let target = Appending { target: disk, ledger: ledger.clone(), limits: Some(limits) };
        write(&target, WRITE_BYTES as u64 - 1, b"x").unwrap();
        for number in 0..RANGES as u64 - 1 {
            write(&target, 2 * number, &[0]).unwrap();
        }
        let ranges = || ledger.chunks().ranges;
        assert_eq!(ranges(), RANGES);
        let refused = write(&target, 2 * RANGES as u64, b"x").unwrap_err();
        assert_eq!((refused.kind(), ranges()), (io::ErrorKind::PermissionDenied, RANGES));
        // A write that adds no range is accepted.
        write(&target, WRITE_BYTES as u64, b"x").unwrap();
        let begun = std::time::Instant::now();
        let mut bytes = vec![0; WRITE_BYTES];
        assert!(write(&target, 0, &bytes).is_err(), "the last byte is there");
        bytes[WRITE_BYTES - 1] = b'x';
        write(&target, 0, &bytes).unwrap();
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
        assert_eq!(ranges(), 1);
    }

    proptest! {
        #[test]
        fn a_piece_keeps_what_every_byte_of_it_keeps(
            bytes in proptest::collection::vec((0u8..3, 0u8..3, any::<bool>()), 0..40),
            at in 5u64..100,
            before in 0u64..5,
        ) {
            let (old, new): (Vec<u8>, Vec<u8>) = bytes.iter().map(|&(old, new, _)| (old, new)).unzip();
            let mut chunk = Chunk::of(0);
            for (place, _) in (at..).zip(&bytes).filter(|(_, (_, _, remembered))| *remembered) {
                chunk.note(place..place + 1);
            }
            if before > 0 {
                chunk.note(at - before..at);
            }
            let expected = bytes.iter().all(|&(old, new, remembered)| old == new || (old == 0 && !remembered));
            prop_assert_eq!(keeps(&old, &new, at, &chunk.written), expected);
        }

        #[test]
        fn ranges_are_what_was_noted(ranges in proptest::collection::vec((0u64..100, 1u64..20), 0..40)) {
            let mut chunk = Chunk::of(0);
            let (mut naive, mut count) = ([false; 128], 0);
            for (start, length) in ranges {
                count += chunk.note(start..start + length);
                naive[start as usize..(start + length) as usize].fill(true);
                prop_assert_eq!(count as usize, chunk.written.len());
            }
            prop_assert!(chunk.written.windows(2).all(|pair| pair[0].end < pair[1].start));
            for at in 0..120 {
                let remembered = !chunk.remembered(&(at..at + 1)).is_empty();
                prop_assert_eq!(remembered, naive[at as usize]);
            }
        }
    }
}
