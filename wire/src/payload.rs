//! Memory for payloads. It begins at a page boundary, so that a disk can use it without a copy. It
//! is reused, because the page faults of a new mebibyte cost more than copying into it.

use crate::lock;
use bytes::Bytes;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Mutex;

const PAGE: usize = 4096;
/// Shorter memory, in bytes, is not kept: it is cheap to allocate.
const MIN_KEPT_BYTES: usize = 64 << 10;
/// Default limit of the pool, in bytes.
const DEFAULT_POOL_BYTES: usize = 64 << 20;

/// Unused memory, by length, shortest first.
static POOL: Mutex<Pool> = Mutex::new(Pool { free: Vec::new(), bytes: 0, limit: DEFAULT_POOL_BYTES });

struct Pool {
    free: Vec<Vec<u8>>,
    bytes: usize,
    limit: usize,
}

impl Pool {
    fn take(&mut self, bytes: usize) -> Option<Vec<u8>> {
        let at = self.free.partition_point(|free| free.len() < bytes);
        if self.free.get(at)?.len() != bytes {
            return None;
        }
        self.bytes -= bytes;
        Some(self.free.remove(at))
    }

    fn give(&mut self, memory: Vec<u8>) -> Option<Vec<u8>> {
        if self.bytes + memory.len() > self.limit {
            return Some(memory);
        }
        self.bytes += memory.len();
        // Insert it after all others of its length. `take` removes the first one of a length.
        let at = self.free.partition_point(|free| free.len() <= memory.len());
        self.free.insert(at, memory);
        None
    }
}

/// Sets how many bytes of unused payload memory this process keeps. The default is 64 MiB.
pub fn set_pool_limit(bytes: usize) {
    let mut pool = lock(&POOL);
    pool.limit = bytes;
    while pool.bytes > bytes {
        let Some(memory) = pool.free.pop() else { break };
        pool.bytes -= memory.len();
    }
}

/// The payload of a message: owned bytes that begin at a page boundary.
#[derive(Default)]
pub struct Payload {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

impl Payload {
    /// Memory of this length. It contains zeroes or old content, so the caller must overwrite all
    /// of it.
    pub fn new(length: usize) -> Self {
        if length == 0 {
            return Self::default();
        }
        let whole = if length < MIN_KEPT_BYTES { length } else { length.next_power_of_two() } + PAGE;
        let kept = if length < MIN_KEPT_BYTES { None } else { lock(&POOL).take(whole) };
        let bytes = kept.unwrap_or_else(|| vec![0; whole]);
        let start = bytes.as_ptr().align_offset(PAGE).min(PAGE);
        Self { bytes, start, length }
    }

    /// A copy of some bytes.
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut payload = Self::new(bytes.len());
        payload.copy_from_slice(bytes);
        payload
    }
}

impl Drop for Payload {
    fn drop(&mut self) {
        if self.length >= MIN_KEPT_BYTES {
            // Memory that the pool does not keep is freed after the lock is released.
            let left = lock(&POOL).give(std::mem::take(&mut self.bytes));
            drop(left);
        }
    }
}

impl Deref for Payload {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.length]
    }
}

impl DerefMut for Payload {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.length]
    }
}

impl AsRef<[u8]> for Payload {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({} bytes)", self.length)
    }
}

impl From<Payload> for Bytes {
    /// Uses the same memory, without a copy.
    fn from(payload: Payload) -> Self {
        if payload.is_empty() { Self::new() } else { Self::from_owner(payload) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_begins_at_a_page_and_is_used_again() {
        for length in [0, 1, 4096, 100_000, 1 << 20] {
            let mut payload = Payload::new(length);
            payload.fill(7);
            assert!(length == 0 || (payload.as_ptr() as usize).is_multiple_of(PAGE));
            assert_eq!(Bytes::from(payload), vec![7; length]);
        }
        let memory = Payload::new(3 << 20);
        let address = memory.as_ptr();
        drop(memory);
        assert_eq!(Payload::new((3 << 20) + 5).as_ptr(), address);
    }

    #[test]
    fn no_more_is_kept_than_the_limit() {
        let mut pool = Pool { free: Vec::new(), bytes: 0, limit: 1000 };
        assert!(pool.give(vec![0; 600]).is_none());
        assert_eq!(pool.give(vec![0; 600]).unwrap().len(), 600);
        assert!(pool.give(vec![0; 400]).is_none() && pool.bytes == 1000);
        assert!(pool.take(500).is_none());
        assert_eq!(pool.take(600).unwrap().len(), 600);
        assert_eq!(pool.bytes, 400);
    }
}
