//! What lies between a client and the server: whatever carries requests, answers and recalls. A
//! transport implements [`Call`] at the client's end. At the server's it gives each request to
//! [`Sessions::answer_request`](crate::server::Sessions::answer_request), with a [`Recall`] that
//! reaches the client.

use crate::Question;
use plan::SetId;
use std::sync::Arc;

/// Sends a request and waits for its answer.
pub trait Call: Send + Sync {
    /// Sends an operation's number and its encoded arguments; returns the encoded result.
    ///
    /// # Errors
    /// Returns an error when no answer arrives, or one that cannot be used.
    fn call(&self, operation: u16, arguments: &[u8]) -> meta::Result<Vec<u8>>;
}

/// Sends questions to a client. An empty list notifies it that there are other clients.
pub type Recall = Arc<dyn Fn(&[Question]) + Send + Sync>;

/// The answer to a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// The encoded result.
    Done(Vec<u8>),
    /// There is no such session: the client must reclaim it first.
    NoSession,
    /// There is no such operation.
    Unknown,
}

/// A permission that an answer grants to a client. The stores may demand proof of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Grant {
    /// The chunk set.
    pub set: SetId,
    /// Appending is allowed, not only reading.
    pub write: bool,
}

/// The identity of a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Request {
    /// Its number in its session; 0 for a request that is not repeated.
    pub number: u64,
    /// All requests with lower numbers were answered.
    pub answered: u64,
    /// The request may have been carried out before the server was killed; then it is not carried
    /// out twice.
    pub again: bool,
}
