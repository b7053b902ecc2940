//! What a service is asked and what it answers.

use super::Peer;
use crate::error::Error;
use crate::frame::{Header, Kind};
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
    /// Who asks.
    pub peer: Arc<Peer>,
    /// For what.
    pub method: u16,
    /// The part for the service's serializer.
    pub body: Bytes,
    /// The part that is bytes.
    pub payload: Payload,
    /// When nobody waits any more.
    pub deadline: Instant,
    /// Whether the reply goes nowhere.
    pub one_way: bool,
    /// Where items go, if a stream was asked for. The reply is then its end.
    pub items: Option<ItemSender>,
}

/// The answer to a request.
#[derive(Debug, Default)]
pub struct Reply {
    /// 0, or what went wrong.
    pub status: u16,
    /// The part that the service's serializer made.
    pub body: Vec<u8>,
    /// The part that is bytes: pieces one behind the other, none of them copied. A `Payload`
    /// becomes one by `Bytes::from`.
    pub payload: Vec<Bytes>,
}

impl Reply {
    /// A success.
    pub fn ok(body: Vec<u8>) -> Self {
        Self { status: 0, body, payload: Vec::new() }
    }

    /// A failure, by the service's number of it, which is neither 0 nor above 0xFFEF.
    pub fn error(status: u16, body: Vec<u8>) -> Self {
        Self { status, body, payload: Vec::new() }
    }

    /// The same with a payload.
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
    /// Sends an item as soon as the client has room for it.
    ///
    /// # Errors
    /// `Unavailable` when the connection is over, `Refused` when the item is longer than the client
    /// takes.
    pub async fn send(&self, body: &[u8], payload: &[Bytes]) -> Result<(), Error> {
        let lengths = payload.iter().map(Bytes::len).sum();
        let length = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
        let checked = self.peer.limits.check(length(body.len()), length(lengths));
        checked.map_err(|error| Error::Refused(error.to_string()))?;
        let credit = self.credits.acquire().await.map_err(|_| Error::lost("the connection is over", true))?;
        credit.forget();
        let parts: Vec<_> = payload.iter().map(|part| IoSlice::new(part)).collect();
        let header = Header::new(Kind::Item, self.id).with_content(body, &parts);
        self.peer.outgoing.write(header, body, &parts).await
    }
}

impl fmt::Debug for ItemSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ItemSender({})", self.id)
    }
}
