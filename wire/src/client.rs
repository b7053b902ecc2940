//! The client's side: calls, one-way messages and streams to one server, over several connections
//! that are opened on demand.

mod channel;
mod connection;
mod direct;
mod directs;
mod introduction;
mod items;
mod messages;
mod options;
mod shared;

pub use items::Items;
pub use messages::{Push, Response};
pub use options::{ClientOptions, OnPush};

use crate::error::Error;
use crate::frame::{FrameKind, FrameLimits, Header};
use crate::hello::TEXT_BYTES;
use crate::stream::Address;
use crate::waiting::wait_until;
use channel::Channel;
use connection::{Waiter, Waiting};
use direct::MAX_DIRECT_BYTES;
use shared::{Counted, Shared};
use std::fmt;
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{Instant, timeout_at};

/// The work in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Calls and streams without an answer, including those that wait for a connection.
    pub requests: usize,
    /// The bytes of their payloads.
    pub bytes: u64,
}

/// A client of one server. Clones share its connections, which close when the last clone is
/// dropped.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

impl Client {
    /// A client of the server at this address. The first calls open the connections.
    ///
    /// # Panics
    /// When the options have no channel, or credentials longer than 4 KiB.
    pub fn new(runtime: Handle, address: impl Into<Address>, options: ClientOptions) -> Self {
        assert!(options.channels > 0, "at least one channel");
        assert!(options.credentials.len() <= TEXT_BYTES, "credentials of at most {TEXT_BYTES} bytes");
        let (address, options) = (address.into(), Arc::new(options));
        let client = fastrand::u64(1..);
        let channel = |_| Arc::new(Channel::new(address.clone(), options.clone(), client));
        let channels = (0..options.channels).map(channel).collect();
        Self {
            shared: Arc::new(Shared {
                runtime,
                in_flight: Semaphore::new(options.in_flight),
                fail_fast: options.fail_fast,
                channels,
                address,
                next_id: AtomicU64::new(1),
                requests: AtomicUsize::new(0),
                bytes: AtomicU64::new(0),
            }),
        }
    }

    /// Sends a request and waits up to `deadline` from now for its answer. The payload consists of
    /// `parts`, concatenated and not copied. Dropping the future earlier tells the server, and the
    /// answer is ignored.
    ///
    /// # Errors
    /// See `Error`.
    pub async fn call(
        &self,
        method: u16,
        body: &[u8],
        parts: &[IoSlice<'_>],
        deadline: Duration,
    ) -> Result<Response, Error> {
        let until = Instant::now() + deadline;
        timeout_at(until, self.exchange(method, body, parts, until)).await.unwrap_or(Err(Error::Deadline))
    }

    /// Sends a request and waits for its answer.
    async fn exchange(
        &self,
        method: u16,
        body: &[u8],
        parts: &[IoSlice<'_>],
        until: Instant,
    ) -> Result<Response, Error> {
        let bytes = parts.iter().map(|part| part.len() as u64).sum();
        let _space = self.shared.in_flight.acquire().await;
        let counted = Counted::new(&self.shared, bytes);
        let connection = self.shared.connection(counted.channel).await?;
        let (sender, mut answer) = oneshot::channel();
        let mut header = self.header(connection.limits, FrameKind::Request, method, bytes, body, parts)?;
        let mut waiting = Waiting::new(&connection, header.id, Waiter::Call(sender))?;
        header.deadline_ms = milliseconds(until);
        tokio::select! {
            biased;
            written = connection.outgoing.write(header, body, parts) => written?,
            lost = &mut answer => return waiting.done(lost),
        }
        waiting.written = true;
        let answer = answer.await;
        waiting.done(answer)
    }

    /// As `call`, for a thread that does not belong to the runtime. The calling thread writes the
    /// request, and sleeps until the answer arrives.
    ///
    /// # Errors
    /// See `Error`.
    ///
    /// # Panics
    /// In a task of the runtime.
    pub fn call_blocking(
        &self,
        method: u16,
        body: &[u8],
        parts: &[IoSlice<'_>],
        deadline: Duration,
    ) -> Result<Response, Error> {
        // This panics in a task of the runtime, where blocking could stop the thread that must
        // process the answer.
        self.shared.runtime.block_on(std::future::ready(()));
        let until = Instant::now() + deadline;
        let waited = || wait_until(until.into_std(), self.exchange(method, body, parts, until));
        self.call_directly(method, body, parts, until).or_else(waited).unwrap_or(Err(Error::Deadline))
    }

    /// As `call`, for a future on a thread that runs nothing else (`Runtime::block_on`): it may
    /// block within its poll. The server must not push messages to the connection of such a
    /// request, because they may get lost. A request that tells the server where to push uses
    /// `call`.
    ///
    /// # Errors
    /// See `Error`.
    pub async fn call_in_place(
        &self,
        method: u16,
        body: &[u8],
        parts: &[IoSlice<'_>],
        deadline: Duration,
    ) -> Result<Response, Error> {
        match self.call_directly(method, body, parts, Instant::now() + deadline) {
            Some(answer) => answer,
            None => self.call(method, body, parts, deadline).await,
        }
    }

    /// Sends a request over a direct connection. None when no such connection is free, or the
    /// request is long.
    fn call_directly(
        &self,
        method: u16,
        body: &[u8],
        parts: &[IoSlice<'_>],
        until: Instant,
    ) -> Option<Result<Response, Error>> {
        let bytes = parts.iter().map(|part| part.len() as u64).sum();
        if body.len() as u64 + bytes > MAX_DIRECT_BYTES {
            return None;
        }
        let _space = self.shared.in_flight.try_acquire().ok()?;
        let counted = Counted::new(&self.shared, bytes);
        let connection = counted.channel.current()?;
        let loan = connection.directs.lend(&self.shared.runtime)?;
        let header = self.header(loan.limits(), FrameKind::Request, method, bytes, body, parts);
        Some(
            header.and_then(|header| {
                loan.call(Header { deadline_ms: milliseconds(until), ..header }, body, parts, until)
            }),
        )
    }

    /// Sends a message that has no answer. The message may get lost, and two messages may arrive in
    /// the other order.
    ///
    /// # Errors
    /// When the message certainly did not arrive, or was not written by `deadline` from now.
    pub async fn send(&self, method: u16, body: &[u8], parts: &[IoSlice<'_>], deadline: Duration) -> Result<(), Error> {
        let until = Instant::now() + deadline;
        let bytes = parts.iter().map(|part| part.len() as u64).sum();
        let sending = async {
            let _space = self.shared.in_flight.acquire().await;
            let counted = Counted::new(&self.shared, bytes);
            let connection = self.shared.connection(counted.channel).await?;
            let mut header = self.header(connection.limits, FrameKind::OneWay, method, bytes, body, parts)?;
            header.deadline_ms = milliseconds(until);
            connection.outgoing.write(header, body, parts).await
        };
        timeout_at(until, sending).await.unwrap_or(Err(Error::Deadline))
    }

    /// Sends a request whose answer is a stream of items. The server sends at most `window` items
    /// ahead of `Items::next`. The stream ends at `deadline` from now.
    ///
    /// # Errors
    /// When the request could not be sent.
    pub async fn open_stream(
        &self,
        method: u16,
        body: &[u8],
        parts: &[IoSlice<'_>],
        window: u32,
        deadline: Duration,
    ) -> Result<Items, Error> {
        let until = Instant::now() + deadline;
        let bytes = parts.iter().map(|part| part.len() as u64).sum();
        let opening = async {
            let counted = Counted::new(&self.shared, bytes);
            let connection = self.shared.connection(counted.channel).await?;
            let mut header = self.header(connection.limits, FrameKind::Open, method, bytes, body, parts)?;
            header.deadline_ms = milliseconds(until);
            header.count = window.max(1);
            let items = Items::new(self.shared.clone(), connection.clone(), header.id, header.count, until)?;
            connection.outgoing.write(header, body, parts).await?;
            Ok(items)
        };
        timeout_at(until, opening).await.unwrap_or(Err(Error::Deadline))
    }

    fn header(
        &self,
        limits: FrameLimits,
        kind: FrameKind,
        method: u16,
        payload_bytes: u64,
        body: &[u8],
        parts: &[IoSlice<'_>],
    ) -> Result<Header, Error> {
        let length = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
        let checked = limits.check(length(body.len() as u64), length(payload_bytes));
        checked.map_err(|error| Error::Refused(format!("{}: {error}", self.shared.address.as_str())))?;
        let id = self.shared.next_id.fetch_add(1, Ordering::Relaxed);
        Ok(Header { method, ..Header::new(kind, id) }.with_content(body, parts))
    }

    /// Whether the client has a connection.
    pub fn is_connected(&self) -> bool {
        self.shared.channels.iter().any(|channel| channel.is_connected())
    }

    /// The features that both sides have; 0 without a connection.
    pub fn peer_features(&self) -> u64 {
        self.shared
            .channels
            .iter()
            .find_map(|channel| channel.current())
            .map_or(0, |connection| connection.agreed.features)
    }

    /// The work in flight.
    pub fn load(&self) -> Load {
        Load {
            requests: self.shared.requests.load(Ordering::Relaxed),
            bytes: self.shared.bytes.load(Ordering::Relaxed),
        }
    }

    /// The address of the server.
    pub fn address(&self) -> &Address {
        &self.shared.address
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client({})", self.shared.address.as_str())
    }
}

/// Milliseconds from now; at least one, so that a request that arrives has some time left.
fn milliseconds(until: Instant) -> u32 {
    let left = until.saturating_duration_since(Instant::now()).as_millis();
    u32::try_from(left).unwrap_or(u32::MAX).max(1)
}
