//! The server's side: connections of many clients, whose requests a service answers at the same
//! time, within limits that hold clients back.

mod complaints;
mod connection;
mod peer;
mod request;
mod room;

pub use complaints::Complaints;
pub use peer::Peer;
pub use request::{ItemSender, Reply, Request};

use crate::error::Error;
use crate::frame::Limits;
use crate::handshake::server_tls;
use crate::hello::{Role, VERSIONS};
use crate::stream::Halves;
use crate::tls::ServerTls;
use room::{Rooms, permits};
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

/// After a failed accept, mostly for want of file descriptors.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// What answers requests.
pub trait Service: Send + Sync + 'static {
    /// Answers a request. Many run at the same time. The future is dropped when the client cancels
    /// or goes away and when the deadline passes, so what must not stop half-way belongs in a task
    /// of its own. When it panics the client gets `STATUS_PANICKED`.
    fn call(&self, request: Request) -> impl Future<Output = Reply> + Send;

    /// How many bytes the answer gets at most, as far as the request says. So much room is waited
    /// for before the request is answered, and held until the answer has left: a short request must
    /// not make the server hold a long answer that nobody takes.
    fn reply_bytes(&self, _request: &Request) -> u64 {
        0
    }

    /// A client connects; each of its channels does.
    ///
    /// # Errors
    /// With a text for the client when it may not.
    fn connected(&self, _peer: &Arc<Peer>) -> Result<(), String> {
        Ok(())
    }

    /// A connection is over for which `connected` was called and did not refuse.
    fn disconnected(&self, _peer: &Arc<Peer>) {}
}

/// How a server behaves.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// TLS with certificates on both sides; None is for networks that nobody else is in.
    pub tls: Option<ServerTls>,
    /// Who this is.
    pub role: Role,
    /// Feature bits that are offered.
    pub features: u64,
    /// The longest requests that are taken.
    pub limits: Limits,
    /// The versions that are spoken.
    pub versions: RangeInclusive<u16>,
    /// Connections at the same time; further ones are closed.
    pub connections: usize,
    /// Requests of a connection at the same time; no more are read before one is answered.
    pub requests_per_connection: usize,
    /// Bytes of a connection's requests at the same time.
    pub bytes_per_connection: u64,
    /// Bytes of all requests at the same time. A payload that does not fit is not read before there
    /// is room. With certificates, one member gets no more than half of it, and no more than half
    /// of the connections. While others wait, who has room and sends nothing for a second, or too
    /// slowly, is disconnected.
    pub bytes: u64,
    /// Bytes of a connection's answers at the same time, as far as the service knows before how
    /// long they get.
    pub reply_bytes_per_connection: u64,
    /// Bytes of all answers at the same time, likewise, and shared as those of requests are.
    pub reply_bytes: u64,
    /// From a connection's first byte to the end of the first messages.
    pub handshake_timeout: Duration,
    /// From a request's header to its end.
    pub frame_timeout: Duration,
    /// A silent client is asked whether it is still there.
    pub ping_after: Duration,
    /// The connection is given up after so long a silence.
    pub dead_after: Duration,
    /// How long requests in flight may take when the server is to stop.
    pub drain: Duration,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            tls: None,
            role: Role::STORE,
            features: 0,
            limits: Limits::default(),
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

/// What a server has at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerLoad {
    /// Connections.
    pub connections: usize,
    /// Bytes of requests that are in memory.
    pub bytes: u64,
    /// Connections so far that were refused, or ended because of what came on them: too many, no
    /// certificate, garbage, a checksum that does not fit, too slow.
    pub refused: u64,
}

/// How far the end of a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Serving,
    /// Clients are told to go; what is in flight is answered.
    Draining,
    Over,
}

/// A service and its connections. For streams of any kind; `serve` is all that TCP needs.
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
    bytes: Arc<Rooms>,
    reply_bytes: Arc<Rooms>,
    /// How many connections each member has, which has a certificate.
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
                bytes: Rooms::new(options.bytes),
                reply_bytes: Rooms::new(options.reply_bytes),
                members: Mutex::default(),
                stage: watch::Sender::new(Stage::Serving),
                complaints: Complaints::default(),
                refused: AtomicU64::new(0),
                next_peer: AtomicU64::new(1),
                options,
            }),
        }
    }

    /// Accepts connections until `shutdown`, then says goodbye to the clients, answers what is in
    /// flight, and returns.
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
                        sleep(ACCEPT_AGAIN).await;
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
        // On the heap and apart, so that the idle connection does not carry what only the handshake
        // needs.
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

    /// Says goodbye to the clients, waits until what is in flight is answered, or for the time in
    /// the options, and closes all connections.
    pub async fn drain(&self) {
        let Shared { stage, connections, bytes, options, .. } = &*self.shared;
        stage.send_replace(Stage::Draining);
        let all = u32::try_from(options.connections).unwrap_or(u32::MAX);
        let end = async {
            let _connections = connections.acquire_many(all).await;
            // One-way messages hold nothing but their bytes.
            let _bytes = bytes.all().acquire_many(permits(options.bytes)).await;
        };
        let ended = timeout(options.drain, end).await.is_ok();
        stage.send_replace(Stage::Over);
        if !ended {
            let _ = timeout(ACCEPT_AGAIN * 20, connections.acquire_many(all)).await;
        }
    }

    /// What it has now.
    pub fn load(&self) -> ServerLoad {
        let refused = self.shared.refused.load(Ordering::Relaxed);
        ServerLoad { connections: self.connections(), bytes: self.bytes_in_flight(), refused }
    }

    /// Connections that there are.
    pub fn connections(&self) -> usize {
        self.shared.options.connections - self.shared.connections.available_permits()
    }

    /// Bytes of requests that are in memory.
    pub fn bytes_in_flight(&self) -> u64 {
        self.shared.bytes.taken()
    }
}

/// Serves TCP connections until `shutdown`, and what was in flight then.
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
