//! The header of a chunk file, as it stands and with its checksum made right, so that the fields
//! are reached too.
#![no_main]

use volume::format::{HEADER_BYTES, Header};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = Header::decode(bytes);
    let mut whole = vec![0; HEADER_BYTES];
    let length = bytes.len().min(HEADER_BYTES - 8);
    whole[..length].copy_from_slice(&bytes[..length]);
    let checksum = gf::checksum::crc64(&whole[..HEADER_BYTES - 8]);
    whole[HEADER_BYTES - 8..].copy_from_slice(&checksum.to_le_bytes());
    if let Ok(header) = Header::decode(&whole) {
        assert_eq!(Header::decode(&header.encode()[..]).unwrap(), header);
    }
});
