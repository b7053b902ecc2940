//! Page-aligned memory, so that a disk can take it without a copy.

use std::ops::{Deref, DerefMut};

const PAGE: usize = 4096;

/// Bytes that begin at a page boundary.
#[derive(Debug)]
pub(super) struct Pages {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

impl Pages {
    /// `length` zero bytes.
    pub fn new(length: usize) -> Self {
        let bytes = vec![0; length + PAGE];
        let start = bytes.as_ptr().align_offset(PAGE).min(PAGE);
        Self { bytes, start, length }
    }
}

impl Clone for Pages {
    fn clone(&self) -> Self {
        // A copy of the vector might begin at another offset in its page.
        let mut copy = Self::new(self.length);
        copy.copy_from_slice(self);
        copy
    }
}

impl Deref for Pages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.length]
    }
}

impl DerefMut for Pages {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_begin_at_a_page_too() {
        for length in [0, 1, 4096, 100_000] {
            let mut pages = Pages::new(length);
            pages.fill(7);
            let copy = pages.clone();
            assert!([&pages, &copy].iter().all(|pages| (pages.as_ptr() as usize).is_multiple_of(PAGE)));
            assert!(copy.len() == length && copy.iter().all(|&byte| byte == 7));
        }
    }
}
