//! The client's end of a stream of items.

use super::connection::{Arrival, Connection, Waiter};
use super::messages::Response;
use super::shared::Shared;
use crate::error::Error;
use crate::frame::{FrameKind, Header};
use std::fmt;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

/// The items of a stream, in order. Dropping this tells the server to stop.
pub struct Items {
    /// Keeps the connections open.
    shared: Arc<Shared>,
    connection: Arc<Connection>,
    id: u64,
    arrivals: mpsc::Receiver<Arrival>,
    window: u32,
    /// Items that the caller took and the server was not told of yet.
    taken: u32,
    until: Instant,
    end: Option<Response>,
    over: bool,
}

impl Items {
    pub(super) fn new(
        shared: Arc<Shared>,
        connection: Arc<Connection>,
        id: u64,
        window: u32,
        until: Instant,
    ) -> Result<Self, Error> {
        // One more place, for the end of the stream.
        let (sender, arrivals) = mpsc::channel(window as usize + 1);
        connection.expect(id, Waiter::Stream(sender))?;
        Ok(Self { shared, connection, id, arrivals, window, taken: 0, until, end: None, over: false })
    }

    /// The next item; None after the last.
    ///
    /// # Errors
    /// The service's own error, the loss of the connection, or the stream's deadline. No items
    /// follow an error.
    pub async fn next(&mut self) -> Result<Option<Response>, Error> {
        if self.over {
            return Ok(None);
        }
        let arrival = match timeout_at(self.until, self.arrivals.recv()).await {
            Ok(Some(arrival)) => arrival,
            Ok(None) => Arrival::Failed(Error::lost("the connection was lost", true)),
            Err(_) => Arrival::Failed(Error::Deadline),
        };
        match arrival {
            Arrival::Item(item) => {
                self.taken += 1;
                // Report them once half of the window is used: the server then need not stop, and
                // few frames are sent.
                if self.taken >= self.window.div_ceil(2) {
                    let credit = Header { count: self.taken, ..Header::new(FrameKind::Credit, self.id) };
                    self.taken = 0;
                    self.connection.outgoing.queue(credit, &[]);
                }
                Ok(Some(item))
            }
            Arrival::End(end) => {
                self.over = true;
                self.end = Some(end);
                Ok(None)
            }
            Arrival::Failed(error) => {
                self.over = true;
                Err(error)
            }
        }
    }

    /// The service's final reply, after `next` has returned None.
    pub fn take_end(&mut self) -> Option<Response> {
        self.end.take()
    }
}

impl Drop for Items {
    fn drop(&mut self) {
        self.connection.forget(self.id, true);
    }
}

impl fmt::Debug for Items {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Items({})", self.shared.address.as_str())
    }
}
