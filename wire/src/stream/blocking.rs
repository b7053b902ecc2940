//! A TCP stream that blocks the calling thread, behind the interface of an asynchronous one, so
//! that the same code speaks the protocol on both. A future over it is never woken: it blocks
//! within its poll, and returns pending after a time limit.

use super::halves::{Halves, adjust};
use rustix::net::{RecvFlags, recv};
use std::future::Future;
use std::io::{self, IoSlice, Write};
use std::net::{Shutdown, TcpStream};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// A blocking TCP stream. Clones are the same stream.
#[derive(Clone, Debug)]
pub struct BlockingStream(Arc<Stream>);

#[derive(Debug)]
struct Stream {
    tcp: TcpStream,
    /// Time limit of one system call, in microseconds; 0 until it is set.
    timeout: AtomicU64,
    /// Data has arrived since the last poll of the future.
    has_read: AtomicBool,
}

impl BlockingStream {
    /// Takes over a connected stream.
    ///
    /// # Errors
    /// When it cannot be made to block.
    pub fn new(tcp: TcpStream) -> io::Result<Self> {
        tcp.set_nonblocking(false)?;
        adjust(&tcp, tcp.peer_addr());
        Ok(Self(Arc::new(Stream { tcp, timeout: AtomicU64::new(0), has_read: AtomicBool::new(false) })))
    }

    pub(crate) fn halves(&self) -> Halves {
        Halves { read: Box::new(self.clone()), write: Box::new(self.clone()) }
    }

    /// Runs a future that waits only for this stream; None when it is not ready by `until`. Calls
    /// `still` after each silence of `tick`, and whenever the stream accepts no data for that long.
    /// A value from `still` ends the wait.
    pub(crate) fn finish<T>(
        &self,
        until: Instant,
        tick: Duration,
        future: impl Future<Output = T>,
        mut still: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        let mut future = pin!(future);
        let mut context = Context::from_waker(Waker::noop());
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || self.wait_at_most(left.min(tick)).is_err() {
                return None;
            }
            self.0.has_read.store(false, Ordering::Relaxed);
            if let Poll::Ready(result) = future.as_mut().poll(&mut context) {
                return Some(result);
            }
            if !self.0.has_read.load(Ordering::Relaxed)
                && let Some(end) = still()
            {
                return Some(end);
            }
        }
    }

    fn wait_at_most(&self, timeout: Duration) -> io::Result<()> {
        let micros = u64::try_from(timeout.as_micros()).unwrap_or(u64::MAX).max(1);
        if self.0.timeout.load(Ordering::Relaxed) != micros {
            let timeout = Some(Duration::from_micros(micros));
            self.0.tcp.set_read_timeout(timeout)?;
            self.0.tcp.set_write_timeout(timeout)?;
            self.0.timeout.store(micros, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Converts the result of a system call with a time limit.
fn waited<T>(mut call: impl FnMut() -> io::Result<T>) -> Poll<io::Result<T>> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                return Poll::Pending;
            }
            result => return Poll::Ready(result),
        }
    }
}

impl AsyncRead for BlockingStream {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        // Only the first read of a poll blocks: TLS asks for more than it needs, and passes on what
        // it has when nothing more has arrived.
        let again = self.0.has_read.load(Ordering::Relaxed);
        let flags = if again { RecvFlags::DONTWAIT } else { RecvFlags::empty() };
        let into = buffer.initialize_unfilled();
        waited(|| recv(&self.0.tcp, &mut *into, flags).map_err(io::Error::from)).map_ok(|(count, _)| {
            self.0.has_read.store(true, Ordering::Relaxed);
            buffer.advance(count);
        })
    }
}

impl AsyncWrite for BlockingStream {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        waited(|| (&self.0.tcp).write(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        waited(|| (&self.0.tcp).write_vectored(parts))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.0.tcp.shutdown(Shutdown::Write))
    }
}
