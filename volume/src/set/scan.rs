//! Finds stripes without metadata.

use crate::format::{CHUNK_HEADER_BYTES, ChunkHeader, FormatError, RECORD_ALIGNMENT, StripeHeader};
use crate::target::{ReadAt, Target, TargetFile};
use rustix::io::Errno;
use std::io;

/// Bytes scanned at a time, and how far a record header may extend beyond them.
const WINDOW_BYTES: usize = 1 << 20;
const OVERLAP_BYTES: usize = 256 << 10;
/// The least that is left out where a read fails.
const PAGE_BYTES: u64 = 4096;
/// After this number of failed pages in a row, larger and larger ranges are left out, up to a
/// window.
const FAILED_PAGES: u32 = 16;
/// After this number of failures in a row the scan gives up: the target is dead.
const MAX_FAILURES: u32 = 64;

/// The headers found in a chunk.
#[derive(Clone, Debug)]
pub struct Scanned {
    /// Its header, unless it is damaged.
    pub header: Option<ChunkHeader>,
    /// The sound record headers in it, in order.
    pub records: Vec<StripeHeader>,
}

/// Whether a read failed because the medium is damaged there: what lies elsewhere may be readable.
pub(super) fn is_damage(why: &io::Error) -> bool {
    why.raw_os_error() == Some(Errno::IO.raw_os_error())
}

/// Scans a chunk without metadata: finds all sound record headers and skips everything else, pages
/// that cannot be read, too.
///
/// # Errors
/// If the chunk cannot be read.
pub fn scan(target: &dyn Target, file: TargetFile) -> io::Result<Scanned> {
    let mut first = vec![0; CHUNK_HEADER_BYTES];
    let header = match target.read_at(file, 0, &mut first) {
        Ok(length) => ChunkHeader::decode(&first[..length]).ok(),
        Err(why) if is_damage(&why) => None,
        Err(why) => return Err(why),
    };
    // Data may look like a record: a chunk of another volume may be stored as a file.
    let own = |found: &StripeHeader, at: u64| {
        let named = match file {
            TargetFile::Chunk { set, position } | TargetFile::NewChunk { set, position } => (set, position),
            _ => (found.set, found.position),
        };
        u64::from(found.record.0) == at
            && (found.set, found.position) == named
            && header.as_ref().is_none_or(|header| header.volume == found.volume)
    };
    let (mut records, mut at) = (Vec::new(), CHUNK_HEADER_BYTES as u64);
    let mut windows = Windows { target, file, bad_until: 0, failures: 0, bytes: vec![0; WINDOW_BYTES + OVERLAP_BYTES] };
    loop {
        let (begin, length) = windows.read(at)?;
        if length == 0 {
            return Ok(Scanned { header, records });
        }
        at = begin;
        let last = length.min(WINDOW_BYTES) as u64;
        while at < begin + last {
            let found = StripeHeader::decode(&windows.bytes[(at - begin) as usize..length]);
            // A window that ends before damage ends anywhere.
            let found = match found {
                Err(FormatError::Short { need, .. }) if windows.bad_until > at => windows.header(at, need),
                found => found.ok(),
            };
            at += match found {
                Some(found) if own(&found, at) => {
                    let bytes = StripeHeader::record_bytes(found.block_bytes as usize) as u64;
                    records.push(found);
                    bytes
                }
                _ => RECORD_ALIGNMENT as u64,
            };
        }
    }
}

/// Reads a chunk window by window, and goes on behind what cannot be read.
struct Windows<'a> {
    target: &'a dyn Target,
    file: TargetFile,
    /// Something before this offset cannot be read; 0 where nothing is known of it.
    bad_until: u64,
    /// Failures since the last success.
    failures: u32,
    bytes: Vec<u8>,
}

impl Windows<'_> {
    /// Reads what there is at `at`, or else behind the damage there. Returns where it begins and
    /// how long it is; the length is 0 at the end of the chunk.
    fn read(&mut self, mut at: u64) -> io::Result<(u64, usize)> {
        loop {
            let whole = at + self.bytes.len() as u64;
            let end = if self.bad_until > at { half(at, self.bad_until) } else { whole };
            match self.target.read_at(self.file, at, &mut self.bytes[..(end - at) as usize]) {
                Ok(length) => {
                    self.failures = 0;
                    return Ok((at, length));
                }
                Err(why) if is_damage(&why) && self.failures < MAX_FAILURES => {
                    if end > next_page(at) {
                        self.bad_until = end;
                        continue;
                    }
                    self.failures += 1;
                    let doubled = PAGE_BYTES << self.failures.saturating_sub(FAILED_PAGES).min(8);
                    at = next_page(at) + (doubled - PAGE_BYTES);
                    // Behind it, too, a page is tried first.
                    self.bad_until = next_page(at);
                }
                Err(why) => return Err(why),
            }
        }
    }

    /// The record header of `need` bytes at `at`.
    fn header(&self, at: u64, need: usize) -> Option<StripeHeader> {
        let mut bytes = vec![0; need];
        let length = self.target.read_at(self.file, at, &mut bytes).ok()?;
        match StripeHeader::decode(&bytes[..length]) {
            Err(FormatError::Short { need: all, .. }) if all > need => self.header(at, all),
            found => found.ok(),
        }
    }
}

/// The middle of a range, at the beginning of a page.
fn half(from: u64, until: u64) -> u64 {
    next_page(from).max((from + until) / 2 / PAGE_BYTES * PAGE_BYTES)
}

fn next_page(at: u64) -> u64 {
    (at / PAGE_BYTES + 1) * PAGE_BYTES
}
