//! The reading half of a connection. It reads headers and bodies through a small buffer, and
//! payloads directly into their own memory.

use crate::error::Error;
use crate::frame::{Checksum, FrameError, FrameLimits, HEADER_BYTES, Header, MAGIC};
use crate::payload::Payload;
use crate::stream::ReadHalf;
use bytes::Bytes;
use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};
use tokio::time::Instant;

/// Size of a read that does not go into a payload, in bytes. One such read holds a page of data and
/// its checksums. It usually does not fill the buffer, which shows without another system call that
/// nothing more has arrived. The buffer is on the stack: an idle connection has none.
const SMALL_READ: usize = 12 << 10;

/// The time of the last read with data.
#[derive(Debug)]
pub(crate) struct Heard {
    start: Instant,
    last_ms: AtomicU64,
}

impl Heard {
    pub fn new() -> Self {
        Self { start: Instant::now(), last_ms: AtomicU64::new(0) }
    }

    /// Sets the time to now.
    pub fn touch(&self) {
        self.last_ms.store(self.start.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    /// How long ago the last data arrived.
    pub fn silence(&self) -> Duration {
        self.start.elapsed().saturating_sub(Duration::from_millis(self.last_ms.load(Ordering::Relaxed)))
    }
}

pub(crate) struct Incoming {
    io: ReadHalf,
    /// Bytes that were read; those from `at` on are unused.
    held: Vec<u8>,
    at: usize,
    heard: Arc<Heard>,
    /// Bytes read directly into the memory of long messages so far.
    pub moved: Arc<AtomicU64>,
}

impl Incoming {
    pub fn new(io: ReadHalf, heard: Arc<Heard>) -> Self {
        Self { io, held: Vec::new(), at: 0, heard, moved: Arc::default() }
    }

    /// Reads more bytes. Returns 0 at the end of the stream.
    async fn more(&mut self) -> io::Result<usize> {
        // What was used goes, also when a message ends in the middle of what was read: small ones
        // that are cut so would fill the memory.
        self.held.drain(..std::mem::take(&mut self.at));
        let Self { io, held, .. } = self;
        let count = poll_fn(|context| {
            let mut space = [MaybeUninit::uninit(); SMALL_READ];
            let mut buffer = ReadBuf::uninit(&mut space);
            let polled = Pin::new(&mut *io).poll_read(context, &mut buffer);
            if polled.is_pending() && held.is_empty() {
                *held = Vec::new();
            }
            ready!(polled)?;
            held.extend_from_slice(buffer.filled());
            Poll::Ready(Ok::<_, io::Error>(buffer.filled().len()))
        })
        .await?;
        self.heard.touch();
        Ok(count)
    }

    /// Returns the next `count` bytes; None when the stream ends before the first of them. Returns
    /// at once with fewer bytes when they do not begin with `magic`: waiting for the rest would be
    /// of no use.
    pub async fn exactly(&mut self, count: usize, magic: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        while self.held.len() - self.at < count && begins(&self.held[self.at..], magic) {
            if self.more().await.map_err(|error| Error::from_io(&error, true))? == 0 {
                if self.held.len() == self.at {
                    return Ok(None);
                }
                return Err(cut_short());
            }
        }
        let count = count.min(self.held.len() - self.at);
        let bytes = self.held[self.at..self.at + count].to_vec();
        self.at += count;
        Ok(Some(bytes))
    }

    /// The header of the next frame. None when the stream ends between two frames.
    pub async fn header(&mut self, limits: FrameLimits) -> Result<Option<Header>, Error> {
        loop {
            let held = &self.held[self.at..];
            match Header::decode(held, limits) {
                Ok(header) => {
                    self.at += HEADER_BYTES;
                    return Ok(Some(header));
                }
                Err(FrameError::Short) if begins(held, MAGIC) => {}
                Err(FrameError::Short) => return Err(FrameError::Magic.into()),
                Err(error) => return Err(error.into()),
            }
            if self.more().await.map_err(|error| Error::from_io(&error, true))? == 0 {
                return if self.held.len() == self.at { Ok(None) } else { Err(cut_short()) };
            }
        }
    }

    /// Waits until this many bytes of the next data have arrived.
    pub async fn arrive(&mut self, count: usize) -> Result<(), Error> {
        while self.held.len() - self.at < count {
            if self.more().await.map_err(|error| Error::from_io(&error, true))? == 0 {
                return Err(cut_short());
            }
        }
        Ok(())
    }

    /// Reads the body and the payload that belong to a header.
    pub async fn content(&mut self, header: &Header) -> Result<(Bytes, Payload), Error> {
        let mut checksum = Checksum::default();
        let body_bytes = header.body_bytes as usize;
        let body = match self.held.get(self.at..self.at + body_bytes) {
            Some(held) => {
                let body = Bytes::copy_from_slice(held);
                self.at += body_bytes;
                checksum.update(&body);
                body
            }
            None => {
                let mut body = vec![0; body_bytes];
                self.fill(&mut body, &mut checksum).await?;
                body.into()
            }
        };
        let mut payload = Payload::new(header.payload_bytes as usize);
        self.fill(&mut payload, &mut checksum).await?;
        if checksum.value() != header.checksum {
            return Err(FrameError::Content.into());
        }
        Ok((body, payload))
    }

    /// Fills `into`, first with bytes already read, then by reads directly into it. Each piece is
    /// checksummed while it is in the processor's cache.
    async fn fill(&mut self, into: &mut [u8], checksum: &mut Checksum) -> Result<(), Error> {
        let held = (self.held.len() - self.at).min(into.len());
        into[..held].copy_from_slice(&self.held[self.at..self.at + held]);
        self.at += held;
        checksum.update(&into[..held]);
        let mut filled = held;
        while filled < into.len() {
            let count = self.io.read(&mut into[filled..]).await.map_err(|error| Error::from_io(&error, true))?;
            if count == 0 {
                return Err(cut_short());
            }
            self.heard.touch();
            checksum.update(&into[filled..filled + count]);
            filled += count;
            self.moved.fetch_add(count as u64, Ordering::Relaxed);
        }
        Ok(())
    }
}

fn begins(bytes: &[u8], magic: &[u8]) -> bool {
    bytes.iter().zip(magic).all(|(byte, expected)| byte == expected)
}

fn cut_short() -> Error {
    Error::lost("the connection ended in the middle of a message", true)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each read ends in the middle of one.
    #[tokio::test]
    async fn many_short_messages_take_little_memory() {
        const MESSAGE: usize = 100;
        let bytes: Vec<u8> = (0..10_000u32).flat_map(|number| number.to_le_bytes().repeat(MESSAGE / 4)).collect();
        let mut incoming = Incoming::new(Box::new(io::Cursor::new(bytes)), Arc::new(Heard::new()));
        for number in 0..10_000u32 {
            let message = incoming.exactly(MESSAGE, &[]).await.unwrap().unwrap();
            assert_eq!(message, number.to_le_bytes().repeat(MESSAGE / 4));
            assert!(incoming.held.len() < 2 * SMALL_READ, "{} in message {number}", incoming.held.len());
        }
        assert!(incoming.exactly(MESSAGE, &[]).await.unwrap().is_none());
    }
}
