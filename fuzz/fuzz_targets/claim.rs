//! The claim of a target: any file of two records, and a record with its checksum made right, so
//! that the fields are reached too.
#![no_main]

use volume::format::{CLAIM_BYTES, ClaimRecord};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = ClaimRecord::newest(bytes);
    let mut whole = vec![0; CLAIM_BYTES];
    let length = bytes.len().min(CLAIM_BYTES - 8);
    whole[..length].copy_from_slice(&bytes[..length]);
    let checksum = gf::checksum::crc64(&whole[..CLAIM_BYTES - 8]);
    whole[CLAIM_BYTES - 8..].copy_from_slice(&checksum.to_le_bytes());
    if let Ok(record) = ClaimRecord::decode(&whole) {
        let again = record.encode();
        assert_eq!(ClaimRecord::decode(&again).unwrap(), record);
        let (newest, slot) = ClaimRecord::newest(&[&again[..], &whole[..]].concat()).unwrap();
        assert_eq!((newest.unwrap(), slot), (record, 0));
    }
});
