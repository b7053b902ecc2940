//! Buffers of bodies that are sent, which are used again: fresh memory takes the system as long to
//! clear as it takes to read into it.

use bytes::Bytes;
use std::sync::{Arc, Mutex, PoisonError};

/// How much of an object is read at a time, in bytes.
pub const PIECE: u64 = 1 << 20;

/// Buffers of one size.
pub struct Buffers {
    free: Mutex<Vec<Vec<u8>>>,
    size: usize,
    keep: usize,
}

/// Bytes in a buffer, which is free again when it is dropped.
struct Piece {
    buffer: Vec<u8>,
    length: usize,
    of: Arc<Buffers>,
}

impl Buffers {
    /// Buffers of `size` bytes, of which at most `keep` are kept while nobody uses them.
    pub fn new(size: usize, keep: usize) -> Self {
        Self { free: Mutex::default(), size, keep }
    }

    /// Has bytes filled in, all of them. What fills sees bytes of other objects and must overwrite
    /// each.
    pub fn fill<E>(self: &Arc<Self>, length: usize, fill: impl FnOnce(&mut [u8]) -> Result<(), E>) -> Result<Bytes, E> {
        if length <= self.size / 2 || length > self.size {
            let mut bytes = vec![0; length];
            fill(&mut bytes)?;
            return Ok(Bytes::from(bytes));
        }
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut piece = Piece { buffer: free.unwrap_or_else(|| vec![0; self.size]), length, of: self.clone() };
        fill(&mut piece.buffer[..length])?;
        Ok(Bytes::from_owner(piece))
    }
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.buffer[..self.length]
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        let mut free = self.of.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < self.of.keep {
            free.push(std::mem::take(&mut self.buffer));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_used_again() {
        let buffers = Arc::new(Buffers::new(100, 2));
        let take = |length: usize, byte: u8| {
            buffers
                .fill(length, |into| {
                    into.fill(byte);
                    Ok::<(), ()>(())
                })
                .unwrap()
        };
        let pieces = [take(100, 1), take(51, 2), take(60, 3), take(50, 4), take(101, 5)];
        for (piece, (length, byte)) in pieces.iter().zip([(100, 1), (51, 2), (60, 3), (50, 4), (101, 5)]) {
            assert_eq!(piece[..], vec![byte; length]);
        }
        let first = pieces[1].as_ptr();
        drop(pieces);
        assert_eq!(buffers.free.lock().unwrap().len(), 2);
        let again = [take(70, 6), take(70, 7)];
        assert!(again.iter().any(|piece| piece.as_ptr() == first));
        assert!(again[0].iter().all(|&byte| byte == 6) && again[0].len() == 70);
        assert!(buffers.fill(70, |_| Err("unreadable")).is_err());
        assert_eq!(buffers.free.lock().unwrap().len(), 1);
    }
}
