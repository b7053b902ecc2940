//! The session protocol: what a client of a volume and its metadata server say to each other, and
//! what both of them rely on.
//!
//! - [`port`]: the table of operations, their encoding, and the trait that sends them.
//! - [`transport`]: what carries requests and answers, at both ends.
//! - [`server`]: the server's half: the sessions of a volume. The volume itself is behind a trait.
//! - [`replay`]: a request that arrives twice is carried out once.
//! - [`caller`]: a session is its client's alone.
//! - [`locks`]: which owner holds which bytes of a file.
#![forbid(unsafe_code)]

pub mod caller;
pub mod locks;
pub mod port;
mod ranks;
pub mod replay;
pub mod server;
pub mod transport;

use std::time::Duration;

/// A delegation recall: a file that a client must commit because another client wants to read it,
/// and the number of the question, which the answer repeats.
pub type Question = (plan::Ino, u64);

/// How long an exclusive lease lasts, from when the client sent its request. A client that joins
/// waits until the lease is over or its holder is notified.
pub const EXCLUSIVE_LEASE: Duration = Duration::from_millis(1500);

/// How long the kernel of a client with an exclusive lease may cache what it is given.
pub const KERNEL_VALID_FOR: Duration = Duration::from_millis(500);

/// The most removed files that one answer to a client reports: files that lost their last name.
pub const REMOVED_AT_A_TIME: usize = 4096;
