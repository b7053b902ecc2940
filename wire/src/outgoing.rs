//! The writing half of a connection. Whoever has something to say writes it himself, in one
//! vectored write and without a copy. Small frames that find the half busy, and those of callers
//! that cannot wait, are queued and go out with the next write.
//!
//! The peer must never see half a frame followed by another one: who gives up in the middle of a
//! frame closes the connection.

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

/// A frame up to this length is queued rather than waiting.
const SMALL: usize = 4096;
/// No more than this is queued.
const QUEUE: usize = 64 << 10;
/// How long saying farewell may take.
const FAREWELL: Duration = Duration::from_secs(1);

pub(crate) struct Outgoing {
    writer: AsyncMutex<Writer>,
    queued: Mutex<Vec<u8>>,
    wake: Notify,
    is_closed: AtomicBool,
    closing: Notify,
    /// Bytes so far.
    pub moved: Arc<AtomicU64>,
}

pub(crate) struct Writer {
    /// None when the connection is over.
    io: Option<WriteHalf>,
    /// What was queued and is to be written before anything else, from `done` on.
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

    /// Ends the connection: who reads or writes on it is told.
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

    /// Holds everybody else up, for the first message.
    pub async fn hold(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().await
    }

    /// Queues a frame. False when the queue is full: the peer takes nothing.
    pub fn queue(&self, header: Header, body: &[u8]) -> bool {
        let queued = self.append(&header.with_content(body, &[]).encode(), body, &[]);
        if !queued {
            self.close();
        }
        queued
    }

    fn append(&self, head: &[u8], body: &[u8], parts: &[IoSlice<'_>]) -> bool {
        let mut queued = lock(&self.queued);
        if queued.len() > QUEUE {
            return false;
        }
        queued.extend_from_slice(head);
        queued.extend_from_slice(body);
        parts.iter().for_each(|part| queued.extend_from_slice(part));
        drop(queued);
        self.wake.notify_one();
        true
    }

    /// Writes a frame; the header's lengths and checksum are those of `body` and `parts`.
    ///
    /// # Errors
    /// `Unavailable`: where `sent` is false, the peer has no whole frame and never will.
    pub async fn write(&self, header: Header, body: &[u8], parts: &[IoSlice<'_>]) -> Result<(), Error> {
        if self.is_closed() {
            return Err(closed());
        }
        let head = header.encode();
        let mut writer = match self.writer.try_lock() {
            Ok(writer) => writer,
            Err(_) if header.content_bytes() <= SMALL as u64 && self.append(&head, body, parts) => return Ok(()),
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

    /// Writes what is queued whenever there is something. Ends with the connection.
    pub async fn flush_always(&self) -> Error {
        loop {
            self.wake.notified().await;
            let mut writer = self.writer.lock().await;
            if let Err(error) = self.write_all(&mut writer, &[], &[], &[]).await {
                return error;
            }
        }
    }

    /// Closes the stream, also while others still hold this.
    pub async fn finish(&self) {
        self.close();
        let io = self.writer.lock().await.io.take();
        if let Some(mut io) = io {
            let _ = tokio::time::timeout(FAREWELL, io.shutdown()).await;
        }
    }
}

impl Writer {
    /// Takes over what is queued.
    fn take(&mut self, queued: &Mutex<Vec<u8>>) {
        if self.done == self.pending.len() {
            self.done = 0;
            self.pending = std::mem::take(&mut lock(queued));
        } else {
            self.pending.append(&mut lock(queued));
        }
    }

    /// Writes bytes that are no frame.
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

const _: () = assert!(QUEUE > SMALL + HEADER_BYTES);
