//! The layout of an object's chunks: a function of the code's shape, the block length and the
//! object's length.
//!
//! A `Layout` exists only if its numbers are within the format's limits, so its arithmetic cannot
//! overflow.

use super::FormatError;

/// The length of a chunk file's header in bytes.
pub const HEADER_BYTES: usize = 4096;
/// The length of a record header without its checksums, in bytes.
pub(super) const RECORD_FIXED_BYTES: usize = 64;

/// The length of a record header with this many checksums, padded to 64 bytes.
pub(super) fn record_header_bytes(granules: usize) -> usize {
    RECORD_FIXED_BYTES + (granules * 8).next_multiple_of(64)
}

/// The longest block of a stripe: 1 GiB.
pub const MAX_BLOCK_BYTES: usize = 1 << 30;
/// The shortest block of a full stripe: 512 bytes. So record headers stay a small part of a chunk.
pub const MIN_BLOCK_BYTES: usize = 512;
/// The maximum length of all blocks of a stripe together: 4 GiB. It bounds the memory that a header
/// can demand of a reader.
pub const MAX_STRIPE_BYTES: usize = 4 << 30;
/// The longest object: 1 EiB.
pub const MAX_OBJECT_BYTES: u64 = 1 << 60;
const MIN_GRANULE_BYTES: usize = 512;
const MAX_GRANULES: usize = 1 << 16;

/// The geometry of one object's chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    k: usize,
    m: usize,
    unit: usize,
    block_bytes: usize,
    granule_bytes: usize,
    object_bytes: u64,
}

impl Layout {
    /// The layout of an object of `object_bytes` bytes. Blocks have `block_bytes` bytes (a multiple
    /// of `unit`) in every stripe but the last. Each `granule_bytes` bytes (a power of two) of a
    /// block have a checksum.
    ///
    /// # Errors
    /// The limit that a number exceeds.
    pub fn new(
        (k, m): (usize, usize),
        unit: usize,
        block_bytes: usize,
        granule_bytes: usize,
        object_bytes: u64,
    ) -> Result<Self, FormatError> {
        let allow =
            |good: bool, otherwise: &'static str| if good { Ok(()) } else { Err(FormatError::Field(otherwise)) };
        allow((1..=256).contains(&k) && m <= 256 - k, "k + m is not within 1 and 256 blocks")?;
        let block = MIN_BLOCK_BYTES..=MAX_BLOCK_BYTES;
        allow(block.contains(&block_bytes), "the block length is not within 512 bytes and 1 GiB")?;
        allow(block_bytes <= MAX_STRIPE_BYTES / (k + m), "the blocks of a stripe are longer than 4 GiB together")?;
        allow(unit >= 1 && block_bytes.is_multiple_of(unit), "the block length is not a multiple of the code's unit")?;
        let granule = granule_bytes.is_power_of_two() && (MIN_GRANULE_BYTES..=MAX_BLOCK_BYTES).contains(&granule_bytes);
        allow(granule, "the granule length is not a power of two within 512 bytes and 1 GiB")?;
        allow(block_bytes.div_ceil(granule_bytes) <= MAX_GRANULES, "a block has more than 65536 granules")?;
        allow(object_bytes <= MAX_OBJECT_BYTES, "the object is longer than 1 EiB")?;
        Ok(Self { k, m, unit, block_bytes, granule_bytes, object_bytes })
    }

    /// The same layout for another object length.
    ///
    /// # Errors
    /// If it is longer than `MAX_OBJECT_BYTES`.
    pub fn with_object_bytes(self, object_bytes: u64) -> Result<Self, FormatError> {
        Self::new((self.k, self.m), self.unit, self.block_bytes, self.granule_bytes, object_bytes)
    }

    /// Data blocks per stripe.
    pub fn k(&self) -> usize {
        self.k
    }

    /// Parity blocks per stripe.
    pub fn m(&self) -> usize {
        self.m
    }

    /// All blocks per stripe.
    pub fn blocks(&self) -> usize {
        self.k + self.m
    }

    /// Block lengths are multiples of this many bytes.
    pub fn unit(&self) -> usize {
        self.unit
    }

    /// The block length of a full stripe, in bytes.
    pub fn full_block_bytes(&self) -> usize {
        self.block_bytes
    }

    /// The bytes that one checksum covers.
    pub fn granule_bytes(&self) -> usize {
        self.granule_bytes
    }

    /// User data of the object, in bytes.
    pub fn object_bytes(&self) -> u64 {
        self.object_bytes
    }

    /// User data of a full stripe, in bytes.
    pub fn stripe_bytes(&self) -> usize {
        self.k * self.block_bytes
    }

    /// The number of stripes of the object.
    pub fn stripes(&self) -> u64 {
        self.object_bytes.div_ceil(self.stripe_bytes() as u64)
    }

    /// User data of one stripe, in bytes.
    pub fn data_bytes(&self, stripe: u64) -> usize {
        let start = stripe.saturating_mul(self.stripe_bytes() as u64);
        self.object_bytes.saturating_sub(start).min(self.stripe_bytes() as u64) as usize
    }

    /// The block length of one stripe, in bytes.
    pub fn block_bytes(&self, stripe: u64) -> usize {
        self.block_bytes_for(self.data_bytes(stripe))
    }

    /// The block length of a stripe with `data_bytes` of user data: the shortest that the data and
    /// the code's unit allow.
    pub fn block_bytes_for(&self, data_bytes: usize) -> usize {
        data_bytes.div_ceil(self.k).next_multiple_of(self.unit).min(self.block_bytes)
    }

    /// The length of the record header before a block of `block_bytes` bytes.
    pub fn record_header_bytes(&self, block_bytes: usize) -> usize {
        record_header_bytes(block_bytes.div_ceil(self.granule_bytes))
    }

    /// The length of the record of a full stripe, in bytes.
    pub fn full_record_bytes(&self) -> usize {
        self.record_header_bytes(self.block_bytes) + self.block_bytes
    }

    /// The length of a stripe's record: its header and its block.
    pub fn record_bytes(&self, stripe: u64) -> usize {
        let block = self.block_bytes(stripe);
        self.record_header_bytes(block) + block
    }

    /// The offset of a stripe's record in the chunk.
    pub fn record_offset(&self, stripe: u64) -> u64 {
        (HEADER_BYTES as u64).saturating_add(stripe.saturating_mul(self.full_record_bytes() as u64))
    }

    /// The length of a complete chunk file, in bytes.
    pub fn file_bytes(&self) -> u64 {
        let Some(last) = self.stripes().checked_sub(1) else {
            return HEADER_BYTES as u64;
        };
        self.record_offset(last) + self.record_bytes(last) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_stripe_is_as_short_as_its_data() {
        let layout = Layout::new((4, 2), 64, 4096, 512, 3 * 4 * 4096 + 257).unwrap();
        assert_eq!(layout.stripes(), 4);
        assert_eq!([0, 2, 3, 4].map(|s| layout.data_bytes(s)), [4 * 4096, 4 * 4096, 257, 0]);
        assert_eq!([0, 2, 3].map(|s| layout.block_bytes(s)), [4096, 4096, 128]);
        assert_eq!(layout.record_offset(2), 4096 + 2 * (128 + 4096));
        assert_eq!(layout.file_bytes(), 4096 + 3 * (128 + 4096) + 128 + 128);
    }

    #[test]
    fn an_empty_object_is_its_headers() {
        let layout = Layout::new((4, 2), 1, 4096, 512, 0).unwrap();
        assert_eq!((layout.stripes(), layout.file_bytes()), (0, 4096));
    }

    #[test]
    fn the_largest_numbers_do_not_overflow() {
        for (k, m, block) in [(1, 0, 512), (1, 255, 1 << 24), (256, 0, 1 << 24), (4, 0, MAX_BLOCK_BYTES)] {
            let layout = Layout::new((k, m), 1, block, 1 << 14, MAX_OBJECT_BYTES).unwrap();
            assert!(layout.file_bytes() < i64::MAX as u64);
        }
    }

    #[test]
    fn numbers_beyond_the_limits_are_refused() {
        let good = Layout::new((4, 2), 1, 4096, 512, 9);
        assert!(good.is_ok());
        for bad in [
            Layout::new((0, 2), 1, 4096, 512, 9),
            Layout::new((255, 2), 1, 4096, 512, 9),
            Layout::new((usize::MAX, 2), 1, 4096, 512, 9),
            Layout::new((4, 2), 0, 4096, 512, 9),
            Layout::new((4, 2), 64, 4097, 512, 9),
            Layout::new((4, 2), 1, 511, 512, 9),
            Layout::new((4, 2), 1, MAX_BLOCK_BYTES + 1, 1 << 20, 9),
            Layout::new((250, 2), 1, MAX_BLOCK_BYTES, 1 << 20, 9),
            Layout::new((4, 2), 1, 4096, 513, 9),
            Layout::new((4, 2), 1, 4096, 0, 9),
            Layout::new((2, 1), 1, MAX_BLOCK_BYTES, 512, 9),
            Layout::new((4, 2), 1, 4096, 512, MAX_OBJECT_BYTES + 1),
        ] {
            assert!(bad.is_err());
        }
    }
}
