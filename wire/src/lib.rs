//! Messages between the roles of Weft: clients, storage servers and the metadata server. All of
//! them use this one layer.
//!
//! ```text
//! Client -> channel -> connection -> frames -> (TLS) -> TCP ... -> connection -> Service::call
//!                          ^-------- responses, items, pushes -------'
//! ```
//!
//! A frame is a header, a small body and a payload that no serializer touches (`frame.rs`). The
//! layer never passes on a byte whose checksum is wrong, checks every length against its limit
//! before use, and makes callers wait instead of using more memory.
#![forbid(unsafe_code)]

pub mod admission;
pub mod certificates;
mod client;
mod error;
pub mod frame;
mod handshake;
pub mod hello;
mod incoming;
mod outgoing;
mod payload;
mod server;
mod stream;
mod tls;
mod waiting;

pub use client::{Client, ClientOptions, Items, Load, OnPush, Push, Response};
pub use error::Error;
pub use hello::{Role, TEXT_BYTES, VERSIONS};
pub use payload::{Payload, set_pool_limit};
pub use server::{Complaints, ItemSender, Peer, Reply, Request, Server, ServerLoad, ServerOptions, Service, serve};
pub use stream::{Address, BlockingStream, Connect, ConnectBlocking, Connecting, Halves, TcpConnect};
pub use tls::{ClientTls, ServerTls, is_for_host, is_issued_by, names_in};

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Status: the server panicked in a request.
pub const STATUS_PANICKED: u16 = 0xFFFF;
/// Status: the server's answer was longer than the client accepts.
pub const STATUS_TOO_LONG: u16 = 0xFFFE;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
