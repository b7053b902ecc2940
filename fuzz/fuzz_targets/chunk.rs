//! The headers of volume chunks and of their records, as they stand and with their checksums made
//! right, so that the fields are reached too.
#![no_main]

use gf::checksum::crc64;
use volume::format::{CHUNK_HEADER_BYTES, ChunkHeader, StripeHeader};

const RECORD_CHECKSUM: std::ops::Range<usize> = 72..80;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = (ChunkHeader::decode(bytes), StripeHeader::decode(bytes));
    let mut whole = vec![0; CHUNK_HEADER_BYTES];
    let length = bytes.len().min(CHUNK_HEADER_BYTES - 8);
    whole[..length].copy_from_slice(&bytes[..length]);
    let checksum = crc64(&whole[..CHUNK_HEADER_BYTES - 8]);
    whole[CHUNK_HEADER_BYTES - 8..].copy_from_slice(&checksum.to_le_bytes());
    if let Ok(header) = ChunkHeader::decode(&whole) {
        assert_eq!(ChunkHeader::decode(&header.encode()).unwrap(), header);
    }
    if bytes.len() < 80 {
        return;
    }
    let block = u32::from_le_bytes(bytes[52..56].try_into().unwrap()) as usize;
    let mut record = bytes[..StripeHeader::encoded_bytes(block.min(1 << 20)).min(bytes.len())].to_vec();
    record[RECORD_CHECKSUM].fill(0);
    let checksum = crc64(&record);
    record[RECORD_CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
    if let Ok(header) = StripeHeader::decode(&record) {
        assert_eq!(StripeHeader::decode(&header.encode()).unwrap(), header);
    }
});
