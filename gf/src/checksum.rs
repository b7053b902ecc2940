//! The checksum of everything that Weft stores: CRC-64/NVME (`docs/format.md`), by carry-less
//! multiplication where the processor has it. Computed on a region right after it was coded, it
//! finds the bytes still in cache.

use crc_fast::{CrcAlgorithm, Digest, checksum};

/// The checksum of some bytes.
pub fn crc64(bytes: &[u8]) -> u64 {
    checksum(CrcAlgorithm::Crc64Nvme, bytes)
}

/// A checksum that grows piece by piece.
#[derive(Clone, Debug)]
pub struct Crc64(Digest);

impl Default for Crc64 {
    fn default() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc64Nvme))
    }
}

impl Crc64 {
    /// Adds the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The checksum of all bytes so far.
    pub fn value(&self) -> u64 {
        self.0.finalize()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_catalogued_check_value() {
        assert_eq!(crc64(b"123456789"), 0xAE8B_1486_0A79_9888);
        let mut pieces = Crc64::default();
        pieces.update(b"1234");
        pieces.update(b"56789");
        assert_eq!(pieces.value(), crc64(b"123456789"));
    }
}
