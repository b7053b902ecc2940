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
use tokio::task::JoinSet;

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

/// How long one address of a name has before the next one is tried, too.
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

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
                None => {
                    let addresses = tokio::net::lookup_host(address.as_str()).await?.collect();
                    Ok(first_of(addresses, TcpStream::connect).await?.into())
                }
            }
        })
    }

    fn blocking(&self, address: &Address) -> Option<ConnectBlocking> {
        (!address.as_str().starts_with("unix:")).then_some(connect_blocking)
    }
}

/// Connects to the first of the addresses of a name that answers. The next one is tried when one
/// has failed or is late, so that one that is silent does not hide the others (RFC 8305).
async fn first_of<A, S, F>(addresses: Vec<A>, connect: impl Fn(A) -> F) -> io::Result<S>
where
    S: Send + 'static,
    F: Future<Output = io::Result<S>> + Send + 'static,
{
    let (mut attempts, mut rest) = (JoinSet::new(), addresses.into_iter());
    let mut last = io::ErrorKind::AddrNotAvailable.into();
    loop {
        let is_last = match rest.next() {
            Some(address) => {
                attempts.spawn(connect(address));
                rest.len() == 0
            }
            None if attempts.is_empty() => return Err(last),
            None => true,
        };
        let wait = if is_last { Duration::MAX } else { ATTEMPT_DELAY };
        match tokio::time::timeout(wait, attempts.join_next()).await {
            Ok(Some(Ok(Ok(stream)))) => return Ok(stream),
            Ok(Some(Ok(Err(why)))) => last = why,
            // It panicked, or is late.
            Ok(_) | Err(_) => {}
        }
    }
}

fn connect_blocking(address: &Address, timeout: Duration) -> io::Result<BlockingStream> {
    let mut last = io::ErrorKind::AddrNotAvailable.into();
    let addresses: Vec<_> = address.as_str().to_socket_addrs()?.collect();
    let timeout = timeout / u32::try_from(addresses.len().max(1)).unwrap_or(u32::MAX);
    for address in addresses {
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

    #[tokio::test]
    async fn an_address_that_is_silent_or_fails_does_not_hide_another() {
        let connect = |number: i32| async move {
            match number {
                0 => std::future::pending().await,
                1.. => Ok(number),
                _ => Err(io::Error::from_raw_os_error(-number)),
            }
        };
        for (addresses, connects) in [(vec![7], 7), (vec![0, 8, 9], 8), (vec![-111, 0, 7], 7), (vec![0, -111, 7], 7)] {
            assert_eq!(first_of(addresses, connect).await.unwrap(), connects);
        }
        assert_eq!(first_of(vec![-13, -111], connect).await.unwrap_err().raw_os_error(), Some(111));
        assert_eq!(first_of(Vec::new(), connect).await.unwrap_err().kind(), io::ErrorKind::AddrNotAvailable);
    }

    #[test]
    fn hosts() {
        for (text, host) in
            [("store1:7000", "store1"), ("[::1]:7000", "::1"), ("10.0.0.1:7", "10.0.0.1"), ("name", "name")]
        {
            assert_eq!(Address::from(text).host(), host);
        }
    }
}
