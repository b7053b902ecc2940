//! Objects become bytes. A file that is being read is open: if it is replaced meanwhile, the reader
//! has the old one to its end.

use crate::buffers::{Buffers, PIECE};
use crate::failure::failed;
use crate::gateway::{Gateway, units};
use bytes::Bytes;
use fs::Time;
use futures::StreamExt;
use objects::Objects;
use objects::Opened;
use s3s::dto::{ETagCondition, StreamingBlob, Timestamp};
use s3s::{Body, S3Error, S3ErrorCode, S3Result, s3_error};
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinHandle;

/// Up to here an object is read where it is looked at, in bytes.
pub const AT_ONCE: u64 = 64 << 10;
/// Pieces that are read ahead of the client.
const AHEAD: usize = 2;
/// How many pieces threads read before the next one may be at hand. It is longer each time that one
/// is not: for an object on disks, the threads should not stop.
const SHORTEST_RUN: usize = 2;
const LONGEST_RUN: usize = 64;

/// The conditions of a read.
#[derive(Default)]
pub struct Conditions {
    /// `If-Match`.
    pub matches: Option<ETagCondition>,
    /// `If-None-Match`.
    pub differs: Option<ETagCondition>,
    /// `If-Modified-Since`.
    pub modified_since: Option<Timestamp>,
    /// `If-Unmodified-Since`.
    pub unmodified_since: Option<Timestamp>,
}

impl Conditions {
    /// Whether they hold, in the order of RFC 9110, section 13.2.2.
    ///
    /// # Errors
    /// `NotModified` and `PreconditionFailed`.
    pub fn check(&self, etag: &str, modified: Time) -> S3Result<()> {
        let is = |condition: &ETagCondition| match condition {
            ETagCondition::Any => true,
            ETagCondition::ETag(tag) => tag.value() == etag,
        };
        // Dates of HTTP have no fractions.
        let at = timestamp(Time { nanoseconds: 0, ..modified });
        match (&self.matches, &self.unmodified_since) {
            (Some(condition), _) if !is(condition) => return Err(s3_error!(PreconditionFailed)),
            (None, Some(since)) if at > *since => return Err(s3_error!(PreconditionFailed)),
            _ => {}
        }
        match (&self.differs, &self.modified_since) {
            (Some(condition), _) if is(condition) => Err(not_modified()),
            (None, Some(since)) if at <= *since => Err(not_modified()),
            _ => Ok(()),
        }
    }
}

fn not_modified() -> S3Error {
    let mut answer = S3Error::new(S3ErrorCode::NotModified);
    answer.set_status_code(hyper::StatusCode::NOT_MODIFIED);
    answer
}

/// The beginning of the year 1, and the end of the year 9999.
const FIRST_SECOND: i64 = -62_135_596_800;
const LAST_SECOND: i64 = 253_402_300_799;

/// A time as answers have it.
pub fn timestamp(time: Time) -> Timestamp {
    // A file can have any time; answers have years of four digits.
    let seconds = time.seconds.clamp(FIRST_SECOND, LAST_SECOND);
    let since = Duration::from_secs(seconds.unsigned_abs());
    let at = if seconds < 0 { UNIX_EPOCH.checked_sub(since) } else { UNIX_EPOCH.checked_add(since) };
    // They count forwards before 1970, too.
    let at = at.and_then(|at| at.checked_add(Duration::from_nanos(time.nanoseconds.into())));
    Timestamp::from(at.unwrap_or(UNIX_EPOCH))
}

/// Reads a range of a file, as soon as it can be.
fn read(opened: &Opened, buffers: &Arc<Buffers>, range: &Range<u64>) -> fs::Result<Bytes> {
    buffers.fill((range.end - range.start) as usize, |into| fill(opened, range.start, into))
}

fn fill(opened: &Opened, offset: u64, into: &mut [u8]) -> fs::Result<()> {
    match opened.fs.read(opened.ino, offset, into)? {
        length if length < into.len() => {
            Err(fs::Error::Unavailable("the file became shorter while it was read".into()))
        }
        _ => Ok(()),
    }
}

/// A range of a file, if it is in the page cache: no thread is needed that waits for disks.
fn at_hand(opened: &Opened, buffers: &Arc<Buffers>, range: &Range<u64>) -> Option<Bytes> {
    let fill = |into: &mut [u8]| match opened.fs.read_at_hand(opened.ino, range.start, into) {
        Some(length) if length == into.len() => Ok(()),
        _ => Err(()),
    };
    buffers.fill((range.end - range.start) as usize, fill).ok()
}

/// The bytes of an object that are asked for.
pub enum Content {
    /// These are all.
    Read(Bytes),
    /// They are read as the client takes them.
    Open(Opened),
}

/// A few bytes of an object, and the memory that they take.
struct Few {
    bytes: Vec<u8>,
    _memory: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Few {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Content {
    /// Reads a range of a file now if it is short: the thread that looked at the file needs no
    /// other one. `memory` is that of [`AT_ONCE`] bytes; what the range does not take is free then.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn new(opened: Opened, range: &Range<u64>, mut memory: OwnedSemaphorePermit) -> S3Result<Self> {
        let length = range.end - range.start;
        if length > AT_ONCE {
            return Ok(Self::Open(opened));
        }
        let mut bytes = vec![0; length as usize];
        drop(memory.split(memory.num_permits().saturating_sub(units(length) as usize)));
        fill(&opened, range.start, &mut bytes).map_err(|error| failed(&error))?;
        opened.close();
        Ok(Self::Read(Bytes::from_owner(Few { bytes, _memory: memory })))
    }
}

/// The pieces of an object that are sent next. What is not at hand is read by threads, ahead of the
/// client.
struct Pieces {
    opened: Arc<Opened>,
    buffers: Arc<Buffers>,
    /// What nobody reads yet.
    rest: Range<u64>,
    reads: VecDeque<JoinHandle<io::Result<Bytes>>>,
    /// How many pieces are left to threads before the next one may be at hand.
    by_threads: usize,
    /// How many pieces threads read when the next one is not at hand.
    run: usize,
}

impl Pieces {
    fn new(opened: Arc<Opened>, buffers: Arc<Buffers>, rest: Range<u64>) -> Self {
        Self { opened, buffers, rest, reads: VecDeque::new(), by_threads: 0, run: SHORTEST_RUN }
    }

    /// The next piece that nobody reads; empty at the end.
    fn piece(&self) -> Range<u64> {
        self.rest.start..self.rest.end.min(self.rest.start + PIECE)
    }

    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        loop {
            while self.reads.len() < AHEAD && self.by_threads > 0 && !self.rest.is_empty() {
                let (opened, buffers, piece) = (self.opened.clone(), self.buffers.clone(), self.piece());
                (self.rest.start, self.by_threads) = (piece.end, self.by_threads - 1);
                let read = move || read(&opened, &buffers, &piece).map_err(io::Error::other);
                self.reads.push_back(tokio::task::spawn_blocking(read));
            }
            if let Some(read) = self.reads.pop_front() {
                return Some(read.await.unwrap_or_else(|defect| Err(io::Error::other(defect))));
            }
            let piece = self.piece();
            if piece.is_empty() {
                return None;
            }
            if let Some(bytes) = at_hand(&self.opened, &self.buffers, &piece) {
                (self.rest.start, self.run) = (piece.end, SHORTEST_RUN);
                return Some(Ok(bytes));
            }
            (self.by_threads, self.run) = (self.run, LONGEST_RUN.min(self.run * 2));
        }
    }
}

impl Gateway {
    /// The bytes of a range of an open file, which is not empty unless it is read.
    ///
    /// # Errors
    /// When its first bytes cannot be read.
    pub async fn bytes(&self, content: Content, range: Range<u64>) -> S3Result<StreamingBlob> {
        let opened = match content {
            Content::Read(bytes) => return Ok(StreamingBlob::from(Body::from(bytes))),
            Content::Open(opened) => opened,
        };
        let length = range.end - range.start;
        // A buffer may be longer than the last piece.
        let held = if length <= PIECE / 2 { length } else { length.next_multiple_of(PIECE) };
        let memory = self.take(held.min(PIECE * (AHEAD as u64 + 1))).await?;
        let first = range.start..range.end.min(range.start + PIECE);
        let (opened, rest) = (Arc::new(opened), first.end..range.end);
        let (held, buffers) = (opened.clone(), self.buffers.clone());
        let read_first = move |_: &Objects| read(&held, &buffers, &first).map_err(|error| failed(&error));
        let bytes = self.beside(read_first).await?;
        let pieces = Pieces::new(opened, self.buffers.clone(), rest);
        let rest = futures::stream::unfold(pieces, async |mut pieces| Some((pieces.next().await?, pieces)));
        let all = futures::stream::once(std::future::ready(Ok(bytes))).chain(rest);
        Ok(StreamingBlob::wrap(all.map(move |piece| {
            // The memory is free when the stream is dropped.
            let _ = &memory;
            piece
        })))
    }
}
