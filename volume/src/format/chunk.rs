//! The chunks of a volume: a file header, then records of stripes of any length. `docs/format.md`
//! has the tables.
//!
//! They differ from the fragments of single objects: a chunk grows while its set is open, so its
//! header does not depend on what follows.

use super::bytes::{Reader, Writer};
use super::{FORMAT_VERSION, FormatError, MAX_BLOCK_BYTES, Timestamp};
use gf::checksum::{Crc64, crc64};
use plan::{Position, RecordOffset, SetId, StripeSeq};

/// The length of the file header in bytes.
pub const CHUNK_HEADER_BYTES: usize = 4096;
/// The bytes of a block that one checksum covers.
pub const GRANULE_BYTES: usize = 4096;
/// Records begin at multiples of this, in bytes.
pub const RECORD_ALIGNMENT: usize = 64;

/// Blocks of at least this length that consist of whole pages begin at a page boundary.
const LONG_BLOCK: usize = 256 << 10;
const PAGE: usize = 4096;

const HEADER_MAGIC: [u8; 8] = *b"\x89WFTC\r\n\x1a";
const RECORD_MAGIC: [u8; 8] = *b"WEFTSTR\n";
const CODE_BYTES: usize = 100;
const HEADER_CHECKSUM_AT: usize = CHUNK_HEADER_BYTES - 8;
const FIXED_BYTES: usize = 80;
const CHECKSUM_AT: usize = 72;

/// Identifies a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VolumeId(pub [u8; 16]);

/// The file header of a chunk of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkHeader {
    /// The volume.
    pub volume: VolumeId,
    /// The chunk set.
    pub set: SetId,
    /// The position of its blocks in the stripes.
    pub position: Position,
    /// Data and parity blocks of a stripe.
    pub shape: (u16, u16),
    /// The code's canonical spec.
    pub code: String,
    /// Block lengths are multiples of this many bytes: a property of the code, stored for readers
    /// that do not have the code.
    pub unit: u32,
    /// When the chunk set was created.
    pub created: Timestamp,
}

impl ChunkHeader {
    /// Encodes the header.
    ///
    /// # Panics
    /// If the code's spec is longer than 100 bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; CHUNK_HEADER_BYTES];
        let mut to = Writer::new(&mut bytes);
        to.bytes(&HEADER_MAGIC);
        to.u32(FORMAT_VERSION);
        to.u32(CHUNK_HEADER_BYTES as u32);
        to.u64(0);
        to.u64(0);
        to.bytes(&self.volume.0);
        to.u64(self.set.0);
        to.u16(self.position.0);
        to.u16(self.shape.0);
        to.u16(self.shape.1);
        to.text(self.code.as_bytes(), CODE_BYTES);
        to.u32(self.unit);
        to.u32(GRANULE_BYTES as u32);
        to.i64(self.created.seconds);
        to.u32(self.created.nanoseconds);
        let checksum = crc64(&bytes[..HEADER_CHECKSUM_AT]);
        bytes[HEADER_CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Decodes the header in the first 4096 bytes of a chunk.
    ///
    /// # Errors
    /// See the variants of [`FormatError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let need = CHUNK_HEADER_BYTES;
        let bytes = bytes.get(..need).ok_or(FormatError::Short { have: bytes.len(), need })?;
        let mut from = Reader::new(bytes);
        if from.array() != HEADER_MAGIC {
            return Err(FormatError::Magic);
        }
        if crc64(&bytes[..HEADER_CHECKSUM_AT]).to_le_bytes() != bytes[HEADER_CHECKSUM_AT..] {
            return Err(FormatError::Checksum);
        }
        let version = from.u32();
        if version > FORMAT_VERSION {
            return Err(FormatError::Newer(version));
        }
        if from.u32() != CHUNK_HEADER_BYTES as u32 {
            return Err(FormatError::Field("the header length is not 4096"));
        }
        let _compatible = from.u64();
        match from.u64() {
            0 => {}
            unknown => return Err(FormatError::Features(unknown)),
        }
        let (volume, set) = (VolumeId(from.array()), SetId(from.u64()));
        let (position, k, m) = (Position(from.u16()), from.u16(), from.u16());
        let code = from.text(CODE_BYTES).filter(|code| !code.is_empty() && code.iter().all(u8::is_ascii_graphic));
        let code = code.ok_or(FormatError::Field("the code is not 1 to 100 characters of text"))?;
        let unit = from.u32();
        if unit == 0 || unit as usize > MAX_BLOCK_BYTES {
            return Err(FormatError::Field("the unit is out of range"));
        }
        if from.u32() != GRANULE_BYTES as u32 {
            return Err(FormatError::Field("the granule length is not 4096"));
        }
        if k == 0 || usize::from(k) + usize::from(m) > 256 || position.0 >= k + m {
            return Err(FormatError::Field("the position or the shape is out of range"));
        }
        let created = Timestamp { seconds: from.i64(), nanoseconds: from.u32() };
        if created.nanoseconds >= 1_000_000_000 {
            return Err(FormatError::Field("the time has too many nanoseconds"));
        }
        let code = String::from_utf8_lossy(code).into_owned();
        Ok(Self { volume, set, position, shape: (k, m), code, unit, created })
    }
}

/// The content of a record header: its stripe and its block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StripeHeader {
    /// The volume.
    pub volume: VolumeId,
    /// The chunk set.
    pub set: SetId,
    /// The position of the block.
    pub position: Position,
    /// The offset of the record in the chunk.
    pub record: RecordOffset,
    /// Identifies the stripe in the volume.
    pub sequence: StripeSeq,
    /// User data of the stripe, in bytes.
    pub data_bytes: u32,
    /// The length of the manifest after the user data, in bytes.
    pub manifest_bytes: u32,
    /// The length of the block, in bytes.
    pub block_bytes: u32,
    /// CRC-64/NVME of each granule of the block; the last may be shorter than 4096 bytes.
    pub checksums: Vec<u64>,
}

impl StripeHeader {
    /// Identifies the stripe: two stripes at the same record have different values.
    pub fn stripe(&self) -> (StripeSeq, u32, u32) {
        (self.sequence, self.data_bytes, self.manifest_bytes)
    }

    /// The record of a block of `block` bytes begins at a multiple of this, and so does its block.
    /// Long blocks begin at page boundaries, so that a page of a file is a page on the disk and
    /// needs no copy on its way.
    pub fn alignment(block: usize) -> usize {
        if block >= LONG_BLOCK && block.is_multiple_of(PAGE) { PAGE } else { RECORD_ALIGNMENT }
    }

    /// The length of the record header of a block of `block` bytes.
    pub fn encoded_bytes(block: usize) -> usize {
        (FIXED_BYTES + block.div_ceil(GRANULE_BYTES) * 8).next_multiple_of(Self::alignment(block))
    }

    /// The length of a record with a block of `block` bytes.
    pub fn record_bytes(block: usize) -> usize {
        Self::encoded_bytes(block) + block.next_multiple_of(RECORD_ALIGNMENT)
    }

    /// Encodes the header.
    ///
    /// # Panics
    /// If the number of checksums differs from the number of granules.
    pub fn encode(&self) -> Vec<u8> {
        let block = self.block_bytes as usize;
        assert_eq!(self.checksums.len(), block.div_ceil(GRANULE_BYTES), "a checksum for each granule");
        let mut bytes = vec![0; Self::encoded_bytes(block)];
        let mut to = Writer::new(&mut bytes);
        to.bytes(&RECORD_MAGIC);
        to.bytes(&self.volume.0);
        to.u64(self.set.0);
        to.u64(self.sequence.0);
        to.u32(self.record.0);
        to.u32(self.data_bytes);
        to.u32(self.manifest_bytes);
        to.u32(self.block_bytes);
        to.u32(self.checksums.len() as u32);
        to.u16(self.position.0);
        to.u16(0);
        to.u32(GRANULE_BYTES as u32);
        to.u32(0);
        to.u64(0);
        for &checksum in &self.checksums {
            to.u64(checksum);
        }
        // The checksum's own field counts as zeroes.
        let checksum = crc64(&bytes);
        bytes[CHECKSUM_AT..FIXED_BYTES].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// The checksum that the header has on the disk: it covers all other fields.
    pub fn checksum(&self) -> u64 {
        let bytes = self.encode();
        u64::from_le_bytes(bytes[CHECKSUM_AT..FIXED_BYTES].try_into().expect("eight bytes"))
    }

    /// The length of the record that begins with `bytes` at `offset` of its chunk, in bytes, and
    /// the checksum in its header, which is not checked. None if they are not the beginning of one.
    pub(super) fn glance(bytes: &[u8], offset: u64) -> Option<(u64, u64)> {
        let mut from = Reader::new(bytes.get(..FIXED_BYTES)?);
        (from.array() == RECORD_MAGIC).then_some(())?;
        let _: ([u8; 16], u64, u64) = (from.array(), from.u64(), from.u64());
        let (record, _, _, block) = (from.u32(), from.u32(), from.u32(), from.u32() as usize);
        let is_one = u64::from(record) == offset && block <= MAX_BLOCK_BYTES;
        let checksum = u64::from_le_bytes(bytes[CHECKSUM_AT..FIXED_BYTES].try_into().ok()?);
        is_one.then(|| (Self::record_bytes(block) as u64, checksum))
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
        if from.array() != RECORD_MAGIC {
            return Err(FormatError::Magic);
        }
        let volume = VolumeId(from.array());
        let (set, sequence, record) = (SetId(from.u64()), StripeSeq(from.u64()), RecordOffset(from.u32()));
        let [data_bytes, manifest_bytes, block_bytes, granules] = [from.u32(), from.u32(), from.u32(), from.u32()];
        let (position, _reserved) = (Position(from.u16()), from.u16());
        let (granule_bytes, _more, stored) = (from.u32(), from.u32(), from.u64());
        // Check these before the checksum, because they determine which bytes it covers.
        let block = block_bytes as usize;
        let fits = granule_bytes as usize == GRANULE_BYTES && granules as usize == block.div_ceil(GRANULE_BYTES);
        if block > MAX_BLOCK_BYTES || !fits {
            return Err(FormatError::Field("the number of granules does not fit the block"));
        }
        let need = Self::encoded_bytes(block);
        let bytes = bytes.get(..need).ok_or(FormatError::Short { have: bytes.len(), need })?;
        let mut checksum = Crc64::default();
        for piece in [&bytes[..CHECKSUM_AT], &[0; 8], &bytes[FIXED_BYTES..]] {
            checksum.update(piece);
        }
        if checksum.value() != stored {
            return Err(FormatError::Checksum);
        }
        let checksums = (0..granules).map(|_| from.u64()).collect();
        Ok(Self { volume, set, position, record, sequence, data_bytes, manifest_bytes, block_bytes, checksums })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header() -> StripeHeader {
        StripeHeader {
            volume: VolumeId([7; 16]),
            set: SetId(3),
            position: Position(2),
            record: RecordOffset(4096),
            sequence: StripeSeq(9),
            data_bytes: 10_000,
            manifest_bytes: 33,
            block_bytes: 5056,
            checksums: vec![1, 2],
        }
    }

    fn chunk() -> ChunkHeader {
        ChunkHeader {
            volume: VolumeId([7; 16]),
            set: SetId(3),
            position: Position(2),
            shape: (4, 2),
            code: "rs:4+2".into(),
            unit: 1,
            created: Timestamp { seconds: 1_700_000_000, nanoseconds: 5 },
        }
    }

    fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
        let checksum = crc64(&bytes[..HEADER_CHECKSUM_AT]);
        bytes[HEADER_CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    #[test]
    fn the_bytes_of_version_1_stay() {
        let record = header().encode();
        assert_eq!((record.len(), crc64(&record)), (128, 0xd263_1f99_120c_8325), "{:#x}", crc64(&record));
        let bytes = chunk().encode();
        assert_eq!((bytes[48], bytes[56], bytes[62], &bytes[64..70]), (3, 2, 6, &b"rs:4+2"[..]));
        assert_eq!(crc64(&bytes), 0x0cef_cfc4_d490_91bd, "{:#x}", crc64(&bytes));
    }

    #[test]
    fn what_a_newer_weft_wrote_is_told_from_damage() {
        let mut bytes = chunk().encode();
        bytes[8] = 2;
        assert_eq!(ChunkHeader::decode(&bytes), Err(FormatError::Checksum));
        assert_eq!(ChunkHeader::decode(&sealed(bytes)), Err(FormatError::Newer(2)));
        let mut bytes = chunk().encode();
        bytes[24] = 4;
        assert_eq!(ChunkHeader::decode(&sealed(bytes)), Err(FormatError::Features(4)));
        let mut bytes = chunk().encode();
        bytes[16] = 4;
        assert_eq!(ChunkHeader::decode(&sealed(bytes)), Ok(chunk()));
    }

    proptest! {
        #[test]
        fn what_is_changed_is_noticed(at in 0usize..128, bit in 0u8..8) {
            let mut bytes = header().encode();
            prop_assert_eq!(StripeHeader::decode(&bytes), Ok(header()));
            bytes[at] ^= 1 << bit;
            prop_assert!(StripeHeader::decode(&bytes).is_err());
        }

        #[test]
        fn any_bytes_are_decoded_or_refused(
            bytes in prop::collection::vec(any::<u8>(), 0..300), real in any::<bool>()
        ) {
            let mut bytes = bytes;
            if real && bytes.len() > 8 {
                bytes[..8].copy_from_slice(&RECORD_MAGIC);
            }
            let _ = StripeHeader::decode(&bytes);
            bytes.resize(CHUNK_HEADER_BYTES, 0);
            bytes[..8].copy_from_slice(&HEADER_MAGIC);
            prop_assert!(ChunkHeader::decode(&bytes).is_err());
        }

        #[test]
        fn a_header_of_any_fields_is_decoded_or_refused(
            at in 8usize..250, bytes in prop::collection::vec(any::<u8>(), 1..9)
        ) {
            let mut header = chunk().encode();
            header[at..at + bytes.len()].copy_from_slice(&bytes);
            // Seal with a valid checksum, so that the fields themselves are checked.
            if let Ok(decoded) = ChunkHeader::decode(&sealed(header)) {
                prop_assert_eq!(ChunkHeader::decode(&decoded.encode()), Ok(decoded));
            }
        }

        #[test]
        fn a_record_of_any_fields_is_decoded_or_refused(
            at in 8usize..120, bytes in prop::collection::vec(any::<u8>(), 1..9)
        ) {
            let mut record = header().encode();
            record[at..at + bytes.len()].copy_from_slice(&bytes);
            record[CHECKSUM_AT..FIXED_BYTES].fill(0);
            let checksum = crc64(&record);
            record[CHECKSUM_AT..FIXED_BYTES].copy_from_slice(&checksum.to_le_bytes());
            if let Ok(decoded) = StripeHeader::decode(&record) {
                prop_assert_eq!(decoded.checksums.len(), decoded.block_bytes.div_ceil(4096) as usize);
            }
        }
    }
}
