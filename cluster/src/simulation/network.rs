//! Connections and servers of `wire` over the simulated network, which can flip bits.

use super::{PORT, Record};
use fastrand::Rng;
use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use turmoil::net::{TcpListener, TcpStream};
use wire::{Address, Connect, Connecting, Halves, Server, ServerOptions, Service};

/// One of this many reads has a flipped bit while the network is noisy.
const READS_PER_BIT_FLIP: u32 = 20;

/// The network of all hosts.
#[derive(Clone)]
pub struct Network(Arc<Inner>);

struct Inner {
    record: Record,
    noisy: AtomicBool,
    calm: AtomicBool,
    dice: Mutex<Rng>,
    /// When connections were begun, by client.
    attempts: Mutex<BTreeMap<String, Vec<Duration>>>,
}

impl Network {
    pub fn new(seed: u64, record: &Record) -> Self {
        Self(Arc::new(Inner {
            record: record.clone(),
            noisy: AtomicBool::new(false),
            calm: AtomicBool::new(false),
            dice: Mutex::new(Rng::with_seed(seed ^ 0x6e6f_6973)),
            attempts: Mutex::default(),
        }))
    }

    /// Sets whether bits are flipped from now on.
    pub fn set_noisy(&self, noisy: bool) {
        self.0.noisy.store(noisy, Ordering::Relaxed);
    }

    /// Ends all slowness, too.
    pub fn set_calm(&self) {
        self.0.calm.store(true, Ordering::Relaxed);
    }

    /// Whether nothing fails any more.
    pub fn is_calm(&self) -> bool {
        self.0.calm.load(Ordering::Relaxed)
    }

    /// How the client with this name makes its connections.
    pub fn connect(&self, who: impl Into<String>) -> Arc<dyn Connect> {
        Arc::new(Way { network: self.clone(), who: who.into() })
    }

    /// The largest number of connections that one client began within this time, and its name. This
    /// considers clients whose name contains `name`.
    pub fn most_attempts(&self, name: &str, within: Duration) -> (usize, String) {
        let attempts = self.0.attempts.lock().unwrap();
        let most = |times: &Vec<Duration>| {
            let count = |at: usize| times[at..].partition_point(|time| *time < times[at] + within);
            (0..times.len()).map(count).max().unwrap_or(0)
        };
        let named = attempts.iter().filter(|(who, _)| who.contains(name));
        named.map(|(who, times)| (most(times), who.clone())).max().unwrap_or_default()
    }

    /// Rolls the dice of this network.
    pub fn dice<T>(&self, roll: impl FnOnce(&mut Rng) -> T) -> T {
        roll(&mut self.0.dice.lock().unwrap())
    }

    fn flips(&self, bytes: usize) -> Option<usize> {
        if !self.0.noisy.load(Ordering::Relaxed) {
            return None;
        }
        self.dice(|dice| (dice.u32(..READS_PER_BIT_FLIP) == 0).then(|| dice.usize(..bytes * 8)))
    }

    fn halves(&self, stream: TcpStream) -> Halves {
        Halves::split(Noisy { stream, network: self.clone() })
    }
}

/// A client's connections to its servers.
struct Way {
    network: Network,
    who: String,
}

impl Connect for Way {
    fn connect<'a>(&'a self, address: &'a Address) -> Connecting<'a> {
        Box::pin(async move {
            let Self { network, who } = self;
            let key = format!("{who} to {}", address.as_str());
            network.0.record.note(format_args!("{key}: connects"));
            let now = turmoil::sim_elapsed().unwrap_or_default();
            network.0.attempts.lock().unwrap().entry(key).or_default().push(now);
            Ok(network.halves(TcpStream::connect(address.as_str()).await?))
        })
    }
}

/// Serves every client that connects to this host, until the host dies.
pub async fn serve<S: Service>(network: Network, service: Arc<S>, options: ServerOptions) -> turmoil::Result {
    let server = Server::new(service, options);
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)).await?;
    loop {
        let (stream, address) = listener.accept().await?;
        let (server, halves) = (server.clone(), network.halves(stream));
        tokio::spawn(async move { server.serve_stream(halves, address.to_string()).await });
    }
}

/// A stream that sometimes flips a bit of what is read.
struct Noisy {
    stream: TcpStream,
    network: Network,
}

impl AsyncRead for Noisy {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, into))?;
        let new = &mut into.filled_mut()[before..];
        if !new.is_empty()
            && let Some(bit) = self.network.flips(new.len())
        {
            new[bit / 8] ^= 1 << (bit % 8);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Noisy {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
