//! The server's side: connections of many clients. A service executes their requests concurrently,
//! within limits that make clients wait.

mod complaints;
mod connection;
mod peer;
mod request;
mod space;

pub use complaints::Complaints;
pub use peer::Peer;
pub use request::{ItemSender, Reply, Request};

use crate::error::Error;
use crate::frame::FrameLimits;
use crate::handshake::server_tls;
use crate::hello::{Role, VERSIONS};
use crate::stream::Halves;
use crate::tls::ServerTls;
use space::{SpacePool, permits};
use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::io;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, timeout};

/// Pause after a failed accept, which mostly means that file descriptors are used up.
const ACCEPT_RETRY_PAUSE: Duration = Duration::from_millis(50);

/// Answers requests.
pub trait Service: Send + Sync + 'static {
    /// Answers a request. Many calls run at the same time. The future is dropped when the client
    /// cancels or disconnects and when the deadline passes, so work that must not stop half-way
    /// belongs in a task of its own. When it panics, the client gets `STATUS_PANICKED`.
    fn call(&self, request: Request) -> impl Future<Output = Reply> + Send;

    /// Upper bound for the length of the answer in bytes, as far as the request tells. The server
    /// waits for this much space before it executes the request, and holds it until the answer is
    /// sent: a short request must not make the server hold a long answer that the client does not
    /// read.
    fn reply_bytes(&self, _request: &Request) -> u64 {
        0
    }

    /// A client opens a connection; each of its channels has one.
    ///
    /// # Errors
    /// A text for the client when it may not connect.
    fn connected(&self, _peer: &Arc<Peer>) -> Result<(), String> {
        Ok(())
    }

    /// A connection has ended that `connected` accepted.
    fn disconnected(&self, _peer: &Arc<Peer>) {}
}

/// The options of a server.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// TLS with certificates on both sides. None is only for networks that no other machine can
    /// reach.
    pub tls: Option<ServerTls>,
    /// The role of this process.
    pub role: Role,
    /// The feature bits that this side offers.
    pub features: u64,
    /// The longest requests that this side accepts.
    pub limits: FrameLimits,
    /// The protocol versions that this side speaks.
    pub versions: RangeInclusive<u16>,
    /// Maximum number of connections; the server closes further ones.
    pub connections: usize,
    /// Maximum number of requests of a connection at a time; the server reads no more until one is
    /// answered.
    pub requests_per_connection: usize,
    /// Maximum number of bytes of a connection's requests at a time.
    pub bytes_per_connection: u64,
    /// Maximum number of bytes of all requests at a time. The server does not read a payload before
    /// there is space for it. With certificates, one member gets at most half of it, and at most
    /// half of the connections. While others wait, the server disconnects a client that has space
    /// and sends nothing for a second, or sends too slowly.
    pub bytes: u64,
    /// Maximum number of bytes of a connection's answers at a time, as far as the service knows
    /// their lengths in advance.
    pub reply_bytes_per_connection: u64,
    /// Maximum number of bytes of all answers at a time, with the same restriction, and shared like
    /// those of requests.
    pub reply_bytes: u64,
    /// Time limit from the beginning of a connection to the end of the first messages.
    pub handshake_timeout: Duration,
    /// Time limit for receiving a request: for its first bytes after the header, and again for its
    /// content.
    pub frame_timeout: Duration,
    /// After this long a silence the server sends the client a ping.
    pub ping_after: Duration,
    /// After this long a silence the server gives up the connection.
    pub dead_after: Duration,
    /// How long requests in flight may take when the server stops.
    pub drain: Duration,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            tls: None,
            role: Role::STORE,
            features: 0,
            limits: FrameLimits::default(),
            versions: VERSIONS,
            connections: 20_000,
            requests_per_connection: 256,
            bytes_per_connection: 128 << 20,
            bytes: 1 << 30,
            reply_bytes_per_connection: 128 << 20,
            reply_bytes: 1 << 30,
            handshake_timeout: Duration::from_secs(5),
            frame_timeout: Duration::from_secs(30),
            ping_after: Duration::from_secs(30),
            dead_after: Duration::from_secs(90),
            drain: Duration::from_secs(10),
        }
    }
}

/// The current load of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerLoad {
    /// Number of connections.
    pub connections: usize,
    /// Bytes of requests in memory.
    pub bytes: u64,
    /// Total number of connections that were refused, or ended because of what the client sent: too
    /// many connections, no certificate, garbage, a wrong checksum, too slow.
    pub refused: u64,
}

/// The stages of a server's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Serving,
    /// The server sends Goodbye to its clients and answers the requests in flight.
    Draining,
    Over,
}

/// A service and its connections, for streams of any kind. For TCP, `serve` suffices.
pub struct Server<S> {
    shared: Arc<Shared<S>>,
}

impl<S> Clone for Server<S> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<S> fmt::Debug for Server<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Server")
    }
}

struct Shared<S> {
    service: Arc<S>,
    options: ServerOptions,
    connections: Arc<Semaphore>,
    bytes: Arc<SpacePool>,
    reply_bytes: Arc<SpacePool>,
    /// Number of connections of each member with a certificate.
    members: Mutex<HashMap<String, usize>>,
    stage: watch::Sender<Stage>,
    complaints: Complaints,
    refused: AtomicU64,
    next_peer: AtomicU64,
}

impl<S: Service> Server<S> {
    /// A server without connections.
    pub fn new(service: Arc<S>, options: ServerOptions) -> Self {
        Self {
            shared: Arc::new(Shared {
                service,
                connections: Arc::new(Semaphore::new(options.connections)),
                bytes: SpacePool::new(options.bytes),
                reply_bytes: SpacePool::new(options.reply_bytes),
                members: Mutex::default(),
                stage: watch::Sender::new(Stage::Serving),
                complaints: Complaints::default(),
                refused: AtomicU64::new(0),
                next_peer: AtomicU64::new(1),
                options,
            }),
        }
    }

    /// Accepts connections until `shutdown`, then says goodbye to the clients, answers the requests
    /// in flight, and returns.
    pub async fn serve(&self, listener: TcpListener, shutdown: impl Future<Output = ()>) {
        let accept = async {
            loop {
                match listener.accept().await {
                    Ok((stream, address)) => {
                        let server = self.clone();
                        let address = address.to_string();
                        tokio::spawn(async move { server.serve_stream(stream.into(), address).await });
                    }
                    Err(error) => {
                        self.shared.complaints.complain("accept", &error);
                        sleep(ACCEPT_RETRY_PAUSE).await;
                    }
                }
            }
        };
        tokio::select! {
            () = accept => {}
            () = shutdown => {}
        }
        drop(listener);
        self.drain().await;
    }

    /// Serves one accepted stream until it ends. `address` is for logs and `Peer::address`.
    pub async fn serve_stream(&self, halves: Halves, address: String) {
        let Ok(_place) = self.shared.connections.clone().try_acquire_owned() else {
            let limit = self.shared.options.connections;
            self.shared.refused.fetch_add(1, Ordering::Relaxed);
            return self.shared.complaints.complain(&address, &format!("refused: there are {limit} connections"));
        };
        if *self.shared.stage.borrow() != Stage::Serving {
            return;
        }
        // A separate future on the heap, so that an idle connection does not keep the memory of the
        // handshake.
        let opened = Box::pin(timeout(self.shared.options.handshake_timeout, self.open(halves, &address))).await;
        let served = match opened {
            Ok(Ok((connection, incoming))) => connection.drive(incoming).await,
            Ok(Err(error)) => Err(error),
            Err(_) => Err(Error::Protocol("the first message did not come in time".into())),
        };
        match served {
            Ok(()) => {}
            Err(Error::Unavailable { why, .. }) => tracing::debug!(peer = address, why, "connection lost"),
            Err(error) => {
                self.shared.refused.fetch_add(1, Ordering::Relaxed);
                self.shared.complaints.complain(&address, &error);
            }
        }
    }

    async fn open(
        &self,
        mut halves: Halves,
        address: &str,
    ) -> Result<(connection::Connection<S>, crate::incoming::Incoming), Error> {
        let mut names = None;
        if let Some(tls) = &self.shared.options.tls {
            let (secured, found) = server_tls(halves, tls).await?;
            (halves, names) = (secured, Some(found));
        }
        connection::Connection::open(self.shared.clone(), halves, address, names).await
    }

    /// Says goodbye to the clients, waits until the requests in flight are answered, or for the
    /// time in the options, and closes all connections.
    pub async fn drain(&self) {
        let Shared { stage, connections, bytes, options, .. } = &*self.shared;
        stage.send_replace(Stage::Draining);
        let all = u32::try_from(options.connections).unwrap_or(u32::MAX);
        let end = async {
            let _connections = connections.acquire_many(all).await;
            // One-way messages hold only their bytes.
            let _bytes = bytes.all().acquire_many(permits(options.bytes)).await;
        };
        let ended = timeout(options.drain, end).await.is_ok();
        stage.send_replace(Stage::Over);
        if !ended {
            let _ = timeout(ACCEPT_RETRY_PAUSE * 20, connections.acquire_many(all)).await;
        }
    }

    /// The current load.
    pub fn load(&self) -> ServerLoad {
        let refused = self.shared.refused.load(Ordering::Relaxed);
        ServerLoad { connections: self.connections(), bytes: self.bytes_in_flight(), refused }
    }

    /// Number of connections.
    pub fn connections(&self) -> usize {
        self.shared.options.connections - self.shared.connections.available_permits()
    }

    /// Bytes of requests in memory.
    pub fn bytes_in_flight(&self) -> u64 {
        self.shared.bytes.taken()
    }
}

/// Serves TCP connections until `shutdown`, then finishes the requests in flight.
///
/// # Errors
/// When the listener cannot be used.
pub async fn serve<S: Service>(
    listener: TcpListener,
    service: Arc<S>,
    options: ServerOptions,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    listener.local_addr()?;
    Server::new(service, options).serve(listener, shutdown).await;
    Ok(())
}
