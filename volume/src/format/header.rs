//! The header at the beginning of every chunk file. It identifies the file without any other file.

use super::bytes::{Reader, Writer};
use super::layout::{HEADER_BYTES, Layout};
use super::object_id::ObjectId;
use super::timestamp::Timestamp;
use super::{FORMAT_VERSION, FormatError};
use gf::checksum::crc64;
use plan::{Position, SetId};

const MAGIC: [u8; 8] = *b"\x89WEFT\r\n\x1a";
const CHECKSUM_AT: usize = HEADER_BYTES - 8;
const CODE_BYTES: usize = 100;
/// The longest name of an object in bytes: the maximum of a directory entry.
pub(crate) const MAX_NAME_BYTES: usize = 255;

/// The content of a chunk file's header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Optional features: a reader may ignore bits that it does not know.
    pub compatible: u64,
    /// The object that the chunk belongs to.
    pub object: ObjectId,
    /// The chunk set within a volume; 0 for an object that was encoded on its own.
    pub chunk_set: SetId,
    /// The position of the chunk's blocks in every stripe.
    pub position: Position,
    /// The code's canonical spec, at most 100 bytes.
    pub code: String,
    /// The geometry.
    pub layout: Layout,
    /// The object's name: 1 to 255 bytes without `/` and NUL, by convention UTF-8.
    pub name: Vec<u8>,
    /// The permission bits of the original file.
    pub mode: u32,
    /// When the original file was last modified.
    pub modified: Timestamp,
    /// When the original file was last read.
    pub accessed: Timestamp,
    /// When the object was encoded: of two objects with the same name, the newer counts.
    pub created: Timestamp,
}

impl Header {
    /// Encodes the header.
    ///
    /// # Panics
    /// If a field exceeds its documented limit.
    pub fn encode(&self) -> Box<[u8; HEADER_BYTES]> {
        let mut bytes = Box::new([0; HEADER_BYTES]);
        let layout = &self.layout;
        let mut to = Writer::new(&mut bytes[..]);
        to.bytes(&MAGIC);
        to.u32(FORMAT_VERSION);
        to.u32(HEADER_BYTES as u32);
        to.u64(self.compatible);
        to.u64(0);
        to.bytes(&self.object.0);
        to.u64(self.chunk_set.0);
        to.u16(self.position.0);
        to.u16(layout.k() as u16);
        to.u16(layout.m() as u16);
        to.text(self.code.as_bytes(), CODE_BYTES);
        to.u32(layout.unit() as u32);
        to.u32(layout.full_block_bytes() as u32);
        to.u32(layout.granule_bytes() as u32);
        to.u64(layout.object_bytes());
        to.u64(layout.stripes());
        to.u32(self.mode);
        for time in [self.modified, self.accessed, self.created] {
            to.i64(time.seconds);
            to.u32(time.nanoseconds);
        }
        to.text(&self.name, MAX_NAME_BYTES);
        let checksum = crc64(&bytes[..CHECKSUM_AT]);
        bytes[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Decodes the header in the first 4096 bytes of a chunk file.
    ///
    /// # Errors
    /// See the variants of [`FormatError`]. Magic, version, feature bits and checksum keep their
    /// places in all versions, so that `Newer` and `Features` differ from damage.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let bytes = bytes.get(..HEADER_BYTES).ok_or(FormatError::Short { have: bytes.len(), need: HEADER_BYTES })?;
        let mut from = Reader::new(bytes);
        if from.array() != MAGIC {
            return Err(FormatError::Magic);
        }
        if crc64(&bytes[..CHECKSUM_AT]).to_le_bytes() != bytes[CHECKSUM_AT..] {
            return Err(FormatError::Checksum);
        }
        let version = from.u32();
        if version > FORMAT_VERSION {
            return Err(FormatError::Newer(version));
        }
        let allow =
            |good: bool, otherwise: &'static str| if good { Ok(()) } else { Err(FormatError::Field(otherwise)) };
        allow(version == FORMAT_VERSION, "format version 0 does not exist")?;
        allow(from.u32() == HEADER_BYTES as u32, "the header length is not 4096")?;
        let compatible = from.u64();
        match from.u64() {
            0 => {}
            unknown => return Err(FormatError::Features(unknown)),
        }
        let object = ObjectId(from.array());
        let chunk_set = SetId(from.u64());
        let position = Position(from.u16());
        let [k, m] = [from.u16(), from.u16()].map(usize::from);
        let code = from.text(CODE_BYTES).filter(|code| !code.is_empty() && code.iter().all(u8::is_ascii_graphic));
        let code = code.ok_or(FormatError::Field("the code is not 1 to 100 characters of text"))?;
        let [unit, block, granule] = [from.u32(), from.u32(), from.u32()].map(|n| n as usize);
        let layout = Layout::new((k, m), unit, block, granule, from.u64())?;
        allow(position.index() < layout.blocks(), "the position is not below k + m")?;
        allow(from.u64() == layout.stripes(), "the number of stripes does not fit the object's length")?;
        let mode = from.u32();
        allow(mode <= 0o7777, "the mode has more than permission bits")?;
        let times = [(); 3].map(|()| Timestamp { seconds: from.i64(), nanoseconds: from.u32() });
        allow(times.iter().all(|t| t.nanoseconds < 1_000_000_000), "a time has a billion nanoseconds or more")?;
        let [modified, accessed, created] = times;
        let name = from.text(MAX_NAME_BYTES).filter(|name| valid_name(name));
        let name = name.ok_or(FormatError::Field("the name is not 1 to 255 bytes of a file name"))?.to_vec();
        let code = String::from_utf8_lossy(code).into_owned();
        Ok(Self { compatible, object, chunk_set, position, code, layout, name, mode, modified, accessed, created })
    }
}

/// Whether the bytes are a valid object name: one file in a directory, never a path out of it.
pub(crate) fn valid_name(name: &[u8]) -> bool {
    (1..=MAX_NAME_BYTES).contains(&name.len())
        && name != b"."
        && name != b".."
        && !name.iter().any(|&b| b == b'/' || b == 0)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub fn example() -> Header {
        let time = Timestamp { seconds: -5, nanoseconds: 999_999_999 };
        Header {
            compatible: 0,
            object: ObjectId(*b"0123456789abcdef"),
            chunk_set: SetId(0),
            position: Position(5),
            code: "rs:4+2".into(),
            layout: Layout::new((4, 2), 1, 1 << 20, 1 << 16, 123_456_789).unwrap(),
            name: b"na\xffme \n".to_vec(),
            mode: 0o640,
            modified: time,
            accessed: time,
            created: time,
        }
    }

    /// Recomputes the checksum of changed bytes, so that the later checks are reached.
    fn resealed(change: impl FnOnce(&mut [u8])) -> Result<Header, FormatError> {
        let mut bytes = example().encode();
        change(&mut bytes[..]);
        let checksum = crc64(&bytes[..CHECKSUM_AT]);
        bytes[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
        Header::decode(&bytes[..])
    }

    #[test]
    fn the_format_of_version_1_is_fixed() {
        // A golden value. A change of it is a change of the format, which needs a new version or a
        // feature bit.
        assert_eq!(
            crc64(&example().encode()[..CHECKSUM_AT]),
            GOLDEN,
            "{:#x}",
            crc64(&example().encode()[..CHECKSUM_AT])
        );
    }
    const GOLDEN: u64 = 0x0ffa_84d1_f267_5de7;

    #[test]
    fn the_fields_are_where_the_document_says() {
        let bytes = example().encode();
        assert_eq!(&bytes[..8], b"\x89WEFT\r\n\x1a");
        assert_eq!(bytes[56], 5);
        assert_eq!(&bytes[64..70], b"rs:4+2");
        assert_eq!(bytes[176..184], 123_456_789u64.to_le_bytes());
        assert_eq!(&bytes[234..241], b"na\xffme \n");
    }

    #[test]
    fn what_a_newer_weft_wrote_is_told_from_damage() {
        assert_eq!(resealed(|b| b[8] = 2), Err(FormatError::Newer(2)));
        assert_eq!(resealed(|b| b[24] = 4), Err(FormatError::Features(4)));
        assert_eq!(resealed(|b| b[16] = 4).unwrap().compatible, 4);
        let mut damaged = example().encode();
        damaged[8] = 2;
        assert_eq!(Header::decode(&damaged[..]), Err(FormatError::Checksum));
        assert_eq!(Header::decode(&damaged[1..]), Err(FormatError::Short { have: 4095, need: 4096 }));
        assert_eq!(Header::decode(&[0; 4096]), Err(FormatError::Magic));
    }

    #[test]
    fn fields_beyond_their_limits_are_refused() {
        for (at, value) in
            [(8, 0), (12, 1), (56, 6), (58, 0), (62, 0), (62, 101), (64, b'\n'), (170, 0), (172, 1), (179, 1), (184, 1)]
        {
            assert!(matches!(resealed(|b| b[at] = value), Err(FormatError::Field(_))), "byte {at}");
        }
        assert!(resealed(|b| b[234] = b'/').is_err());
        assert!(resealed(|b| b[235] = 0).is_err());
    }

    proptest! {
        #[test]
        fn what_was_encoded_decodes(
            k in 1usize..200, m in 0usize..56, position in 0usize..256, granule in 9u32..20, object_bytes in 0..MAX,
            unit in 1usize..3000, units in 1usize..5000, name in proptest::collection::vec(any::<u8>(), 1..=255),
            seconds: i64, nanoseconds in 0u32..1_000_000_000, id: [u8; 16], mode in 0u32..0o10000,
        ) {
            let Ok(layout) = Layout::new((k, m), unit, unit * units, 1 << granule, object_bytes) else { return Ok(()) };
            let time = Timestamp { seconds, nanoseconds };
            let header = Header {
                object: ObjectId(id), position: Position::at(position % (k + m)), layout, name, mode,
                modified: time, accessed: Timestamp { seconds: !seconds, ..time }, created: time, ..example()
            };
            if valid_name(&header.name) {
                prop_assert_eq!(Header::decode(&header.encode()[..]), Ok(header));
            } else {
                prop_assert!(Header::decode(&header.encode()[..]).is_err());
            }
        }

        #[test]
        fn any_flipped_bit_is_detected(bit in 0usize..HEADER_BYTES * 8) {
            let mut bytes = example().encode();
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Header::decode(&bytes[..]).is_err());
        }

        #[test]
        fn arbitrary_fields_never_panic(changes in proptest::collection::vec((0usize..490, any::<u8>()), 1..40)) {
            if let Ok(header) = resealed(|bytes| changes.iter().for_each(|&(at, value)| bytes[at] = value)) {
                prop_assert!(header.layout.file_bytes() < i64::MAX as u64);
            }
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..5000)) {
            prop_assert!(Header::decode(&bytes).is_err());
        }
    }
    const MAX: u64 = super::super::MAX_OBJECT_BYTES + 2;
}
