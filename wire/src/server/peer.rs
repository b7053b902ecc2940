//! A connected client as the service sees it.

use crate::error::Error;
use crate::frame::{Header, Kind, Limits};
use crate::hello::Role;
use crate::outgoing::Outgoing;
use bytes::Bytes;
use std::fmt;
use std::io::IoSlice;
use std::sync::Arc;

/// One connection of a client.
pub struct Peer {
    /// The connection: another number for each.
    pub id: u64,
    /// The client: the same for all its channels.
    pub client: u64,
    /// Where it comes from.
    pub address: String,
    /// The name in its certificate, with TLS.
    pub name: Option<String>,
    /// All names in it; None without TLS.
    pub names: Option<Vec<String>>,
    /// What it says that it is.
    pub role: Role,
    /// The version that is spoken.
    pub version: u16,
    /// The features that both sides have.
    pub features: u64,
    /// What it showed when it connected.
    pub credentials: Bytes,
    /// The longest messages that it takes.
    pub limits: Limits,
    pub(super) outgoing: Arc<Outgoing>,
}

impl Peer {
    /// Sends the client a message that has no answer. It waits while the client takes nothing;
    /// dropping it in the middle of the message closes the connection.
    ///
    /// # Errors
    /// `Unavailable` when the connection is over, `Refused` when the message is longer than the
    /// client takes.
    pub async fn push(&self, method: u16, body: &[u8], parts: &[IoSlice<'_>]) -> Result<(), Error> {
        let payload: usize = parts.iter().map(|part| part.len()).sum();
        let length = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
        let checked = self.limits.check(length(body.len()), length(payload));
        checked.map_err(|error| Error::Refused(error.to_string()))?;
        let header = Header { method, ..Header::new(Kind::OneWay, 0) }.with_content(body, parts);
        self.outgoing.write(header, body, parts).await
    }

    /// Whether the connection is there.
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
