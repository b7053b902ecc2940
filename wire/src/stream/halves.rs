//! The two halves of a stream, whatever it is made of.

use rustix::net::sockopt;
use std::net::SocketAddr;
use std::os::fd::AsFd;
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
pub(super) fn adjust(stream: impl AsFd, peer: io::Result<SocketAddr>) {
    // Frames are written whole, so there is nothing to gain from waiting for more data.
    let _ = sockopt::set_tcp_nodelay(&stream, true);
    // There is no congestion within a machine: a system default that paces packets, such as BBR,
    // only causes delays.
    if peer.is_ok_and(|peer| peer.ip().to_canonical().is_loopback()) {
        let _ = sockopt::set_tcp_congestion(&stream, "reno");
    }
}
