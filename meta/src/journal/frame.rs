//! The bytes of journal segments and snapshots. Both are files of consecutive frames, identical on
//! every mirror.
//!
//! All integers are little-endian. A frame:
//!
//! | at | bytes | field |
//! |---|---|---|
//! | 0 | 4 | type, see below |
//! | 4 | 4 | length of the payload, at most 64 MiB |
//! | 8 | 8 | number, see below |
//! | 16 | 8 | epoch: grows by one with every opening of the volume |
//! | 24 | 8 | the epoch's first transaction |
//! | 32 | 8 | commit_index, see below |
//! | 40 | 8 | CRC-64/NVME of the volume's id, of bytes 0 to 39, and of the payload |
//! | 48 | | payload, and zeroes up to a multiple of 8 (not in the checksum) |
//!
//! The volume's id in the checksum has 16 bytes and is not stored in the frame.
//!
//! - Type: `WJS1` segment head, `WJR1` record, `WSS1` snapshot head, `WSB1` block of pairs, `WSE1`
//!   end.
//! - Number: of a head, as in the file's name; of a record, its transaction; of a block, 0, 1, ...;
//!   of an end, the number of blocks.
//! - Commit_index: in a segment head and a record, all transactions up to this one were durable
//!   before; otherwise the snapshot's last transaction.
//!
//! The payload of a head is the volume's id (16 bytes), the format's version (4, now 1) and 4
//! zeroes. The payload of a record is changes, each a byte (1 put, 2 remove), the key's length (4),
//! the value's length (4), the key, the value. The payload of a block is pairs, each the key's
//! length (4), the value's length (4), the key, the value, in ascending order over all blocks. The
//! payload of an end is the number of pairs (8) and the sum of the lengths of keys and values (8).
//!
//! A segment is a head and records with successive numbers, all of the head's epoch. A snapshot is
//! a head, blocks, and one end. The end is written after the rest was synced, so a snapshot with an
//! end is complete.
//!
//! Transactions of an epoch that are not before the first transaction of a later epoch are void:
//! they were not found when the later epoch began, and so were not durable. A frame whose checksum
//! fails is read from another mirror, at the same offset of the same file. The journal ends before
//! the first transaction that no mirror has.

use gf::checksum::Crc64;

/// The length of a frame without its payload, in bytes.
pub(super) const FRAME_BYTES: usize = 48;

/// The length of a head with its payload, in bytes.
pub(super) const HEAD_BYTES: usize = FRAME_BYTES + 24;

/// The length of an end with its payload, in bytes.
pub(super) const END_BYTES: usize = FRAME_BYTES + 16;

/// The longest payload, in bytes.
pub(super) const MAX_PAYLOAD_BYTES: usize = 64 << 20;

/// No transaction, epoch or block has this number or a higher one. What says so is no frame: what
/// follows a number of a frame is a number, too.
pub(super) const NO_NUMBER: u64 = 1 << 63;

const VERSION: u32 = 1;

/// A volume's id.
pub(super) type VolumeId = [u8; 16];

/// The type of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Segment,
    Record,
    Snapshot,
    Block,
    End,
}

/// The time from one opening of the volume to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Epoch {
    pub number: u64,
    /// The epoch's first transaction.
    pub first: u64,
}

/// The fields of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub kind: Kind,
    pub number: u64,
    pub epoch: Epoch,
    pub commit_index: u64,
    /// The length of the payload, in bytes.
    pub payload: usize,
}

impl Kind {
    const ALL: [(Self, [u8; 4]); 5] = [
        (Self::Segment, *b"WJS1"),
        (Self::Record, *b"WJR1"),
        (Self::Snapshot, *b"WSS1"),
        (Self::Block, *b"WSB1"),
        (Self::End, *b"WSE1"),
    ];

    fn magic(self) -> [u8; 4] {
        Self::ALL[self as usize].1
    }
}

impl Frame {
    /// A frame whose payload is not written yet.
    pub fn new(kind: Kind, number: u64, epoch: Epoch, commit_index: u64) -> Self {
        Self { kind, number, epoch, commit_index, payload: 0 }
    }

    /// Appends the frame, with the payload that `fill` appends.
    pub fn encode(self, volume: &VolumeId, to: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
        let start = to.len();
        to.extend_from_slice(&[0; FRAME_BYTES]);
        fill(to);
        let payload = to.len() - start - FRAME_BYTES;
        assert!(payload <= MAX_PAYLOAD_BYTES, "a payload within the format's limit");
        to.resize(start + FRAME_BYTES + payload.next_multiple_of(8), 0);
        let frame = &mut to[start..start + FRAME_BYTES + payload];
        frame[..4].copy_from_slice(&self.kind.magic());
        frame[4..8].copy_from_slice(&(payload as u32).to_le_bytes());
        let numbers = [self.number, self.epoch.number, self.epoch.first, self.commit_index];
        for (field, number) in frame[8..40].chunks_exact_mut(8).zip(numbers) {
            field.copy_from_slice(&number.to_le_bytes());
        }
        let checksum = checksum(volume, frame);
        frame[40..48].copy_from_slice(&checksum.to_le_bytes());
    }

    /// Appends a head: the first frame of a file.
    pub fn encode_head(self, volume: &VolumeId, to: &mut Vec<u8>) {
        self.encode(volume, to, |to| {
            to.extend_from_slice(volume);
            to.extend_from_slice(&VERSION.to_le_bytes());
            to.extend_from_slice(&[0; 4]);
        });
    }

    /// Reads the header fields, which are not verified yet. They tell how many bytes
    /// [`Self::proven`] needs.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..FRAME_BYTES)?;
        let &(kind, _) = Kind::ALL.iter().find(|(_, magic)| bytes.starts_with(magic))?;
        let payload = u32_at(bytes, 4) as usize;
        let epoch = Epoch { number: u64_at(bytes, 16), first: u64_at(bytes, 24) };
        let frame = Self { kind, number: u64_at(bytes, 8), epoch, commit_index: u64_at(bytes, 32), payload };
        let numbers = [frame.number, frame.epoch.number, frame.epoch.first, frame.commit_index];
        (payload <= MAX_PAYLOAD_BYTES && numbers.iter().all(|&number| number < NO_NUMBER)).then_some(frame)
    }

    /// The frame at the beginning of these bytes and its payload, if the checksum is correct.
    pub fn proven<'a>(volume: &VolumeId, bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let frame = Self::parse(bytes)?;
        let bytes = bytes.get(..FRAME_BYTES + frame.payload)?;
        (checksum(volume, bytes) == u64_at(bytes, 40)).then_some((frame, &bytes[FRAME_BYTES..]))
    }

    /// The head of a file and the volume that it names, if the checksum is correct.
    pub fn proven_head(bytes: &[u8]) -> Option<(Self, VolumeId)> {
        let volume: VolumeId = bytes.get(FRAME_BYTES..FRAME_BYTES + 16)?.try_into().ok()?;
        let (frame, payload) = Self::proven(&volume, bytes)?;
        let right = matches!(frame.kind, Kind::Segment | Kind::Snapshot) && payload.len() == HEAD_BYTES - FRAME_BYTES;
        (right && u32_at(payload, 16) == VERSION).then_some((frame, volume))
    }

    /// The frame's length in the file, in bytes.
    pub fn bytes(&self) -> usize {
        FRAME_BYTES + self.payload.next_multiple_of(8)
    }
}

fn checksum(volume: &VolumeId, frame: &[u8]) -> u64 {
    let mut checksum = Crc64::default();
    for piece in [volume, &frame[..40], &frame[FRAME_BYTES..]] {
        checksum.update(piece);
    }
    checksum.value()
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

/// Reads the integer at an offset. The caller has checked the length.
pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

/// Appends a change to a record's payload.
pub(super) fn put_edit(to: &mut Vec<u8>, key: &[u8], value: Option<&[u8]>) {
    to.push(if value.is_some() { 1 } else { 2 });
    put_pair(to, key, value.unwrap_or_default());
}

/// Appends a pair to a block's payload.
pub(super) fn put_pair(to: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    to.extend_from_slice(&(key.len() as u32).to_le_bytes());
    to.extend_from_slice(&(value.len() as u32).to_le_bytes());
    to.extend_from_slice(key);
    to.extend_from_slice(value);
}

/// Takes a change from a record's payload; `None` when the bytes are not a change.
pub(super) fn take_edit<'a>(from: &mut &'a [u8]) -> Option<(&'a [u8], Option<&'a [u8]>)> {
    let (&kind, rest) = from.split_first()?;
    *from = rest;
    let (key, value) = take_pair(from)?;
    match kind {
        1 => Some((key, Some(value))),
        2 if value.is_empty() => Some((key, None)),
        _ => None,
    }
}

/// Takes a pair from a block's payload; `None` when the bytes are not a pair.
pub(super) fn take_pair<'a>(from: &mut &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    let (lengths, rest) = from.split_at_checked(8)?;
    let (key, rest) = rest.split_at_checked(u32_at(lengths, 0) as usize)?;
    let (value, rest) = rest.split_at_checked(u32_at(lengths, 4) as usize)?;
    *from = rest;
    Some((key, value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const VOLUME: VolumeId = *b"0123456789abcdef";
    const EPOCH: Epoch = Epoch { number: 3, first: 70 };

    fn record() -> Vec<u8> {
        let mut bytes = Vec::new();
        Frame::new(Kind::Record, 77, EPOCH, 76).encode(&VOLUME, &mut bytes, |to| {
            put_edit(to, b"key", Some(b"value"));
            put_edit(to, b"gone", None);
        });
        bytes
    }

    #[test]
    fn the_format_of_version_1_is_fixed() {
        let mut bytes = record();
        Frame::new(Kind::Segment, 77, EPOCH, 76).encode_head(&VOLUME, &mut bytes);
        assert_eq!((bytes.len(), gf::checksum::crc64(&bytes)), (152, GOLDEN), "{:#x}", gf::checksum::crc64(&bytes));
    }
    const GOLDEN: u64 = 0xf0a9_edd8_61c9_1092;

    #[test]
    fn a_frame_of_another_volume_is_none() {
        assert!(Frame::proven(&VOLUME, &record()).is_some());
        assert!(Frame::proven(b"another volume..", &record()).is_none());
    }

    #[test]
    fn changes_come_back() {
        let bytes = record();
        let (_, mut payload) = Frame::proven(&VOLUME, &bytes).unwrap();
        assert_eq!(take_edit(&mut payload), Some((&b"key"[..], Some(&b"value"[..]))));
        assert_eq!(take_edit(&mut payload), Some((&b"gone"[..], None)));
        assert!(payload.is_empty() && take_edit(&mut payload).is_none());
    }

    proptest! {
        #[test]
        fn any_flipped_bit_is_detected(bit in 0usize..(48 + 30) * 8) {
            let mut bytes = record();
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Frame::proven(&VOLUME, &bytes).is_none());
        }

        #[test]
        fn arbitrary_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), magic: bool) {
            if magic && bytes.len() >= 4 {
                bytes[..4].copy_from_slice(b"WJR1");
            }
            prop_assert!(Frame::proven(&VOLUME, &bytes).is_none());
            prop_assert!(Frame::proven_head(&bytes).is_none());
            let mut from = &bytes[..];
            while take_edit(&mut from).is_some() {}
            while take_pair(&mut from).is_some() {}
        }
    }
}
