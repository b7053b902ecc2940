//! Frames and first messages as they stand and with their checksums made right, so that the fields
//! are reached too.
#![no_main]

use std::io::IoSlice;
use wire::frame::{FrameLimits, HEADER_BYTES, Header, crc32c, split};
use wire::hello::{HELLO_BYTES, Hello};

const CHECKED: usize = 44;

fn seal(bytes: &mut [u8]) {
    let checksum = crc32c(&bytes[..CHECKED]);
    bytes[CHECKED..HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = (split(bytes, FrameLimits::default()), Hello::decode(bytes));
    if bytes.len() < HEADER_BYTES {
        return;
    }
    let mut frame = bytes.to_vec();
    frame[..4].copy_from_slice(b"WEFT");
    let length = |at: usize| u32::from_le_bytes([frame[at], frame[at + 1], frame[at + 2], frame[at + 3]]) as usize;
    let content = length(24).saturating_add(length(28)).min(frame.len() - HEADER_BYTES);
    let checksum = crc32c(&frame[HEADER_BYTES..HEADER_BYTES + content]);
    frame[32..36].copy_from_slice(&checksum.to_le_bytes());
    seal(&mut frame);
    if let Ok(header) = Header::decode(&frame, FrameLimits { body_bytes: u32::MAX, payload_bytes: u32::MAX }) {
        assert_eq!(header.encode(), frame[..HEADER_BYTES]);
    }
    if let Ok((header, body, payload)) = split(&frame, FrameLimits::default()) {
        assert_eq!(header.with_content(body, &[IoSlice::new(payload)]), header);
    }
    let mut hello = bytes.to_vec();
    hello[..4].copy_from_slice(b"WEFH");
    let text = usize::from(u16::from_le_bytes([hello[28], hello[29]])).min(hello.len() - HELLO_BYTES);
    let checksum = crc32c(&hello[HELLO_BYTES..HELLO_BYTES + text]);
    hello[40..44].copy_from_slice(&checksum.to_le_bytes());
    seal(&mut hello);
    if let Ok(decoded) = Hello::decode(&hello) {
        let again = decoded.encode();
        assert_eq!(again, hello[..again.len()]);
        let _ = decoded.agree(&decoded);
    }
});
