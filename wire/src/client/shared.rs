//! What all clones of a client share, and streams keep open: the channels, and which one is used.

use super::channel::Channel;
use super::connection::Connection;
use crate::error::Error;
use crate::stream::Address;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// A call counts as this many bytes, in addition to its payload, when the client compares the load
/// of channels.
const CALL_BYTES: u64 = 1024;
/// A channel without a connection counts as if this many bytes were in flight on it, so that small
/// messages share one connection.
const CONNECTING_BYTES: u64 = 64 << 10;
/// With `fail_fast`, calls wait at most this long for another attempt to connect to a server that
/// was down.
const FAIL_FAST_TIMEOUT: Duration = Duration::from_millis(250);
/// A server counts as down for this long after a failed attempt to connect.
const DOWN_FOR: Duration = Duration::from_secs(10);

/// The channels to one server, and the work in flight on them.
pub(super) struct Shared {
    pub runtime: Handle,
    pub address: Address,
    pub fail_fast: bool,
    pub in_flight: Semaphore,
    pub channels: Vec<Arc<Channel>>,
    pub next_id: AtomicU64,
    pub requests: AtomicUsize,
    pub bytes: AtomicU64,
}

/// Counts one call as in flight until it is dropped.
pub(super) struct Counted<'a> {
    shared: &'a Shared,
    pub channel: &'a Arc<Channel>,
    bytes: u64,
}

impl<'a> Counted<'a> {
    pub fn new(shared: &'a Shared, bytes: u64) -> Self {
        let channel = shared.least_loaded();
        shared.requests.fetch_add(1, Ordering::Relaxed);
        shared.bytes.fetch_add(bytes, Ordering::Relaxed);
        channel.load.fetch_add(bytes + CALL_BYTES, Ordering::Relaxed);
        Self { shared, channel, bytes }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.shared.requests.fetch_sub(1, Ordering::Relaxed);
        self.shared.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        self.channel.load.fetch_sub(self.bytes + CALL_BYTES, Ordering::Relaxed);
    }
}

impl Shared {
    fn least_loaded(&self) -> &Arc<Channel> {
        let load = |channel: &&Arc<Channel>| {
            channel.load.load(Ordering::Relaxed) + if channel.is_connected() { 0 } else { CONNECTING_BYTES }
        };
        self.channels.iter().min_by_key(load).expect("at least one channel")
    }

    /// Why the server counts as down, if calls shall not wait long for another attempt.
    fn down(&self) -> Option<Error> {
        if !self.fail_fast || self.channels.iter().any(|channel| channel.is_connected()) {
            return None;
        }
        let newest = self.channels.iter().filter_map(|channel| channel.last_attempt()).max_by_key(|(when, _)| *when);
        let (when, why) = newest?;
        why.err().filter(|why| matches!(why, Error::Unavailable { .. }) && when.elapsed() < DOWN_FOR)
    }

    /// Returns a connection of this channel, or, if that fails, of any other.
    pub async fn connection(&self, channel: &Arc<Channel>) -> Result<Arc<Connection>, Error> {
        let making = channel.connection(&self.runtime);
        let made = match self.down() {
            Some(why) => {
                // The calling thread may not belong to the runtime, whose clock the timeout needs.
                let glance = {
                    let _runtime = self.runtime.enter();
                    timeout(FAIL_FAST_TIMEOUT, making)
                };
                glance.await.unwrap_or(Err(why))
            }
            None => making.await,
        };
        match made {
            Ok(connection) => Ok(connection),
            Err(error) => self.channels.iter().find_map(|other| other.current()).ok_or(error),
        }
    }
}
