//! The header of a record in a chunk file, as it stands and with its checksum made right.
#![no_main]

use volume::format::RecordHeader;

/// Where the checksum stands: `docs/format.md`, Record.
const CHECKSUM: std::ops::Range<usize> = CHECKSUM_AT..CHECKSUM_AT + 8;
const CHECKSUM_AT: usize = 56;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = RecordHeader::decode(bytes);
    let mut patched = bytes.to_vec();
    if patched.len() >= CHECKSUM.end {
        patched[CHECKSUM].fill(0);
        let checksum = gf::checksum::crc64(&patched);
        patched[CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
        if let Ok(header) = RecordHeader::decode(&patched) {
            let mut again = vec![0; RecordHeader::encoded_bytes(header.checksums.len())];
            header.encode(&mut again);
            assert_eq!(RecordHeader::decode(&again).unwrap(), header);
        }
    }
});
