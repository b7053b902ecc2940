//! A connected client, as the service sees it.

use crate::error::Error;
use crate::frame::{FrameKind, FrameLimits, Header};
use crate::hello::Role;
use crate::outgoing::Outgoing;
use bytes::Bytes;
use std::fmt;
use std::io::IoSlice;
use std::sync::Arc;

/// One connection of a client.
pub struct Peer {
    /// The number of the connection, unique in this server.
    pub id: u64,
    /// The number of the client, which all its channels share.
    pub client: u64,
    /// The address that the connection comes from.
    pub address: String,
    /// The first name in its certificate; None without TLS.
    pub name: Option<String>,
    /// All names in the certificate; None without TLS.
    pub names: Option<Vec<String>>,
    /// The role that the client claims.
    pub role: Role,
    /// The protocol version of the connection.
    pub version: u16,
    /// The features that both sides have.
    pub features: u64,
    /// The credentials that the client sent when it connected.
    pub credentials: Bytes,
    /// The longest messages that the client accepts.
    pub limits: FrameLimits,
    pub(super) outgoing: Arc<Outgoing>,
}

impl Peer {
    /// Sends the client a message without an answer. It waits while the client reads nothing.
    /// Dropping it in the middle of the message closes the connection.
    ///
    /// # Errors
    /// `Unavailable` when the connection has ended, `Refused` when the message is longer than the
    /// client accepts.
    pub async fn push(&self, method: u16, body: &[u8], parts: &[IoSlice<'_>]) -> Result<(), Error> {
        let payload: usize = parts.iter().map(|part| part.len()).sum();
        let length = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
        let checked = self.limits.check(length(body.len()), length(payload));
        checked.map_err(|error| Error::Refused(error.to_string()))?;
        let header = Header { method, ..Header::new(FrameKind::OneWay, 0) }.with_content(body, parts);
        self.outgoing.write(header, body, parts).await
    }

    /// Whether the connection is open.
    pub fn is_connected(&self) -> bool {
        !self.outgoing.is_closed()
    }

    /// Closes the connection.
    pub fn close(&self) {
        self.outgoing.close();
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Peer({} {:?})", self.address, self.name)
    }
}
