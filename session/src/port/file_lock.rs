//! A lock of a program on a part of a file, as messages have it.

use serde::{Deserialize, Serialize};

/// A lock on a byte range of a file, as in `fcntl`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileLock {
    /// The client's kernel's id of the lock's owner.
    pub owner: u64,
    /// The first byte.
    pub first: u64,
    /// The last byte (inclusive).
    pub last: u64,
    /// Whether the lock excludes every other lock on any part of the range.
    pub exclusive: bool,
    /// The process id on the client.
    pub process: u32,
}
