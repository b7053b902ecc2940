//! What this process knows of the records in a chunk file, so that its attributes cost no reads.

use crate::format::{CHUNK_HEADER_BYTES, record_of};
use gf::checksum::Crc64;
use std::collections::BTreeMap;
use std::ops::Range;

/// With more records than this, nothing is known, in favour of memory: 16 MiB of a chunk have 4096
/// records of 4 KiB.
const MAX_RECORDS: usize = 16 << 10;

/// The records of a file: where each begins and ends, and the checksum of its header.
#[derive(Debug)]
pub(super) struct Records {
    /// None if not all are known.
    known: Option<BTreeMap<u64, (u64, u64)>>,
    /// The file is sealed, and has attributes that say what it has.
    pub sealed: bool,
    /// The file had content when it was opened, and perhaps such attributes.
    pub old: bool,
}

impl Records {
    /// Of a file that had so many bytes when it was opened.
    pub fn of_file(length: u64) -> Self {
        Self { known: (length == 0).then(BTreeMap::new), sealed: false, old: length > 0 }
    }

    /// Notes a write. `first` are bytes at its beginning: a record header is in one piece, perhaps
    /// behind the file's header.
    pub fn wrote(&mut self, offset: u64, first: &[u8]) {
        let (offset, first) = match (offset, first.get(CHUNK_HEADER_BYTES..)) {
            (0, Some(rest)) => (CHUNK_HEADER_BYTES as u64, rest),
            _ => (offset, first),
        };
        let Some((bytes, checksum)) = record_of(first, offset).filter(|_| self.known.is_some()) else { return };
        self.gave_back(&(offset..offset + bytes));
        let Some(known) = &mut self.known else { return };
        known.insert(offset, (offset + bytes, checksum));
        if known.len() > MAX_RECORDS {
            self.known = None;
        }
    }

    /// Forgets the records in a range.
    pub fn gave_back(&mut self, range: &Range<u64>) {
        let Some(known) = &mut self.known else { return };
        // Records do not overlap: the last that begins before the end meets it first.
        while let Some((&begin, &(end, _))) = known.range(..range.end).next_back() {
            if end <= range.start {
                return;
            }
            known.remove(&begin);
        }
    }

    /// How many records there are, and their checksum; None if not all are known.
    pub fn summary(&self) -> Option<(usize, u64)> {
        let known = self.known.as_ref()?;
        Some((known.len(), checksum_of_records(known.values().map(|&(_, checksum)| checksum))))
    }
}

/// The checksum of the records of a chunk: that of the checksums of their headers, in the order of
/// the records. It covers all bytes of the blocks, as each header has the checksums of its block.
pub fn checksum_of_records(headers: impl Iterator<Item = u64>) -> u64 {
    let mut all = Crc64::default();
    headers.for_each(|checksum| all.update(&checksum.to_le_bytes()));
    all.value()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{StripeHeader, VolumeId};
    use plan::{Position, RecordOffset, SetId, StripeSeq};

    fn record(at: u64, block: u32) -> Vec<u8> {
        let header = StripeHeader {
            volume: VolumeId([1; 16]),
            set: SetId(3),
            position: Position(2),
            record: RecordOffset(at as u32),
            sequence: StripeSeq(at),
            data_bytes: 100,
            manifest_bytes: 0,
            block_bytes: block,
            checksums: vec![5; (block as usize).div_ceil(4096)],
        };
        header.encode()
    }

    fn sum(records: &[Vec<u8>]) -> Option<(usize, u64)> {
        let sums = records.iter().map(|header| u64::from_le_bytes(header[72..80].try_into().unwrap()));
        Some((records.len(), checksum_of_records(sums)))
    }

    #[test]
    fn records_count_once_in_their_order() {
        let mut records = Records::of_file(0);
        let [a, b, c] = [4096, 4096 + 320, 8192].map(|at| record(at, 192));
        records.wrote(8192, &c);
        let mut first = vec![0; CHUNK_HEADER_BYTES];
        first.extend_from_slice(&a);
        records.wrote(0, &first);
        records.wrote(4096 + 320, &b);
        records.wrote(8192, &c);
        assert_eq!(records.summary(), sum(&[a.clone(), b.clone(), c.clone()]));
        // The rest of a long message is no record, and one of another place is none here.
        records.wrote(12288, &c);
        records.wrote(12288, &[7; 300]);
        assert_eq!(records.summary(), sum(&[a.clone(), b, c]));
        // A longer one takes the place of two.
        let long = record(4096 + 320, 5000);
        records.wrote(4096 + 320, &long);
        assert_eq!(records.summary(), sum(&[a.clone(), long]));
        records.gave_back(&(4096 + 320..4096 + 330));
        assert_eq!(records.summary(), sum(&[a]));
        records.gave_back(&(0..4096));
        assert_eq!(records.summary().map(|(count, _)| count), Some(1));
        assert_eq!(Records::of_file(1).summary(), None);
    }
}
