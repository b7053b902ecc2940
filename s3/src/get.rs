//! Objects become bytes. A file that is being read is open: if it is replaced meanwhile, the reader
//! has the old one to its end.

use crate::buffers::{Buffers, PIECE};
use crate::failure::failed;
use crate::gateway::Gateway;
use bytes::Bytes;
use fs::Time;
use futures::StreamExt;
use objects::Objects;
use objects::Opened;
use s3s::dto::{ETagCondition, StreamingBlob, Timestamp};
use s3s::{Body, S3Error, S3ErrorCode, S3Result, s3_error};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

/// Pieces that are read ahead of the client.
const AHEAD: usize = 2;

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

fn read(opened: &Opened, buffers: &Arc<Buffers>, range: &Range<u64>) -> fs::Result<Bytes> {
    buffers.fill((range.end - range.start) as usize, |into| {
        let length = opened.fs.read(opened.ino, range.start, into)?;
        if length < into.len() {
            return Err(fs::Error::Unavailable("the file became shorter while it was read".into()));
        }
        Ok(())
    })
}

impl Gateway {
    /// The bytes of a range of an open file.
    ///
    /// # Errors
    /// When its first bytes cannot be read.
    pub async fn bytes(&self, opened: Opened, range: Range<u64>) -> S3Result<StreamingBlob> {
        if range.is_empty() {
            return Ok(StreamingBlob::from(Body::empty()));
        }
        let length = range.end - range.start;
        // A buffer may be longer than the last piece.
        let held = if length <= PIECE / 2 { length } else { length.next_multiple_of(PIECE) };
        let memory = self.take(held.min(PIECE * (AHEAD as u64 + 1))).await?;
        let first = range.start..range.end.min(range.start + PIECE);
        let (opened, asked) = (Arc::new(opened), first.clone());
        let (held, buffers) = (opened.clone(), self.buffers.clone());
        let read_first = move |_: &Objects| read(&held, &buffers, &asked).map_err(|error| failed(&error));
        let bytes = self.beside(read_first).await?;
        let buffers = self.buffers.clone();
        let pieces = (first.end..range.end).step_by(PIECE as usize).map(move |start| {
            let piece = start..range.end.min(start + PIECE);
            let (held, buffers) = (opened.clone(), buffers.clone());
            tokio::task::spawn_blocking(move || read(&held, &buffers, &piece).map_err(std::io::Error::other))
        });
        let rest = futures::stream::iter(pieces)
            .buffered(AHEAD)
            .map(|piece| piece.unwrap_or_else(|defect| Err(std::io::Error::other(defect))));
        let all = futures::stream::once(std::future::ready(Ok(bytes))).chain(rest);
        Ok(StreamingBlob::wrap(all.map(move |piece| {
            // The memory is free when the stream is dropped.
            let _ = &memory;
            piece
        })))
    }
}
