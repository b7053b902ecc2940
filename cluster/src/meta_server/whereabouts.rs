//! Which metadata servers a volume has, and which one has it open: what a server tells clients that
//! ask, or that ask the wrong one.

use super::NOT_HOLDER;
use serde::{Deserialize, Serialize};
use wire::Reply;

/// The metadata servers of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Whereabouts {
    /// `host:port` of the server that has the volume open, as far as it is known.
    pub holder: Option<String>,
    /// `host:port` of all servers.
    pub servers: Vec<String>,
}

/// The answer of a server to the question which server has the volume open.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Holds {
    /// The number of its opening.
    pub opening: u64,
    /// `host:port` of all servers, as far as it knows them.
    pub servers: Vec<String>,
}

fn bytes<T: Serialize>(value: &T) -> Vec<u8> {
    postcard::to_stdvec(value).expect("texts can be written down")
}

/// The answer of a server that does not have the volume open: the client asks another one.
pub(super) fn not_holder(known: &Whereabouts) -> Reply {
    Reply::error(NOT_HOLDER, bytes(known))
}

/// The answer of the server that has the volume open, to [`WHO`](super::WHO).
pub(super) fn holds(opening: u64, servers: Vec<String>) -> Reply {
    Reply::ok(bytes(&Holds { opening, servers }))
}
