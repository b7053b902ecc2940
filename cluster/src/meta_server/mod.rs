//! The metadata server of a volume, and the client's connection to it.

mod beside;
mod commands;
mod company;
#[cfg(test)]
mod crowded;
#[cfg(test)]
mod ending;
mod entrance;
mod grants;
mod heartbeat;
mod link;
mod list;
mod maintenance;
mod peers;
mod post;
mod seat;
mod servers;
mod service;
#[cfg(test)]
mod simulated;
mod standby;
#[cfg(test)]
mod switching;
mod trail;
mod volumes;
mod watch;
mod whereabouts;

pub use commands::Commands;
pub use company::{StandbyProgress, Standing};
pub use link::{command, connect, set_server_timeout};
pub use list::write_list;
pub use maintenance::keep;
pub use peers::join;
pub use post::{Host, Post, PostOptions, Standings};
pub use seat::Peer;
pub use service::MetaServer;
pub use standby::Standby;
pub use volumes::VolumesService;
pub use whereabouts::Whereabouts;

use plan::SessionId;
use serde::{Deserialize, Serialize};

/// The header of every request, in front of its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Ticket {
    /// The session; 0 before there is one.
    session: SessionId,
    /// The secret that the server gave the client when the session began.
    secret: session::caller::Secret,
    /// The number of the request, unique in its session. The server executes a repeated request
    /// only once.
    request: u64,
    /// The client has the answers of all requests with lower numbers.
    answered: u64,
    /// The client sent this request before and got no answer.
    again: bool,
}

/// Status of an answer: the server does not know the session.
const NO_SESSION: u16 = 1;
/// Status of an answer: the server does not understand the operation or the ticket.
const NOT_UNDERSTOOD: u16 = 2;
/// Status of an answer: the request came too late, and the server no longer has its answer.
const ANSWER_IS_GONE: u16 = 3;

/// Status of an answer: the server does not have the volume open. The body says who may have it.
const NOT_HOLDER: u16 = 4;

/// The operation that executes a command.
const COMMAND: u16 = 1000;
/// The operation that asks which server has the volume open; it has no ticket.
const WHO: u16 = 1001;

/// The server's push message: numbers of files that other clients want to read.
const RECALL: u16 = 1;
