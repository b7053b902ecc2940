//! A slow server: it delays both the operation and the answer.

use super::Network;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;
use wire::{Peer, Reply, Request, Service};

/// Slows down another service.
pub struct Slow<S> {
    pub inner: Arc<S>,
    pub network: Network,
    /// An operation that is not delayed.
    pub spared: Option<u16>,
}

impl<S> Slow<S> {
    /// Mostly almost nothing, rarely longer than the client waits.
    async fn pause(&self) {
        let pause = self.network.dice(|dice| match dice.u32(..100) {
            0..3 if !self.network.is_calm() => dice.u64(1000..30_000),
            3..12 => dice.u64(20..500),
            _ => dice.u64(..10),
        });
        sleep(Duration::from_millis(pause)).await;
    }
}

impl<S: Service> Service for Slow<S> {
    async fn call(&self, request: Request) -> Reply {
        if self.spared == Some(request.method) {
            return self.inner.call(request).await;
        }
        self.pause().await;
        let reply = self.inner.call(request).await;
        self.pause().await;
        reply
    }

    fn reply_bytes(&self, request: &Request) -> u64 {
        self.inner.reply_bytes(request)
    }

    fn connected(&self, peer: &Arc<Peer>) -> Result<(), String> {
        self.inner.connected(peer)
    }

    fn disconnected(&self, peer: &Arc<Peer>) {
        self.inner.disconnected(peer);
    }
}
