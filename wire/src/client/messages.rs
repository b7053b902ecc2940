//! The messages that a client gets from its server.

use crate::payload::Payload;
use bytes::Bytes;

/// An answer, or an item of a stream.
#[derive(Debug, Default)]
pub struct Response {
    /// The serialized part.
    pub body: Bytes,
    /// The raw bytes.
    pub payload: Payload,
}

/// A message that a server pushed.
#[derive(Debug)]
pub struct Push {
    /// The kind of message.
    pub method: u16,
    /// The serialized part.
    pub body: Bytes,
    /// The raw bytes.
    pub payload: Payload,
}
