//! Requests to a service, and its replies.

use super::Peer;
use crate::error::Error;
use crate::frame::{FrameKind, Header};
use crate::payload::Payload;
use bytes::Bytes;
use std::fmt;
use std::io::IoSlice;
use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// A request of a client.
#[derive(Debug)]
pub struct Request {
    /// The client that sent it.
    pub peer: Arc<Peer>,
    /// The requested method.
    pub method: u16,
    /// The serialized part.
    pub body: Bytes,
    /// The raw bytes.
    pub payload: Payload,
    /// When the client stops waiting.
    pub deadline: Instant,
    /// Whether the client expects no reply.
    pub one_way: bool,
    /// Sends items, if the client requested a stream. The reply is then the end of the stream.
    pub items: Option<ItemSender>,
}

/// The answer to a request.
#[derive(Debug, Default)]
pub struct Reply {
    /// 0, or an error number.
    pub status: u16,
    /// The serialized part.
    pub body: Vec<u8>,
    /// The raw bytes: the pieces are sent one after the other without a copy. Convert a `Payload`
    /// with `Bytes::from`.
    pub payload: Vec<Bytes>,
}

impl Reply {
    /// A successful reply.
    pub fn ok(body: Vec<u8>) -> Self {
        Self { status: 0, body, payload: Vec::new() }
    }

    /// A failure with the service's error number, which is neither 0 nor above 0xFFEF.
    pub fn error(status: u16, body: Vec<u8>) -> Self {
        Self { status, body, payload: Vec::new() }
    }

    /// Adds a payload.
    #[must_use]
    pub fn with_payload(mut self, payload: impl Into<Bytes>) -> Self {
        self.payload.push(payload.into());
        self
    }
}

/// Sends the items of a stream.
pub struct ItemSender {
    pub(super) peer: Arc<Peer>,
    pub(super) id: u64,
    pub(super) credits: Arc<Semaphore>,
}

impl ItemSender {
    /// Sends an item as soon as the client accepts one more.
    ///
    /// # Errors
    /// `Unavailable` when the connection has ended, `Refused` when the item is longer than the
    /// client accepts.
    pub async fn send(&self, body: &[u8], payload: &[Bytes]) -> Result<(), Error> {
        let lengths = payload.iter().map(Bytes::len).sum();
        let length = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
        let checked = self.peer.limits.check(length(body.len()), length(lengths));
        checked.map_err(|error| Error::Refused(error.to_string()))?;
        let credit = self.credits.acquire().await.map_err(|_| Error::lost("the connection is over", true))?;
        credit.forget();
        let parts: Vec<_> = payload.iter().map(|part| IoSlice::new(part)).collect();
        let header = Header::new(FrameKind::Item, self.id).with_content(body, &parts);
        self.peer.outgoing.write(header, body, &parts).await
    }
}

impl fmt::Debug for ItemSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ItemSender({})", self.id)
    }
}
