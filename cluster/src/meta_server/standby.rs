//! What a process answers that is a metadata server of a volume, whether it has the volume open or
//! stands by.

use super::service::MetaServer;
use super::whereabouts::{Whereabouts, not_holder};
use std::sync::{Arc, Mutex};
use volume::lock;
use wire::{Reply, Request, Service};

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
