//! What can go wrong in a call, by what the caller can do about it.

use crate::frame::FrameError;
use crate::hello::HelloError;
use bytes::Bytes;
use std::{fmt, io};

/// Why a call has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// There is no connection: try again, or another server.
    Unavailable {
        /// What happened.
        why: String,
        /// Whether the request left, so that it may have happened. Where this is false it has not.
        sent: bool,
    },
    /// No answer in time. The request may have happened.
    Deadline,
    /// One side does not accept the other, or the message: versions, certificates, credentials,
    /// sizes. Trying again is of no use.
    Refused(String),
    /// The service's own error.
    Remote {
        /// Its number; never 0.
        status: u16,
        /// What the service says.
        body: Bytes,
    },
    /// The other side broke the protocol, or bytes changed on their way. The connection is closed;
    /// the request may have happened.
    Protocol(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unavailable { why, .. } => write!(f, "unavailable: {why}"),
            Self::Deadline => f.write_str("no answer in time"),
            Self::Refused(why) => write!(f, "refused: {why}"),
            Self::Remote { status, body } => write!(f, "error {status}: {}", String::from_utf8_lossy(body)),
            Self::Protocol(what) => write!(f, "protocol: {what}"),
        }
    }
}

impl std::error::Error for Error {}

impl Error {
    /// A connection that was lost or not made.
    pub(crate) fn lost(why: impl fmt::Display, sent: bool) -> Self {
        Self::Unavailable { why: why.to_string(), sent }
    }

    /// What an I/O error means. What TLS found is a refusal, since it stays the same.
    pub(crate) fn from_io(error: &io::Error, sent: bool) -> Self {
        match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            Some(tls) => Self::Refused(format!("TLS: {tls}")),
            None => Self::lost(error, sent),
        }
    }
}

impl From<FrameError> for Error {
    fn from(error: FrameError) -> Self {
        Self::Protocol(error.to_string())
    }
}

impl From<HelloError> for Error {
    fn from(error: HelloError) -> Self {
        match error {
            HelloError::Versions { .. } => Self::Refused(error.to_string()),
            _ => Self::Protocol(error.to_string()),
        }
    }
}
