//! The claim on a target: which holder may change its volume, as a record of one page in either of
//! two slots. A record is written over the older one, so that it needs no space and a crash leaves
//! one of them whole.

use super::bytes::{Reader, Writer};
use super::{FormatError, VolumeId};
use gf::checksum::crc64;
use plan::TargetId;
use std::fmt;
use std::time::Duration;

/// The length of a record in bytes.
pub const CLAIM_BYTES: usize = 4096;
/// The length of a file with two records in bytes.
pub const CLAIM_FILE_BYTES: usize = 2 * CLAIM_BYTES;
/// The longest name of a holder in bytes.
pub const MAX_HOLDER_NAME: usize = 256;
/// The longest address of a holder in bytes.
pub const MAX_HOLDER_ADDRESS: usize = 512;
/// The largest number of mirrors in a claim.
pub const MAX_CLAIM_MIRRORS: usize = 512;
/// The longest lease. A request for a longer one counts as this long.
pub const MAX_LEASE: Duration = Duration::from_secs(60);

const MAGIC: [u8; 8] = *b"WEFTCLM\n";
const VERSION: u32 = 1;
const CHECKSUM_AT: usize = CLAIM_BYTES - 8;
const RELEASED: u16 = 1;
/// The feature of a record with a mark. A program that does not know it would count the target.
const BLANK: u32 = 1;

/// An opening of a volume for writing. Two openings with one number and different ids are different
/// histories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Epoch {
    /// Higher than that of every opening before.
    pub number: u64,
    /// Random bits that the opening made.
    pub id: u128,
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:08x}", self.number, self.id >> 96)
    }
}

/// The process that opened a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holder {
    /// Identifies the volume directory or server instance. It stays when the process starts again,
    /// which then waits for no lease of its own.
    pub id: u128,
    /// Its name for people, at most 256 bytes.
    pub name: String,
    /// Where clients reach it, at most 512 bytes; empty if nowhere.
    pub address: String,
}

/// The right to change a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The volume.
    pub volume: VolumeId,
    /// The generation of the label that the holder uses.
    pub generation: u64,
    /// The opening.
    pub epoch: Epoch,
    /// The targets with the journal of this epoch, at most 512.
    pub mirrors: Vec<TargetId>,
    /// The process that opened the volume.
    pub holder: Holder,
}

impl Claim {
    /// Whether its parts have lengths that a record can hold.
    ///
    /// # Errors
    /// `Field` with what is too long.
    pub fn check(&self) -> Result<(), FormatError> {
        let fields = [
            (self.holder.name.len() > MAX_HOLDER_NAME, "the holder's name is longer than 256 bytes"),
            (self.holder.address.len() > MAX_HOLDER_ADDRESS, "the holder's address is longer than 512 bytes"),
            (self.mirrors.len() > MAX_CLAIM_MIRRORS, "the claim has more than 512 mirrors"),
        ];
        fields.iter().find(|(bad, _)| *bad).map_or(Ok(()), |(_, why)| Err(FormatError::Field(why)))
    }
}

/// What a target stores of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimRecord {
    /// The record with the higher number is the newer one.
    pub sequence: u64,
    /// The claim.
    pub claim: Claim,
    /// The lease that was promised last. It starts again when the target restarts. Zero if the
    /// claim ends with the process that holds the lock of the file.
    pub lease: Duration,
    /// The holder gave the claim back. It is not renewed again.
    pub released: bool,
    /// Not 0 if the target is blank: it had no claim when it was claimed, so it is new or has lost
    /// what it had, and it has not got the state of the volume since. The mark tells one such time
    /// from another.
    pub blank: u32,
}

impl ClaimRecord {
    /// Encodes the record.
    ///
    /// # Panics
    /// If the claim does not fit; see [`Claim::check`].
    pub fn encode(&self) -> Vec<u8> {
        let Claim { volume, generation, epoch, mirrors, holder } = &self.claim;
        assert_eq!(self.claim.check(), Ok(()));
        let mut bytes = vec![0; CLAIM_BYTES];
        let mut to = Writer::new(&mut bytes);
        to.bytes(&MAGIC);
        to.u32(VERSION);
        to.u32(if self.blank == 0 { 0 } else { BLANK });
        to.u64(self.sequence);
        to.bytes(&volume.0);
        to.u64(*generation);
        to.u64(epoch.number);
        to.bytes(&epoch.id.to_le_bytes());
        to.bytes(&holder.id.to_le_bytes());
        to.u64(self.lease.min(MAX_LEASE).as_millis() as u64);
        to.u16(if self.released { RELEASED } else { 0 });
        to.u16(mirrors.len() as u16);
        to.u32(self.blank);
        to.text(holder.name.as_bytes(), MAX_HOLDER_NAME);
        to.text(holder.address.as_bytes(), MAX_HOLDER_ADDRESS);
        mirrors.iter().for_each(|mirror| to.u16(mirror.0));
        let checksum = crc64(&bytes[..CHECKSUM_AT]);
        bytes[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Decodes the record at the beginning of `bytes`.
    ///
    /// # Errors
    /// If the bytes are too few, damaged, of a newer version, or violate the format's limits.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let bytes = bytes.get(..CLAIM_BYTES).ok_or(FormatError::Short { have: bytes.len(), need: CLAIM_BYTES })?;
        let mut from = Reader::new(bytes);
        if from.array() != MAGIC {
            return Err(FormatError::Magic);
        }
        if crc64(&bytes[..CHECKSUM_AT]).to_le_bytes() != bytes[CHECKSUM_AT..] {
            return Err(FormatError::Checksum);
        }
        let (version, features) = (from.u32(), from.u32());
        if version > VERSION {
            return Err(FormatError::Newer(version));
        }
        if features & !BLANK != 0 {
            return Err(FormatError::Features((features & !BLANK).into()));
        }
        let sequence = from.u64();
        let volume = VolumeId(from.array());
        let generation = from.u64();
        let epoch = Epoch { number: from.u64(), id: u128::from_le_bytes(from.array()) };
        let id = u128::from_le_bytes(from.array());
        let lease = Duration::from_millis(from.u64()).min(MAX_LEASE);
        let (flags, mirrors, mark) = (from.u16(), usize::from(from.u16()), from.u32());
        let blank = match (features & BLANK != 0, mark) {
            (true, 0) => return Err(FormatError::Field("a blank target has no mark")),
            (true, mark) => mark,
            (false, _) => 0,
        };
        let text = |bytes: Option<&[u8]>| {
            let text = bytes.and_then(|bytes| std::str::from_utf8(bytes).ok());
            text.map(str::to_owned).ok_or(FormatError::Field("the name or address of the holder is not text"))
        };
        let name = text(from.text(MAX_HOLDER_NAME))?;
        let address = text(from.text(MAX_HOLDER_ADDRESS))?;
        if mirrors > MAX_CLAIM_MIRRORS {
            return Err(FormatError::Field("the claim has more than 512 mirrors"));
        }
        let mirrors = (0..mirrors).map(|_| TargetId(from.u16())).collect();
        let claim = Claim { volume, generation, epoch, mirrors, holder: Holder { id, name, address } };
        Ok(Self { sequence, claim, lease, released: flags & RELEASED != 0, blank })
    }

    /// The newest record in a file of two, and the slot for the next one: 0 or 1. A file without
    /// records has zeroes, or nothing.
    ///
    /// # Errors
    /// If no record is whole although there was one, or if one is of a newer version.
    pub fn newest(file: &[u8]) -> Result<(Option<Self>, usize), FormatError> {
        let slot = |number: usize| {
            let end = file.len().min((number + 1) * CLAIM_BYTES);
            let bytes = file.get(number * CLAIM_BYTES..end).unwrap_or_default();
            let blank = bytes.iter().all(|&byte| byte == 0);
            if blank { Ok(None) } else { Self::decode(bytes).map(Some) }
        };
        match (slot(0), slot(1)) {
            // An older version does not know which of the two counts.
            (Err(why), _) | (_, Err(why)) if why.is_newer() => Err(why),
            (Ok(Some(first)), Ok(Some(second))) if second.sequence >= first.sequence => Ok((Some(second), 0)),
            (Ok(Some(first)), _) => Ok((Some(first), 1)),
            (_, Ok(Some(second))) => Ok((Some(second), 0)),
            (Ok(None), Ok(None)) => Ok((None, 0)),
            // The first record of all was torn: nobody got that claim.
            (Err(_), Ok(None)) => Ok((None, 0)),
            (Ok(None), Err(_)) => Ok((None, 1)),
            (Err(why), Err(_)) => Err(why),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn example(sequence: u64) -> ClaimRecord {
        ClaimRecord {
            sequence,
            claim: Claim {
                volume: VolumeId(*b"0123456789abcdef"),
                generation: 3,
                epoch: Epoch { number: 7, id: 0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10 },
                mirrors: [0, 4, 300].map(TargetId).to_vec(),
                holder: Holder { id: 99, name: "server-1".into(), address: "weft://server-1:7000".into() },
            },
            lease: Duration::from_millis(1500),
            released: false,
            blank: 0,
        }
    }

    #[test]
    fn the_format_of_version_1_is_fixed() {
        let bytes = example(5).encode();
        assert_eq!((bytes.len(), bytes[8], bytes[16], bytes[48], bytes[72]), (4096, 1, 5, 7, 99));
        assert_eq!(&bytes[104..114], b"\x08\0server-1");
        assert_eq!(crc64(&bytes), GOLDEN, "{:#x}", crc64(&bytes));
        let content = crc64(&bytes[..CHECKSUM_AT]);
        assert_eq!(content, CONTENT, "{content:#x}");
    }
    /// The checksum of any bytes with their own checksum behind them.
    const GOLDEN: u64 = 0x0cef_cfc4_d490_91bd;
    const CONTENT: u64 = 0x2bf9_b463_c96a_49ac;

    #[test]
    fn the_mark_of_a_blank_target_is_a_feature() {
        let (plain, marked) = (example(5).encode(), ClaimRecord { blank: 0x0403_0201, ..example(5) }.encode());
        let changed: Vec<usize> = (0..CHECKSUM_AT).filter(|&at| plain[at] != marked[at]).collect();
        assert_eq!(changed, [12, 100, 101, 102, 103]);
        assert_eq!((marked[12], &marked[100..104]), (1, &[1, 2, 3, 4][..]));
        let content = crc64(&marked[..CHECKSUM_AT]);
        assert_eq!(content, MARKED, "{content:#x}");
        assert_eq!(ClaimRecord::decode(&marked).map(|record| record.blank), Ok(0x0403_0201));
    }
    const MARKED: u64 = 0xbe7f_a133_42b3_9616;

    #[test]
    fn a_newer_version_is_named() {
        let mut bytes = example(5).encode();
        bytes[8] = 9;
        let checksum = crc64(&bytes[..CHECKSUM_AT]);
        bytes[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
        assert_eq!(ClaimRecord::decode(&bytes), Err(FormatError::Newer(9)));
        let file = [example(4).encode(), bytes].concat();
        assert_eq!(ClaimRecord::newest(&file), Err(FormatError::Newer(9)), "the older one is no way around it");
    }

    #[test]
    fn the_newest_record_counts_and_the_older_one_is_replaced() {
        let (zeroes, old, new) = (vec![0; CLAIM_BYTES], example(4).encode(), example(5).encode());
        let newest = |first: &[u8], second: &[u8]| {
            let (record, slot) = ClaimRecord::newest(&[first, second].concat()).unwrap();
            (record.map(|record| record.sequence), slot)
        };
        assert_eq!(newest(&[], &[]), (None, 0));
        assert_eq!(newest(&zeroes, &zeroes), (None, 0));
        assert_eq!(newest(&old, &zeroes), (Some(4), 1));
        assert_eq!(newest(&old, &new), (Some(5), 0));
        assert_eq!(newest(&new, &old), (Some(5), 1));
        assert_eq!(newest(&new, &new), (Some(5), 0));
    }

    /// A disk writes sectors of 512 bytes in any order. Whatever a crash leaves is the old record
    /// or the new one.
    #[test]
    fn a_torn_record_leaves_the_old_one() {
        let mut file = vec![0; CLAIM_FILE_BYTES];
        let mut last = None;
        for sequence in 1..=3 {
            let (found, slot) = ClaimRecord::newest(&file).unwrap();
            assert_eq!(found.map(|record| record.sequence), last);
            let new = example(sequence).encode();
            for written in 0u32..256 {
                let mut torn = file.clone();
                for sector in (0..8).filter(|sector| written >> sector & 1 == 1) {
                    let at = sector * 512;
                    let to = slot * CLAIM_BYTES + at;
                    torn[to..to + 512].copy_from_slice(&new[at..at + 512]);
                }
                let found = ClaimRecord::newest(&torn).unwrap().0.map(|record| record.sequence);
                assert!(found == last || found == Some(sequence), "{written:#b}: {found:?}");
                assert!(written != 255 || found == Some(sequence));
            }
            file[slot * CLAIM_BYTES..(slot + 1) * CLAIM_BYTES].copy_from_slice(&new);
            last = Some(sequence);
        }
        file[0] ^= 1;
        file[CLAIM_BYTES] ^= 1;
        assert_eq!(ClaimRecord::newest(&file), Err(FormatError::Magic), "a claim that is lost is no free target");
    }

    proptest! {
        #[test]
        fn what_was_encoded_decodes(
            numbers: (u64, u64, u64, u128, u128), name in ".{0,64}", address in ".{0,128}",
            mirrors in proptest::collection::vec(any::<u16>(), 0..512),
            lease in 0u64..60_000, released: bool, blank: u32,
        ) {
            let (sequence, generation, number, id, holder) = numbers;
            let claim = Claim {
                volume: VolumeId([7; 16]),
                generation,
                epoch: Epoch { number, id },
                mirrors: mirrors.into_iter().map(TargetId).collect(),
                holder: Holder { id: holder, name, address },
            };
            let record = ClaimRecord { sequence, claim, lease: Duration::from_millis(lease), released, blank };
            prop_assert_eq!(ClaimRecord::decode(&record.encode()), Ok(record));
        }

        #[test]
        fn any_flipped_bit_is_detected(bit in 0usize..CLAIM_BYTES * 8) {
            let mut bytes = example(5).encode();
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(ClaimRecord::decode(&bytes).is_err());
        }

        #[test]
        fn arbitrary_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..CLAIM_FILE_BYTES + 9)) {
            let _ = ClaimRecord::newest(&bytes);
            bytes.resize(CLAIM_BYTES, 0);
            bytes[..16].copy_from_slice(b"WEFTCLM\n\x01\0\0\0\0\0\0\0");
            let checksum = crc64(&bytes[..CHECKSUM_AT]);
            bytes[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
            if let Ok(record) = ClaimRecord::decode(&bytes) {
                prop_assert_eq!(ClaimRecord::decode(&record.encode()), Ok(record));
            }
        }
    }
}
