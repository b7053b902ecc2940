//! The writing half of a connection. Each sender writes its own frame, in one vectored write and
//! without a copy. Small frames are queued when another sender is writing, and so are frames of
//! senders that must not wait; the next write sends them first.
//!
//! The peer must never see a part of a frame followed by another frame: a sender that gives up in
//! the middle of a frame closes the connection.

use crate::error::Error;
use crate::frame::{HEADER_BYTES, Header};
use crate::lock;
use crate::stream::WriteHalf;
use std::io::{self, IoSlice};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::sync::{Mutex as AsyncMutex, MutexGuard, Notify};

/// A frame up to this length, in bytes, is queued instead of waiting.
const MAX_QUEUED_FRAME_BYTES: usize = 4096;
/// Maximum number of queued bytes.
const MAX_QUEUED_BYTES: usize = 64 << 10;
/// Time limit for closing the stream properly.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

pub(crate) struct Outgoing {
    writer: AsyncMutex<Writer>,
    queued: Mutex<Vec<u8>>,
    wake: Notify,
    is_closed: AtomicBool,
    closing: Notify,
    /// Bytes written so far.
    pub moved: Arc<AtomicU64>,
}

pub(crate) struct Writer {
    /// None when the connection has ended.
    io: Option<WriteHalf>,
    /// Queued bytes that are written before anything else; those from `done` on are not written
    /// yet.
    pending: Vec<u8>,
    done: usize,
}

/// Closes the connection when it is dropped in the middle of a frame.
struct Midway<'a> {
    outgoing: &'a Outgoing,
    armed: bool,
}

impl Drop for Midway<'_> {
    fn drop(&mut self) {
        if self.armed {
            self.outgoing.close();
        }
    }
}

impl Outgoing {
    pub fn new(io: WriteHalf) -> Self {
        Self {
            writer: AsyncMutex::new(Writer { io: Some(io), pending: Vec::new(), done: 0 }),
            queued: Mutex::default(),
            wake: Notify::new(),
            is_closed: AtomicBool::new(false),
            closing: Notify::new(),
            moved: Arc::default(),
        }
    }

    /// Ends the connection: all tasks that read or write on it are notified.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.closing.notify_waiters();
    }

    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Returns when the connection is closed.
    pub async fn closed(&self) {
        loop {
            let mut closing = pin!(self.closing.notified());
            closing.as_mut().enable();
            if self.is_closed() {
                return;
            }
            closing.await;
        }
    }

    /// Makes all other senders wait until the first message is written.
    pub async fn hold(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().await
    }

    /// Queues a frame. When the queue is full because the peer reads nothing, it closes the
    /// connection and returns false.
    pub fn queue(&self, header: Header, body: &[u8]) -> bool {
        let queued = self.append(&header.with_content(body, &[]).encode(), body, &[]);
        if !queued {
            self.close();
        }
        queued
    }

    fn append(&self, head: &[u8], body: &[u8], parts: &[IoSlice<'_>]) -> bool {
        let mut queued = lock(&self.queued);
        if queued.len() > MAX_QUEUED_BYTES {
            return false;
        }
        queued.extend_from_slice(head);
        queued.extend_from_slice(body);
        parts.iter().for_each(|part| queued.extend_from_slice(part));
        drop(queued);
        self.wake.notify_one();
        true
    }

    /// Writes a frame. The header's lengths and checksum must be those of `body` and `parts`.
    ///
    /// # Errors
    /// `Unavailable`. When `sent` is false, the peer has not received the whole frame and never
    /// will.
    pub async fn write(&self, header: Header, body: &[u8], parts: &[IoSlice<'_>]) -> Result<(), Error> {
        if self.is_closed() {
            return Err(closed());
        }
        let head = header.encode();
        let mut writer = match self.writer.try_lock() {
            Ok(writer) => writer,
            Err(_) if header.content_bytes() <= MAX_QUEUED_FRAME_BYTES as u64 && self.append(&head, body, parts) => {
                return Ok(());
            }
            Err(_) => tokio::select! {
                biased;
                writer = self.writer.lock() => writer,
                () = self.closed() => return Err(closed()),
            },
        };
        let done = tokio::select! {
            biased;
            done = self.write_all(&mut writer, &head, body, parts) => done,
            () = self.closed() => return Err(closed()),
        };
        if done.is_err() {
            self.close();
        }
        done
    }

    async fn write_all(
        &self,
        writer: &mut Writer,
        head: &[u8],
        body: &[u8],
        parts: &[IoSlice<'_>],
    ) -> Result<(), Error> {
        writer.take(&self.queued);
        let Writer { io: Some(io), pending, done } = writer else { return Err(closed()) };
        let mut slices = Vec::with_capacity(3 + parts.len());
        slices.extend([IoSlice::new(&pending[*done..]), IoSlice::new(head), IoSlice::new(body)]);
        slices.extend(parts.iter().map(|part| IoSlice::new(part)));
        slices.retain(|slice| !slice.is_empty());
        let (mut rest, mut own) = (slices.as_mut_slice(), 0);
        let mut midway = Midway { outgoing: self, armed: false };
        while !rest.is_empty() {
            let count = match io.write_vectored(rest).await {
                Ok(0) => return Err(Error::lost("the peer takes no more", false)),
                Ok(count) => {
                    self.moved.fetch_add(count as u64, Ordering::Relaxed);
                    count
                }
                Err(error) => return Err(Error::from_io(&error, false)),
            };
            let queued = count.min(pending.len() - *done);
            *done += queued;
            own += count - queued;
            IoSlice::advance_slices(&mut rest, count);
            midway.armed = own > 0 && !rest.is_empty();
        }
        writer.io_flush().await.map_err(|error| Error::from_io(&error, own > 0))
    }

    /// Writes queued frames whenever there are any. Returns when the connection ends.
    pub async fn flush_always(&self) -> Error {
        loop {
            self.wake.notified().await;
            let mut writer = self.writer.lock().await;
            if let Err(error) = self.write_all(&mut writer, &[], &[], &[]).await {
                return error;
            }
        }
    }

    /// Closes the stream, even while others still hold a reference.
    pub async fn finish(&self) {
        self.close();
        let io = self.writer.lock().await.io.take();
        if let Some(mut io) = io {
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, io.shutdown()).await;
        }
    }
}

impl Writer {
    /// Moves the queued bytes into this writer.
    fn take(&mut self, queued: &Mutex<Vec<u8>>) {
        if self.done == self.pending.len() {
            self.done = 0;
            self.pending = std::mem::take(&mut lock(queued));
        } else {
            self.pending.append(&mut lock(queued));
        }
    }

    /// Writes bytes that are not a frame.
    pub async fn write_raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(io) = &mut self.io else { return Err(io::ErrorKind::NotConnected.into()) };
        io.write_all(bytes).await?;
        io.flush().await
    }

    async fn io_flush(&mut self) -> io::Result<()> {
        if self.done == self.pending.len() {
            self.pending = Vec::new();
            self.done = 0;
        }
        match &mut self.io {
            Some(io) => io.flush().await,
            None => Ok(()),
        }
    }
}

fn closed() -> Error {
    Error::lost("the connection is closed", false)
}

const _: () = assert!(MAX_QUEUED_BYTES > MAX_QUEUED_FRAME_BYTES + HEADER_BYTES);
