//! What both halves of a session share: a client of a metadata server ([`client`](crate::client))
//! and the server ([`server`](crate::server)). The operations themselves are a table in
//! [`meta::port`].

pub mod locks;

use std::time::Duration;

/// A delegation recall: a file that a client must commit because another client wants to read it,
/// and the number of the question, which the answer repeats.
pub type Question = (u64, u64);

/// How long an exclusive lease lasts, from when the client sent its request. A client that joins
/// waits until the lease is over or its holder is notified.
pub(crate) const EXCLUSIVE_LEASE: Duration = Duration::from_millis(1500);

/// How long the kernel of a client with an exclusive lease may cache what it is given.
pub(crate) const KERNEL_VALID_FOR: Duration = Duration::from_millis(500);

/// The most removed files that one answer to a client reports: files that lost their last name.
pub(crate) const REMOVED_AT_A_TIME: usize = 4096;
