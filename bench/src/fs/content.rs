//! Data that looks random, costs next to nothing to make, and can be checked wherever it is read.
//!
//! A sector of 4 KiB is a fixed block of random bytes in which the first sixteen say which sector
//! of which generation it is. So no two sectors are equal, and one that is stale, misplaced or torn
//! at its ends is found out.

use std::io;

/// Bytes of a sector.
pub const SECTOR: usize = 4096;

/// The blocks of random bytes: neighbours differ in every byte, so that no file system makes less
/// of them.
const BLOCKS: u64 = 64;

/// The content of files.
pub struct Content {
    blocks: Vec<u8>,
}

impl Content {
    /// The same content in every run.
    pub fn new() -> Self {
        let words = 0..BLOCKS * SECTOR as u64 / 8;
        Self { blocks: words.flat_map(|at| mixed(at.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_le_bytes()).collect() }
    }

    fn block(&self, sector: u64) -> &[u8] {
        let at = (sector % BLOCKS) as usize * SECTOR;
        &self.blocks[at..at + SECTOR]
    }

    /// Fills a buffer with the sectors that begin with that number.
    pub fn fill(&self, buffer: &mut [u8], first: u64, generation: u64) {
        for (sector, at) in buffer.chunks_exact_mut(SECTOR).zip(first..) {
            sector.copy_from_slice(self.block(at));
            sector[..16].copy_from_slice(&mark(at, generation));
        }
    }

    /// Compares what was read with what was written.
    pub fn check(&self, buffer: &[u8], first: u64, generation: u64) -> io::Result<()> {
        for (sector, at) in buffer.chunks_exact(SECTOR).zip(first..) {
            if sector[..16] != mark(at, generation) || sector[16..] != self.block(at)[16..] {
                let place = at * SECTOR as u64;
                return Err(io::Error::new(io::ErrorKind::InvalidData, format!("wrong data read at offset {place}")));
            }
        }
        Ok(())
    }
}

fn mark(sector: u64, generation: u64) -> [u8; 16] {
    let mut mark = [0; 16];
    mark[..8].copy_from_slice(&mixed(sector).to_le_bytes());
    mark[8..].copy_from_slice(&mixed(generation ^ sector << 20).to_le_bytes());
    mark
}

/// The finalizer of SplitMix64, a bijection.
pub fn mixed(mut z: u64) -> u64 {
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stale_misplaced_or_changed_is_found() {
        let content = Content::new();
        let mut buffer = vec![0; 2 * SECTOR];
        content.fill(&mut buffer, 7, 3);
        content.check(&buffer, 7, 3).unwrap();
        content.check(&buffer[SECTOR..], 8, 3).unwrap();
        assert!(content.check(&buffer, 7, 4).is_err() && content.check(&buffer, 8, 3).is_err());
        buffer[SECTOR + 100] ^= 1;
        assert!(content.check(&buffer, 7, 3).unwrap_err().to_string().contains("offset 32768"));
    }
}
