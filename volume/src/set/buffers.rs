//! The buffers of stripes, and a pool of them.

use super::layout::geometry;
use super::pages::Pages;
use crate::lock;
use ec::Code;
use std::sync::Mutex;

/// How much longer than their data the blocks of a stripe may be, in bytes: the manifest and
/// rounding.
const MAX_EXTRA_BYTES: usize = 64 << 10;

/// The buffer of a stripe: the user data first, then the blocks computed from it.
#[derive(Debug)]
pub struct StripeBuffer {
    pub(super) data: Pages,
    pub(super) coded: Pages,
    pub(super) length: usize,
    pub(super) capacity: usize,
}

impl StripeBuffer {
    /// The user data in it, in bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether it holds no user data.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The free space in bytes, including that for the manifest.
    pub fn space(&self) -> usize {
        self.capacity - self.length
    }

    /// Appends user data.
    ///
    /// # Panics
    /// If it does not fit.
    pub fn extend_from_slice(&mut self, data: &[u8]) {
        assert!(data.len() <= self.space(), "a stripe takes no more than its capacity");
        self.data[self.length..self.length + data.len()].copy_from_slice(data);
        self.length += data.len();
    }

    /// Appends user data that `read` puts into the buffer. `read` gets space for at most `most`
    /// bytes and returns how many it used.
    ///
    /// # Errors
    /// Those of `read`; then nothing is appended.
    ///
    /// # Panics
    /// If `most` bytes do not fit.
    pub fn extend_with<E>(
        &mut self,
        most: usize,
        read: impl FnOnce(&mut [u8]) -> std::result::Result<usize, E>,
    ) -> std::result::Result<&[u8], E> {
        assert!(most <= self.space(), "a stripe takes no more than its capacity");
        let start = self.length;
        let added = read(&mut self.data[start..start + most])?.min(most);
        self.length += added;
        Ok(&self.data[start..start + added])
    }

    /// Truncates the user data to `length` bytes.
    pub fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
    }
}

/// A pool of reusable buffers.
#[derive(Debug)]
pub struct BufferPool {
    free: Mutex<Vec<StripeBuffer>>,
    capacity: usize,
    data: usize,
    coded: usize,
    keep: usize,
}

impl BufferPool {
    /// Creates a pool of buffers for stripes of `stripe` bytes of user data and manifest. At most
    /// `keep` unused buffers are kept.
    pub fn new(code: &dyn Code, stripe: usize, keep: usize) -> Self {
        let block = geometry(code).block_bytes(stripe);
        let (data, coded) = (block * code.shape().k, block * code.coded().len());
        Self { free: Mutex::default(), capacity: stripe, data: data + MAX_EXTRA_BYTES, coded, keep }
    }

    /// The user data and manifest that a buffer can hold, in bytes.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Takes an empty buffer.
    pub fn take(&self) -> StripeBuffer {
        let free = lock(&self.free).pop();
        free.unwrap_or_else(|| StripeBuffer {
            data: Pages::new(self.data),
            coded: Pages::new(self.coded),
            length: 0,
            capacity: self.capacity,
        })
    }

    /// Returns a buffer to the pool.
    pub fn give(&self, mut buffer: StripeBuffer) {
        buffer.length = 0;
        let mut free = lock(&self.free);
        if free.len() < self.keep {
            free.push(buffer);
        }
    }
}
