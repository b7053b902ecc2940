//! Clients that stop: a body of which nothing comes, and an answer of which nothing is taken, end
//! their connection. What they hold in memory is for others then.

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// How long a client may send nothing in a body, or take nothing of an answer.
pub const SILENCE: Duration = Duration::from_secs(60);

/// What errors of clients that stop say.
pub const STOPPED: &str = "the client has stopped";

/// A clock that runs while nothing happens.
struct Clock {
    limit: Duration,
    running: Option<Pin<Box<Sleep>>>,
}

impl Clock {
    fn new(limit: Duration) -> Self {
        Self { limit, running: None }
    }

    /// Passes on what came, or an error when nothing has come for too long.
    fn watch<T>(&mut self, context: &mut Context<'_>, polled: Poll<T>) -> Poll<Result<T, io::Error>> {
        match polled {
            Poll::Ready(come) => {
                self.running = None;
                Poll::Ready(Ok(come))
            }
            Poll::Pending => {
                let limit = self.limit;
                let running = self.running.get_or_insert_with(|| Box::pin(sleep(limit)));
                ready!(running.as_mut().poll(context));
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, STOPPED)))
            }
        }
    }
}

/// A connection whose client must take what is written. It may send nothing for long: that is
/// how it waits for an answer.
pub struct Taken<S> {
    stream: S,
    clock: Clock,
}

impl<S> Taken<S> {
    /// A stream of which something must be taken within each `limit`.
    pub fn new(stream: S, limit: Duration) -> Self {
        Self { stream, clock: Clock::new(limit) }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Taken<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Taken<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.clock.watch(context, polled).map(Result::flatten)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_write_vectored(context, slices);
        this.clock.watch(context, polled).map(Result::flatten)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_flush(context);
        this.clock.watch(context, polled).map(Result::flatten)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_shutdown(context);
        this.clock.watch(context, polled).map(Result::flatten)
    }
}

/// A body of a request that must go on while it is waited for.
pub struct Heard<B> {
    body: B,
    clock: Clock,
}

impl<B> Heard<B> {
    /// By a body.
    pub fn new(body: B) -> Self {
        Self { body, clock: Clock::new(SILENCE) }
    }
}

impl<B> Body for Heard<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.body).poll_frame(context);
        match ready!(this.clock.watch(context, polled)) {
            Ok(frame) => Poll::Ready(frame.map(|frame| frame.map_err(io::Error::other))),
            Err(silent) => Poll::Ready(Some(Err(silent))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    /// Accepts this number of bytes.
    struct Client(usize);

    impl AsyncWrite for Client {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            let taken = bytes.len().min(self.0);
            self.0 -= taken;
            if taken == 0 { Poll::Pending } else { Poll::Ready(Ok(taken)) }
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    /// Sends nothing.
    struct Silent;

    impl Body for Silent {
        type Data = Bytes;
        type Error = io::Error;

        fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
            Poll::Pending
        }
    }

    #[test]
    fn a_client_that_stops_is_given_up() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let limit = Duration::from_millis(1);
            let mut answer = Taken::new(Client(4), limit);
            let mut write = async |bytes| poll_fn(|context| Pin::new(&mut answer).poll_write(context, bytes)).await;
            assert_eq!(write(b"0123456789").await.unwrap(), 4);
            assert_eq!(write(b"456789").await.unwrap_err().kind(), io::ErrorKind::TimedOut);
            let mut body = Heard { body: Silent, clock: Clock::new(limit) };
            let frame = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await;
            assert_eq!(frame.unwrap().unwrap_err().kind(), io::ErrorKind::TimedOut);
        });
    }
}
