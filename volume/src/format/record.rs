//! The header before each block: it identifies the block, and carries its checksums.
//!
//! It repeats the object, position and stripe. So a block that was written to, or read from, the
//! wrong place is detected even if its checksum matches.

use super::FormatError;
use super::bytes::{Reader, Writer};
use super::layout::{Layout, MAX_BLOCK_BYTES, RECORD_FIXED_BYTES as FIXED_BYTES, record_header_bytes};
use super::object_id::ObjectId;
use gf::checksum::crc64;
use plan::Position;

const MAGIC: [u8; 8] = *b"WEFTREC\n";
const CHECKSUM_AT: usize = 56;

/// The content of a record header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    /// The object.
    pub object: ObjectId,
    /// The stripe's number in the object.
    pub stripe: u64,
    /// User data in the whole stripe, in bytes.
    pub data_bytes: u64,
    /// The length of the block after this header, in bytes.
    pub block_bytes: usize,
    /// The bytes that one checksum covers; the last may cover fewer.
    pub granule_bytes: usize,
    /// The block's position in the stripe.
    pub position: Position,
    /// CRC-64/NVME of each granule of the block.
    pub checksums: Vec<u64>,
}

impl RecordHeader {
    /// The record header for a block of an object.
    pub fn new(
        object: ObjectId,
        layout: &Layout,
        position: Position,
        stripe: u64,
        data_bytes: usize,
        checksums: Vec<u64>,
    ) -> Self {
        let (block_bytes, granule_bytes) = (layout.block_bytes_for(data_bytes), layout.granule_bytes());
        Self { object, stripe, data_bytes: data_bytes as u64, block_bytes, granule_bytes, position, checksums }
    }

    /// The length of a record header with this many checksums, padded to 64 bytes.
    pub fn encoded_bytes(granules: usize) -> usize {
        record_header_bytes(granules)
    }

    /// Writes the header into `bytes`, whose length must be `encoded_bytes` of its checksums.
    ///
    /// # Panics
    /// If `bytes` has another length, or the number of checksums does not match the block.
    pub fn encode(&self, bytes: &mut [u8]) {
        assert_eq!(self.checksums.len(), self.block_bytes.div_ceil(self.granule_bytes), "a checksum for each granule");
        assert_eq!(bytes.len(), Self::encoded_bytes(self.checksums.len()), "room for the record header");
        let mut to = Writer::new(bytes);
        to.bytes(&MAGIC);
        to.bytes(&self.object.0);
        to.u64(self.stripe);
        to.u64(self.data_bytes);
        to.u32(self.block_bytes as u32);
        to.u32(self.granule_bytes as u32);
        to.u32(self.checksums.len() as u32);
        to.u16(self.position.0);
        to.u16(0);
        to.u64(0);
        for &checksum in &self.checksums {
            to.u64(checksum);
        }
        let at = to.at();
        bytes[at..].fill(0);
        // The checksum's own field counts as zeroes, so that one pass covers the bytes before and
        // after it.
        let checksum = crc64(bytes);
        bytes[CHECKSUM_AT..FIXED_BYTES].copy_from_slice(&checksum.to_le_bytes());
    }

    /// The length of the record that begins with `bytes`, in bytes, and the checksum in its header,
    /// which is not checked. None if they are not the beginning of one.
    pub(super) fn glance(bytes: &[u8]) -> Option<(u64, u64)> {
        let mut from = Reader::new(bytes.get(..FIXED_BYTES)?);
        (from.array() == MAGIC).then_some(())?;
        let _: ([u8; 16], u64, u64) = (from.array(), from.u64(), from.u64());
        let (block, _, granules) = (from.u32() as usize, from.u32(), from.u32() as usize);
        let checksum = u64::from_le_bytes(bytes[CHECKSUM_AT..FIXED_BYTES].try_into().ok()?);
        let is_one = block <= MAX_BLOCK_BYTES && granules <= block;
        is_one.then(|| ((Self::encoded_bytes(granules) + block) as u64, checksum))
    }

    /// Decodes the record header at the beginning of `bytes`.
    ///
    /// # Errors
    /// If the bytes are too few, damaged, or violate the format's limits.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        if bytes.len() < FIXED_BYTES {
            return Err(FormatError::Short { have: bytes.len(), need: FIXED_BYTES });
        }
        let mut from = Reader::new(bytes);
        if from.array() != MAGIC {
            return Err(FormatError::Magic);
        }
        let object = ObjectId(from.array());
        let (stripe, data_bytes) = (from.u64(), from.u64());
        let [block_bytes, granule_bytes, granules] = [from.u32(), from.u32(), from.u32()].map(|n| n as usize);
        let (position, _reserved, stored) = (Position(from.u16()), from.u16(), from.u64());
        // Check these before the checksum, because they determine which bytes it covers.
        if block_bytes > MAX_BLOCK_BYTES || granule_bytes == 0 || granules != block_bytes.div_ceil(granule_bytes) {
            return Err(FormatError::Field("the number of granules does not fit the block"));
        }
        let need = Self::encoded_bytes(granules);
        let bytes = bytes.get(..need).ok_or(FormatError::Short { have: bytes.len(), need })?;
        let mut checksum = gf::checksum::Crc64::default();
        for piece in [&bytes[..CHECKSUM_AT], &[0; 8], &bytes[FIXED_BYTES..]] {
            checksum.update(piece);
        }
        if checksum.value() != stored {
            return Err(FormatError::Checksum);
        }
        if position.0 >= 256 {
            return Err(FormatError::Field("the position is not below 256"));
        }
        let checksums = (0..granules).map(|_| from.u64()).collect();
        Ok(Self { object, stripe, data_bytes, block_bytes, granule_bytes, position, checksums })
    }

    /// The offset in the block and the number of the first granule that does not match its
    /// checksum.
    ///
    /// # Panics
    /// If the length of the block differs from the header's.
    pub fn first_bad_granule(&self, block: &[u8]) -> Option<(usize, usize)> {
        assert_eq!(block.len(), self.block_bytes, "the block that the header describes");
        let granules = block.chunks(self.granule_bytes).zip(&self.checksums).enumerate();
        let mut bad = granules.filter(|(_, (granule, checksum))| crc64(granule) != **checksum);
        bad.next().map(|(number, _)| (number * self.granule_bytes, number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn example(block: &[u8], granule_bytes: usize) -> RecordHeader {
        RecordHeader {
            object: ObjectId(*b"0123456789abcdef"),
            stripe: 7,
            data_bytes: (4 * block.len() as u64).saturating_sub(3),
            block_bytes: block.len(),
            granule_bytes,
            position: Position(5),
            checksums: block.chunks(granule_bytes).map(crc64).collect(),
        }
    }

    fn encoded(header: &RecordHeader) -> Vec<u8> {
        let mut bytes = vec![0xee; RecordHeader::encoded_bytes(header.checksums.len())];
        header.encode(&mut bytes);
        bytes
    }

    #[test]
    fn the_format_of_version_1_is_fixed() {
        let bytes = encoded(&example(&[7; 5000], 512));
        assert_eq!((bytes.len(), bytes[52], u32::from_le_bytes(bytes[40..44].try_into().unwrap())), (192, 5, 5000));
        assert_eq!(crc64(&bytes), GOLDEN, "{:#x}", crc64(&bytes));
    }
    const GOLDEN: u64 = 0x3c76_987d_8aef_6a4a;

    #[test]
    fn a_bad_granule_is_located() {
        let mut block = vec![7; 5000];
        let header = example(&block, 512);
        assert_eq!(header.first_bad_granule(&block), None);
        block[4999] ^= 0x80;
        assert_eq!(header.first_bad_granule(&block), Some((4608, 9)));
        block[512] ^= 1;
        assert_eq!(header.first_bad_granule(&block), Some((512, 1)));
    }

    proptest! {
        #[test]
        fn what_was_encoded_decodes(length in 0usize..9000, granule in 9u32..13, padding in 0usize..100) {
            let header = example(&vec![1; length], 1 << granule);
            let mut bytes = encoded(&header);
            bytes.resize(bytes.len() + padding, 0xaa);
            prop_assert_eq!(RecordHeader::decode(&bytes), Ok(header));
        }

        #[test]
        fn any_flipped_bit_is_detected(bit in 0usize..192 * 8) {
            let mut bytes = encoded(&example(&[7; 5000], 512));
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(RecordHeader::decode(&bytes).is_err());
        }

        #[test]
        fn arbitrary_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..400), magic: bool) {
            if magic && bytes.len() >= 8 {
                bytes[..8].copy_from_slice(&MAGIC);
            }
            prop_assert!(RecordHeader::decode(&bytes).is_err());
        }
    }
}
