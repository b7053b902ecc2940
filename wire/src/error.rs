//! Errors of a call, grouped by what the caller can do about them.

use crate::frame::FrameError;
use crate::hello::HelloError;
use bytes::Bytes;
use std::{fmt, io};

/// Why a call has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// There is no connection: try again, or use another server.
    Unavailable {
        /// The cause.
        why: String,
        /// Whether the request may have been sent, and so executed. False means that it was not
        /// executed.
        sent: bool,
    },
    /// No answer arrived in time. The request may have been executed.
    Deadline,
    /// One side does not accept the other, or a message: versions, certificates, credentials,
    /// sizes. Another attempt fails in the same way.
    Refused(String),
    /// The service's own error.
    Remote {
        /// The service's error number; never 0.
        status: u16,
        /// The service's description of the error.
        body: Bytes,
    },
    /// The other side violated the protocol, or bytes changed in transit. The connection is closed;
    /// the request may have been executed.
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
    /// A connection that was lost or could not be opened.
    pub(crate) fn lost(why: impl fmt::Display, sent: bool) -> Self {
        Self::Unavailable { why: why.to_string(), sent }
    }

    /// Converts an I/O error. An error that TLS found is a refusal, because another attempt fails
    /// in the same way.
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
