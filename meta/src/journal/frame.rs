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
//! | 40 | 8 | CRC-64/NVME of the volume's id, the epoch's id, bytes 0 to 39 and the payload |
//! | 48 | | payload, and zeroes up to a multiple of 8 (not in the checksum) |
//!
//! The ids in the checksum have 16 bytes each and are not stored in the frame. The checksum of a
//! head has no epoch's id, and neither has any in format 1. So a frame of one history is not valid
//! in a file of another, even at the same offset and with the same numbers.
//!
//! - Type: `WJS1` segment head, `WJR1` record, `WSS1` snapshot head, `WSB1` block of pairs, `WSE1`
//!   end.
//! - Number: of a head, as in the file's name; of a record, its transaction; of a block, 0, 1, ...;
//!   of an end, the number of blocks.
//! - Commit_index: in a segment head and a record, all transactions up to this one were durable
//!   before; otherwise the snapshot's last transaction.
//!
//! The payload of a head is the volume's id (16 bytes), the format's version (4, now 2), the number
//! of mirrors that were whole when the file was begun (4), the epoch's id (16), the parent's number
//! (8) and id (16), the predecessor's number (8) and id (16), and the ids of the first 20 of those
//! mirrors (2 each). The parent is the last epoch before this one that has records or the snapshot
//! that this one began with; following the parents gives the lineage. The predecessor is the
//! highest epoch that was seen when this one began, which may have neither. In format 1, the
//! payload ends with the version and 4 zeroes.
//!
//! The payload of a record is changes, each a byte (1 put, 2 remove), the key's length (4),
//! the value's length (4), the key, the value. The payload of a block is pairs, each the key's
//! length (4), the value's length (4), the key, the value, in ascending order over all blocks. The
//! payload of an end is the number of pairs (8) and the sum of the lengths of keys and values (8).
//!
//! A segment is a head and records with successive numbers, all of the head's epoch. A snapshot is
//! a head, blocks, and one end. The end is written after the rest was synced, so a snapshot with an
//! end is complete.
//!
//! Only epochs of the lineage of the highest one count. Their transactions that are not before the
//! first transaction of a later epoch are void: they were not found when the later epoch began, and
//! so were not durable. A frame whose checksum
//! fails is read from another mirror, at the same offset of the same file. The journal ends before
//! the first transaction that no mirror has.

use gf::checksum::Crc64;
use plan::{TargetId, TxId};

/// The length of a frame without its payload, in bytes.
pub(super) const FRAME_BYTES: usize = 48;

/// The length of a head with its payload, in bytes, in format 1.
pub(super) const OLD_HEAD_BYTES: usize = FRAME_BYTES + 24;

/// The length of a head with its payload, in bytes.
pub(super) const HEAD_BYTES: usize = FRAME_BYTES + 88 + 2 * LISTED_MIRRORS;

/// The most mirrors that a head names.
const LISTED_MIRRORS: usize = 20;

/// The length of an end with its payload, in bytes.
pub(super) const END_BYTES: usize = FRAME_BYTES + 16;

/// The longest payload, in bytes.
pub(super) const MAX_PAYLOAD_BYTES: usize = 64 << 20;

/// No transaction, epoch or block has this number or a higher one. A frame with such a number is
/// not valid: the successor of a number in a frame is a number, too.
pub(super) const NO_NUMBER: u64 = 1 << 63;

const OLD_VERSION: u32 = 1;
const VERSION: u32 = 2;

/// A volume's id.
pub(super) type VolumeId = [u8; 16];

/// The type of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordKind {
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
    pub first: TxId,
    /// Random bits of the opening; 0 in format 1.
    pub id: u128,
}

/// An epoch without its first transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct EpochId {
    pub number: u64,
    pub id: u128,
}

impl Epoch {
    pub fn name(&self) -> EpochId {
        EpochId { number: self.number, id: self.id }
    }
}

/// Where an epoch comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Origin {
    /// The last epoch before this one that left something.
    pub parent: EpochId,
    /// The highest epoch that was seen when this one began.
    pub before: EpochId,
}

/// What the head of a file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub volume: VolumeId,
    pub epoch: Epoch,
    pub origin: Origin,
    /// Mirrors that were whole when the file was begun, at most 20 of them.
    pub mirrors: Vec<TargetId>,
    /// The length of the head, in bytes.
    pub bytes: usize,
}

/// The fields of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub kind: RecordKind,
    /// A record's transaction, a segment's first one, a snapshot's last one, or the block's number.
    pub number: u64,
    pub epoch: Epoch,
    pub commit_index: TxId,
    /// The length of the payload, in bytes.
    pub payload: usize,
}

impl RecordKind {
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
    pub fn new(kind: RecordKind, number: u64, epoch: Epoch, commit_index: TxId) -> Self {
        Self { kind, number, epoch, commit_index, payload: 0 }
    }

    /// The transaction of a record.
    pub fn tx(&self) -> TxId {
        TxId(self.number)
    }

    fn numbers(&self) -> [u64; 4] {
        [self.number, self.epoch.number, self.epoch.first.0, self.commit_index.0]
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
        let numbers = self.numbers();
        for (field, number) in frame[8..40].chunks_exact_mut(8).zip(numbers) {
            field.copy_from_slice(&number.to_le_bytes());
        }
        // The id of a head is in its payload.
        let id = if matches!(self.kind, RecordKind::Segment | RecordKind::Snapshot) { 0 } else { self.epoch.id };
        let checksum = checksum(volume, id, frame);
        frame[40..48].copy_from_slice(&checksum.to_le_bytes());
    }

    /// Appends a head: the first frame of a file.
    pub fn encode_head(self, volume: &VolumeId, origin: &Origin, mirrors: &[TargetId], to: &mut Vec<u8>) {
        self.encode(volume, to, |to| {
            let end = to.len() + HEAD_BYTES - FRAME_BYTES;
            let listed = &mirrors[..mirrors.len().min(LISTED_MIRRORS)];
            to.extend_from_slice(volume);
            to.extend_from_slice(&VERSION.to_le_bytes());
            to.extend_from_slice(&(mirrors.len() as u32).to_le_bytes());
            to.extend_from_slice(&self.epoch.id.to_le_bytes());
            for EpochId { number, id } in [origin.parent, origin.before] {
                to.extend_from_slice(&number.to_le_bytes());
                to.extend_from_slice(&id.to_le_bytes());
            }
            listed.iter().for_each(|mirror| to.extend_from_slice(&mirror.0.to_le_bytes()));
            to.resize(end, 0);
        });
    }

    /// Reads the header fields, which are not verified yet. They tell how many bytes
    /// [`Self::proven`] needs.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..FRAME_BYTES)?;
        let &(kind, _) = RecordKind::ALL.iter().find(|(_, magic)| bytes.starts_with(magic))?;
        let payload = u32_at(bytes, 4) as usize;
        let epoch = Epoch { number: u64_at(bytes, 16), first: TxId(u64_at(bytes, 24)), id: 0 };
        let frame = Self { kind, number: u64_at(bytes, 8), epoch, commit_index: TxId(u64_at(bytes, 32)), payload };
        (payload <= MAX_PAYLOAD_BYTES && frame.numbers().iter().all(|&number| number < NO_NUMBER)).then_some(frame)
    }

    /// The frame of an epoch with this id at the beginning of these bytes, and its payload, if the
    /// checksum is correct. The id is 0 in format 1.
    pub fn proven<'a>(volume: &VolumeId, id: u128, bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let mut frame = Self::parse(bytes)?;
        frame.epoch.id = id;
        let bytes = bytes.get(..FRAME_BYTES + frame.payload)?;
        (checksum(volume, id, bytes) == u64_at(bytes, 40)).then_some((frame, &bytes[FRAME_BYTES..]))
    }

    /// The head of a file, if the checksum is correct. Needs up to `HEAD_BYTES` bytes.
    pub fn proven_head(bytes: &[u8]) -> Option<Head> {
        let volume: VolumeId = bytes.get(FRAME_BYTES..FRAME_BYTES + 16)?.try_into().ok()?;
        let (frame, payload) = Self::proven(&volume, 0, bytes)?;
        if !matches!(frame.kind, RecordKind::Segment | RecordKind::Snapshot) || payload.len() < 20 {
            return None;
        }
        let mut head = Head {
            volume,
            epoch: frame.epoch,
            origin: Origin::default(),
            mirrors: Vec::new(),
            bytes: FRAME_BYTES + payload.len(),
        };
        match u32_at(payload, 16) {
            OLD_VERSION if head.bytes == OLD_HEAD_BYTES => Some(head),
            VERSION if head.bytes == HEAD_BYTES => {
                let name = |at: usize| EpochId { number: u64_at(payload, at), id: u128_at(payload, at + 8) };
                head.epoch.id = u128_at(payload, 24);
                head.origin = Origin { parent: name(40), before: name(64) };
                let count = (u32_at(payload, 20) as usize).min(LISTED_MIRRORS);
                let listed = payload[88..].chunks_exact(2).take(count);
                head.mirrors = listed.map(|id| TargetId(u16::from_le_bytes([id[0], id[1]]))).collect();
                let numbered = [head.origin.parent, head.origin.before].iter().all(|name| name.number < NO_NUMBER);
                // An id of 0 would be that of format 1.
                (head.epoch.id != 0 && numbered).then_some(head)
            }
            _ => None,
        }
    }

    /// The frame's length in the file, in bytes.
    pub fn bytes(&self) -> usize {
        FRAME_BYTES + self.payload.next_multiple_of(8)
    }
}

fn checksum(volume: &VolumeId, id: u128, frame: &[u8]) -> u64 {
    let mut checksum = Crc64::default();
    checksum.update(volume);
    if id != 0 {
        checksum.update(&id.to_le_bytes());
    }
    for piece in [&frame[..40], &frame[FRAME_BYTES..]] {
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

fn u128_at(bytes: &[u8], at: usize) -> u128 {
    u128::from_le_bytes(bytes[at..at + 16].try_into().expect("16 bytes"))
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
    const EPOCH: Epoch = Epoch { number: 3, first: TxId(70), id: 0x1234_5678_9abc_def0_0fed_cba9_8765_4321 };
    const OLD: Epoch = Epoch { id: 0, ..EPOCH };

    fn record_of(epoch: Epoch) -> Vec<u8> {
        let mut bytes = Vec::new();
        Frame::new(RecordKind::Record, 77, epoch, TxId(76)).encode(&VOLUME, &mut bytes, |to| {
            put_edit(to, b"key", Some(b"value"));
            put_edit(to, b"gone", None);
        });
        bytes
    }

    fn record() -> Vec<u8> {
        record_of(EPOCH)
    }

    fn origin() -> Origin {
        Origin { parent: EpochId { number: 1, id: 11 }, before: EpochId { number: 2, id: 22 } }
    }

    #[test]
    fn the_formats_of_both_versions_are_fixed() {
        let mut bytes = record_of(OLD);
        Frame::new(RecordKind::Segment, 77, OLD, TxId(76)).encode(&VOLUME, &mut bytes, |to| {
            to.extend_from_slice(&VOLUME);
            to.extend_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0]);
        });
        assert_eq!((bytes.len(), gf::checksum::crc64(&bytes)), (152, GOLDEN_1), "{:#x}", gf::checksum::crc64(&bytes));
        let old = Frame::proven_head(&bytes[80..]).unwrap();
        assert_eq!((old.epoch, old.bytes, old.mirrors), (OLD, OLD_HEAD_BYTES, Vec::new()));
        let mut bytes = record();
        Frame::new(RecordKind::Segment, 77, EPOCH, TxId(76)).encode_head(
            &VOLUME,
            &origin(),
            &[TargetId(5)],
            &mut bytes,
        );
        assert_eq!((bytes.len(), gf::checksum::crc64(&bytes)), (256, GOLDEN_2), "{:#x}", gf::checksum::crc64(&bytes));
    }
    const GOLDEN_1: u64 = 0xf0a9_edd8_61c9_1092;
    const GOLDEN_2: u64 = 0xf78c_f570_608b_8c7f;

    #[test]
    fn a_head_says_where_its_epoch_comes_from() {
        let (mut bytes, many) = (Vec::new(), (0..30).map(TargetId).collect::<Vec<_>>());
        Frame::new(RecordKind::Snapshot, 77, EPOCH, TxId(77)).encode_head(&VOLUME, &origin(), &many, &mut bytes);
        let head = Frame::proven_head(&bytes).unwrap();
        assert_eq!((head.volume, head.epoch, head.origin, head.bytes), (VOLUME, EPOCH, origin(), HEAD_BYTES));
        assert_eq!(head.mirrors, many[..LISTED_MIRRORS]);
    }

    #[test]
    fn a_frame_of_another_history_is_none() {
        assert!(Frame::proven(&VOLUME, EPOCH.id, &record()).is_some());
        for other in [0, 1, EPOCH.id + 1] {
            assert!(Frame::proven(&VOLUME, other, &record()).is_none());
        }
        assert!(Frame::proven(&VOLUME, 0, &record_of(OLD)).is_some());
        assert!(Frame::proven(&VOLUME, EPOCH.id, &record_of(OLD)).is_none());
    }

    #[test]
    fn a_frame_of_another_volume_is_none() {
        assert!(Frame::proven(&VOLUME, EPOCH.id, &record()).is_some());
        assert!(Frame::proven(b"another volume..", EPOCH.id, &record()).is_none());
    }

    #[test]
    fn changes_come_back() {
        let bytes = record();
        let (_, mut payload) = Frame::proven(&VOLUME, EPOCH.id, &bytes).unwrap();
        assert_eq!(take_edit(&mut payload), Some((&b"key"[..], Some(&b"value"[..]))));
        assert_eq!(take_edit(&mut payload), Some((&b"gone"[..], None)));
        assert!(payload.is_empty() && take_edit(&mut payload).is_none());
    }

    proptest! {
        #[test]
        fn any_flipped_bit_is_detected(bit in 0usize..(48 + 30) * 8) {
            let mut bytes = record();
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Frame::proven(&VOLUME, EPOCH.id, &bytes).is_none());
        }

        #[test]
        fn arbitrary_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), magic: bool) {
            if magic && bytes.len() >= 4 {
                bytes[..4].copy_from_slice(b"WJR1");
            }
            prop_assert!(Frame::proven(&VOLUME, EPOCH.id, &bytes).is_none());
            prop_assert!(Frame::proven_head(&bytes).is_none());
            let mut from = &bytes[..];
            while take_edit(&mut from).is_some() {}
            while take_pair(&mut from).is_some() {}
        }
    }
}
