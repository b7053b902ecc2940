//! The client's side: calls, one-way messages and streams to one server, over several connections
//! that are made when they are needed.

mod channel;
mod connection;
mod direct;
mod directs;
mod items;

pub use items::Items;

use crate::error::Error;
use crate::frame::{Header, Kind, Limits};
use crate::hello::{Role, TEXT_BYTES, VERSIONS};
use crate::payload::Payload;
use crate::stream::{Address, Connect, TcpConnect};
use crate::tls::ClientTls;
use crate::waiting::wait_until;
use bytes::Bytes;
use channel::Channel;
use connection::{Connection, Waiter, Waiting};
use direct::LONGEST_REQUEST;
use std::fmt;
use std::io::IoSlice;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{Instant, timeout, timeout_at};

/// A call counts for so many bytes besides those of its payload when channels are compared.
const CALL_BYTES: u64 = 1024;
/// A channel that has no connection counts as if so many bytes were in flight on it: small messages
/// share one connection.
const CONNECTING_BYTES: u64 = 64 << 10;
/// While a server that was not there is tried again, those who are in a hurry wait no longer than
/// this.
const GLANCE: Duration = Duration::from_millis(250);
/// So long after an attempt without success a server counts as one that is not there.
const MOMENT: Duration = Duration::from_secs(10);

/// Takes what a server sends unasked. It runs where messages are read, so it must not wait.
pub type OnPush = Arc<dyn Fn(Push) + Send + Sync>;

/// How a client behaves.
#[derive(Clone)]
pub struct ClientOptions {
    /// Connections to the server at most.
    pub channels: usize,
    /// Connections beside each of these, at most, on which a thread that waits for a short
    /// request's answer reads it itself.
    pub direct: usize,
    /// Calls and streams in flight at most; further ones wait.
    pub in_flight: usize,
    /// How connections are made.
    pub connect: Arc<dyn Connect>,
    /// TLS on them; None is for networks that nobody else is in.
    pub tls: Option<ClientTls>,
    /// Who this is.
    pub role: Role,
    /// Feature bits that are offered.
    pub features: u64,
    /// Shown to the service, at most 4 KiB.
    pub credentials: Bytes,
    /// The longest answers that are taken.
    pub limits: Limits,
    /// The versions that are spoken.
    pub versions: RangeInclusive<u16>,
    /// Takes what the server sends unasked.
    pub on_push: Option<OnPush>,
    /// How long making a connection may take, with the first messages.
    pub connect_timeout: Duration,
    /// The wait before a connection is made again: from the first to the second, twice as long
    /// every time, with jitter.
    pub backoff: RangeInclusive<Duration>,
    /// Whether calls fail at once during that wait, and soon while a server that was not there is
    /// tried again.
    pub fail_fast: bool,
    /// The server is asked whether it is still there after so long a silence with calls in flight.
    pub ping_after: Duration,
    /// The connection is given up after so long a silence.
    pub dead_after: Duration,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            channels: 4,
            direct: 4,
            in_flight: 1024,
            connect: Arc::new(TcpConnect),
            tls: None,
            role: Role::CLIENT,
            features: 0,
            credentials: Bytes::new(),
            limits: Limits::default(),
            versions: VERSIONS,
            on_push: None,
            connect_timeout: Duration::from_secs(5),
            backoff: Duration::from_millis(20)..=Duration::from_secs(5),
            fail_fast: false,
            ping_after: Duration::from_secs(5),
            dead_after: Duration::from_secs(10),
        }
    }
}

impl fmt::Debug for ClientOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientOptions")
            .field("channels", &self.channels)
            .field("role", &self.role)
            .finish_non_exhaustive()
    }
}

/// An answer, or an item of a stream.
#[derive(Debug, Default)]
pub struct Response {
    /// The part that the service's serializer made.
    pub body: Bytes,
    /// The part that is bytes.
    pub payload: Payload,
}

/// What a server sent unasked.
#[derive(Debug)]
pub struct Push {
    /// What it is.
    pub method: u16,
    /// The part that the service's serializer made.
    pub body: Bytes,
    /// The part that is bytes.
    pub payload: Payload,
}

/// What is in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Calls and streams that have no answer yet, also those that wait for a connection.
    pub requests: usize,
    /// The bytes of their payloads.
    pub bytes: u64,
}

/// A client of one server. Clones share its connections, which are closed when the last clone is
/// gone.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

struct Shared {
    runtime: Handle,
    address: Address,
    fail_fast: bool,
    in_flight: Semaphore,
    channels: Vec<Arc<Channel>>,
    next_id: AtomicU64,
    requests: AtomicUsize,
    bytes: AtomicU64,
}

/// One call in the client's counts.
struct Counted<'a> {
    shared: &'a Shared,
    channel: &'a Arc<Channel>,
    bytes: u64,
}

impl<'a> Counted<'a> {
    fn new(shared: &'a Shared, bytes: u64) -> Self {
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

    /// Why there was no connection a moment ago, where nobody is to wait long for another attempt.
    fn down(&self) -> Option<Error> {
        if !self.fail_fast || self.channels.iter().any(|channel| channel.is_connected()) {
            return None;
        }
        let newest = self.channels.iter().filter_map(|channel| channel.last_attempt()).max_by_key(|(when, _)| *when);
        let (when, why) = newest?;
        why.err().filter(|why| matches!(why, Error::Unavailable { .. }) && when.elapsed() < MOMENT)
    }

    /// A connection on this channel, or when that cannot be had, on any.
    async fn connection(&self, channel: &Arc<Channel>) -> Result<Arc<Connection>, Error> {
        let making = channel.connection(&self.runtime);
        let made = match self.down() {
            Some(why) => {
                // The thread that waits may be none of the runtime's, whose clock it needs.
                let glance = {
                    let _runtime = self.runtime.enter();
                    timeout(GLANCE, making)
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

impl Client {
    /// A client of the server at this address. Connections are made by the first calls.
    ///
    /// # Panics
    /// When the options have no channel or longer credentials than 4 KiB.
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

    /// Sends a request whose payload is `parts`, one behind the other and not copied, and waits for
    /// its answer until `deadline` from now. When this is dropped before, the server is told, and
    /// its answer ignored.
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
        let _room = self.shared.in_flight.acquire().await;
        let counted = Counted::new(&self.shared, bytes);
        let connection = self.shared.connection(counted.channel).await?;
        let (sender, mut answer) = oneshot::channel();
        let mut header = self.header(connection.limits, Kind::Request, method, bytes, body, parts)?;
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

    /// The same from a thread that is not the runtime's: this very thread writes the request, and
    /// sleeps until there is an answer.
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
        // It panics where waiting would hold up a thread that may have the answer to move.
        self.shared.runtime.block_on(std::future::ready(()));
        let until = Instant::now() + deadline;
        let waited = || wait_until(until.into_std(), self.exchange(method, body, parts, until));
        self.call_directly(method, body, parts, until).or_else(waited).unwrap_or(Err(Error::Deadline))
    }

    /// The same as a future of a thread that runs nothing else (`Runtime::block_on`): it may wait
    /// within its poll. Messages that the server sends unasked may get lost if it sends them where
    /// this came from; what it shall send them to goes by `call`.
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

    /// The same over a connection of this thread's own. None where there is none, or the request is
    /// long.
    fn call_directly(
        &self,
        method: u16,
        body: &[u8],
        parts: &[IoSlice<'_>],
        until: Instant,
    ) -> Option<Result<Response, Error>> {
        let bytes = parts.iter().map(|part| part.len() as u64).sum();
        if body.len() as u64 + bytes > LONGEST_REQUEST {
            return None;
        }
        let _room = self.shared.in_flight.try_acquire().ok()?;
        let counted = Counted::new(&self.shared, bytes);
        let connection = counted.channel.current()?;
        let loan = connection.directs.lend(&self.shared.runtime)?;
        let header = self.header(loan.limits(), Kind::Request, method, bytes, body, parts);
        Some(
            header.and_then(|header| {
                loan.call(Header { deadline_ms: milliseconds(until), ..header }, body, parts, until)
            }),
        )
    }

    /// Sends a message that has no answer. It may get lost, and two may change places.
    ///
    /// # Errors
    /// When it certainly did not arrive, or was not written by `deadline` from now.
    pub async fn send(&self, method: u16, body: &[u8], parts: &[IoSlice<'_>], deadline: Duration) -> Result<(), Error> {
        let until = Instant::now() + deadline;
        let bytes = parts.iter().map(|part| part.len() as u64).sum();
        let sending = async {
            let _room = self.shared.in_flight.acquire().await;
            let counted = Counted::new(&self.shared, bytes);
            let connection = self.shared.connection(counted.channel).await?;
            let mut header = self.header(connection.limits, Kind::OneWay, method, bytes, body, parts)?;
            header.deadline_ms = milliseconds(until);
            connection.outgoing.write(header, body, parts).await
        };
        timeout_at(until, sending).await.unwrap_or(Err(Error::Deadline))
    }

    /// Sends a request that is answered by items. The server is at most `window` items ahead of
    /// `Items::next`; all of it ends at `deadline` from now.
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
            let mut header = self.header(connection.limits, Kind::Open, method, bytes, body, parts)?;
            header.deadline_ms = milliseconds(until);
            header.count = window.max(1);
            let items = Items::new(self.clone(), connection.clone(), header.id, header.count, until)?;
            connection.outgoing.write(header, body, parts).await?;
            Ok(items)
        };
        timeout_at(until, opening).await.unwrap_or(Err(Error::Deadline))
    }

    fn header(
        &self,
        limits: Limits,
        kind: Kind,
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

    /// Whether there is a connection.
    pub fn is_connected(&self) -> bool {
        self.shared.channels.iter().any(|channel| channel.is_connected())
    }

    /// The features that both sides have; none before the first connection.
    pub fn peer_features(&self) -> u64 {
        self.shared
            .channels
            .iter()
            .find_map(|channel| channel.current())
            .map_or(0, |connection| connection.agreed.features)
    }

    /// What is in flight.
    pub fn load(&self) -> Load {
        Load {
            requests: self.shared.requests.load(Ordering::Relaxed),
            bytes: self.shared.bytes.load(Ordering::Relaxed),
        }
    }

    /// Where the server is.
    pub fn address(&self) -> &Address {
        &self.shared.address
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client({})", self.shared.address.as_str())
    }
}

/// Milliseconds from now, at least one: what arrives has some time.
fn milliseconds(until: Instant) -> u32 {
    let left = until.saturating_duration_since(Instant::now()).as_millis();
    u32::try_from(left).unwrap_or(u32::MAX).max(1)
}
