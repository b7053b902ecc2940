//! The metadata of a volume behind a server, and the way to it.

#[cfg(test)]
mod crowded;
mod grants;
mod link;
mod maintenance;
mod replay;
mod service;
#[cfg(test)]
mod simulated;

pub use link::{command, connect, set_patience};
pub use maintenance::keep;
pub use service::{Commands, MetaServer};

use serde::{Deserialize, Serialize};

/// In front of the arguments of every request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Ticket {
    /// The session; 0 before there is one.
    session: u64,
    /// What the server told whoever began it.
    secret: fs::Secret,
    /// The request, each of a session another number, so that one that is sent again is carried out once.
    request: u64,
    /// All requests below have been answered.
    answered: u64,
    /// It was sent before, and there was no answer.
    again: bool,
}

/// The status of an answer to a request in a session that the server does not know.
const NO_SESSION: u16 = 1;
/// That of one with an operation or a ticket that it does not understand.
const UNKNOWN: u16 = 2;
/// That of one that came too late: its answer is forgotten.
const TOO_LATE: u16 = 3;

/// The operation that carries out a command.
const COMMAND: u16 = 1000;

/// What the server sends unasked: numbers of files that others want to read.
const RECALL: u16 = 1;
