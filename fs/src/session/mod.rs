//! What both halves of a session agree on: a client of a metadata server ([`client`](crate::client)) and the server
//! ([`server`](crate::server)). The operations themselves are a table in [`meta::port`].

pub mod locks;

use std::time::Duration;

/// A file of which a client shall commit what it wrote, as another one wants to see it, and the number of that question,
/// which the answer has too.
pub type Question = (u64, u64);

/// A client that hears that there are no others may believe so for this long, counted from when it asked. One that joins
/// waits until that is over, or the client has heard of it.
pub(crate) const EXCLUSIVE_FOR: Duration = Duration::from_millis(1500);

/// What a client that is alone tells its kernel may be believed for so long.
pub(crate) const KERNEL_VALID_FOR: Duration = Duration::from_millis(500);

/// Files that lost their last name, of which a client hears at a time.
pub(crate) const REMOVED_AT_A_TIME: usize = 4096;
