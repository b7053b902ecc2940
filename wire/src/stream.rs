//! Byte streams: TCP, Unix sockets, TLS over either, memory, a simulated network.

mod blocking;

pub use blocking::BlockingStream;

use rustix::net::sockopt;
use std::future::Future;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::AsFd;
use std::pin::Pin;
use std::time::Duration;
use std::{fmt, io};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

pub(crate) type ReadHalf = Box<dyn AsyncRead + Send + Unpin>;
pub(crate) type WriteHalf = Box<dyn AsyncWrite + Send + Unpin>;

/// A stream, split into two halves that do not wait for each other.
pub struct Halves {
    pub(crate) read: ReadHalf,
    pub(crate) write: WriteHalf,
}

impl Halves {
    /// Splits any stream. For TCP and Unix sockets use `from`, which needs no lock between the
    /// halves.
    pub fn split(stream: impl AsyncRead + AsyncWrite + Send + 'static) -> Self {
        let (read, write) = tokio::io::split(stream);
        Self { read: Box::new(read), write: Box::new(write) }
    }
}

impl From<TcpStream> for Halves {
    fn from(stream: TcpStream) -> Self {
        let peer = stream.peer_addr();
        adjust(&stream, peer);
        let (read, write) = stream.into_split();
        Self { read: Box::new(read), write: Box::new(write) }
    }
}

impl From<UnixStream> for Halves {
    fn from(stream: UnixStream) -> Self {
        let (read, write) = stream.into_split();
        Self { read: Box::new(read), write: Box::new(write) }
    }
}

impl fmt::Debug for Halves {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Halves")
    }
}

/// Sets the TCP options that suit messages. Without them a connection works just as well, but more
/// slowly.
fn adjust(stream: impl AsFd, peer: io::Result<SocketAddr>) {
    // Frames are written whole, so there is nothing to gain from waiting for more data.
    let _ = sockopt::set_tcp_nodelay(&stream, true);
    // There is no congestion within a machine: a system default that paces packets, such as BBR,
    // only causes delays.
    if peer.is_ok_and(|peer| peer.ip().to_canonical().is_loopback()) {
        let _ = sockopt::set_tcp_congestion(&stream, "reno");
    }
}

/// The address of a server: `host:port`, or `unix:` and a path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address(String);

impl Address {
    /// The host's name or IP address without the port. The server's certificate must contain it.
    pub fn host(&self) -> &str {
        let host = self.0.rsplit_once(':').map_or(self.0.as_str(), |(host, _)| host);
        host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
    }

    /// The whole text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<T: ToString> From<T> for Address {
    fn from(text: T) -> Self {
        Self(text.to_string())
    }
}

/// A connection attempt.
pub type Connecting<'a> = Pin<Box<dyn Future<Output = io::Result<Halves>> + Send + 'a>>;

/// Opens a blocking stream within this time, or fails.
pub type ConnectBlocking = fn(&Address, Duration) -> io::Result<BlockingStream>;

/// Opens connections; the client adds TLS.
pub trait Connect: Send + Sync + 'static {
    /// Opens a connection. This may take long; the caller gives up by dropping the future.
    fn connect<'a>(&'a self, address: &'a Address) -> Connecting<'a>;

    /// The function that opens blocking streams to this address; None where there are no such
    /// streams.
    fn blocking(&self, _address: &Address) -> Option<ConnectBlocking> {
        None
    }
}

/// Connections over TCP, or over Unix sockets for addresses that begin with `unix:`.
#[derive(Clone, Copy, Debug, Default)]
pub struct TcpConnect;

impl Connect for TcpConnect {
    fn connect<'a>(&'a self, address: &'a Address) -> Connecting<'a> {
        Box::pin(async move {
            match address.as_str().strip_prefix("unix:") {
                Some(path) => Ok(UnixStream::connect(path).await?.into()),
                None => Ok(TcpStream::connect(address.as_str()).await?.into()),
            }
        })
    }

    fn blocking(&self, address: &Address) -> Option<ConnectBlocking> {
        (!address.as_str().starts_with("unix:")).then_some(connect_blocking)
    }
}

fn connect_blocking(address: &Address, timeout: Duration) -> io::Result<BlockingStream> {
    let mut last = io::ErrorKind::AddrNotAvailable.into();
    for address in address.as_str().to_socket_addrs()? {
        match std::net::TcpStream::connect_timeout(&address, timeout) {
            Ok(stream) => return BlockingStream::new(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts() {
        for (text, host) in
            [("store1:7000", "store1"), ("[::1]:7000", "::1"), ("10.0.0.1:7", "10.0.0.1"), ("name", "name")]
        {
            assert_eq!(Address::from(text).host(), host);
        }
    }
}
