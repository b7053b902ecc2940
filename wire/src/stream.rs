//! Byte streams: TCP, Unix sockets, TLS over either, memory, a simulated network.

mod blocking;
mod halves;

pub use blocking::BlockingStream;
pub use halves::Halves;
pub(crate) use halves::{ReadHalf, WriteHalf};

use std::future::Future;
use std::io;
use std::net::ToSocketAddrs;
use std::pin::Pin;
use std::time::Duration;
use tokio::net::{TcpStream, UnixStream};

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
