//! Which metadata servers a volume has, and which one has it open: what a server tells clients that
//! ask, or that ask the wrong one.

use super::{MetaServer, NOT_HOLDER};
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Mutex};
use volume::lock;
use wire::{Reply, Request, Service};

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

/// What a metadata server answers its clients while it does not have the volume open, and, when it
/// has, the one service for both.
#[derive(Default)]
pub struct Standby {
    known: Mutex<Whereabouts>,
    holds: Mutex<Option<Arc<MetaServer>>>,
}

impl Standby {
    /// A standby that knows this.
    pub fn new(known: Whereabouts) -> Arc<Self> {
        Arc::new(Self { known: Mutex::new(known), holds: Mutex::default() })
    }

    /// Sets what it tells clients.
    pub fn set(&self, known: Whereabouts) {
        *lock(&self.known) = known;
    }

    /// From now on, this process has the volume open; with None, it no longer has.
    pub fn hold(&self, server: Option<Arc<MetaServer>>) {
        *lock(&self.holds) = server;
    }

    /// The service that answers requests.
    pub fn service(self: &Arc<Self>) -> Arc<impl Service + use<>> {
        Arc::new(Shared(self.clone()))
    }
}

struct Shared(Arc<Standby>);

impl Service for Shared {
    async fn call(&self, request: Request) -> Reply {
        let server = lock(&self.0.holds).clone();
        match server {
            Some(server) => server.service().call(request).await,
            None => not_holder(&lock(&self.0.known)),
        }
    }
}
