use super::*;
use proptest::prelude::*;

fn frame(header: Header, body: &[u8], payload: &[u8]) -> Vec<u8> {
    let header = header.with_content(body, &[IoSlice::new(payload)]);
    [&header.encode(), body, payload].concat()
}

#[test]
fn the_catalogued_check_value() {
    assert_eq!(crc32c(b"123456789"), 0xE306_9283);
}

#[test]
fn the_bytes_are_those_of_the_table() {
    let mut header = Header::new(FrameKind::Request, 0x0102_0304_0506_0708);
    header.method = 0x0A0B;
    header.deadline_ms = 1000;
    let bytes = frame(header, b"123", b"456789");
    let expected = [
        b"WEFT".as_slice(),
        &[1, 0, 0x0B, 0x0A, 0, 0, 0, 0, 0xE8, 3, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1, 3, 0, 0, 0, 6, 0, 0, 0],
        &[0x83, 0x92, 0x06, 0xE3, 0, 0, 0, 0, 0, 0, 0, 0],
    ]
    .concat();
    assert_eq!(bytes[..44], expected);
    assert_eq!(&bytes[48..], b"123456789");
}

#[test]
fn every_flipped_bit_is_found() {
    let bytes = frame(Header::new(FrameKind::Response, 7), b"body", &[9; 100]);
    assert!(split(&bytes, FrameLimits::default()).is_ok());
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(split(&flipped, FrameLimits::default()).is_err(), "bit {bit}");
    }
    for length in 0..bytes.len() {
        assert_eq!(split(&bytes[..length], FrameLimits::default()), Err(FrameError::Short));
    }
}

#[test]
fn lengths_beyond_the_limits_are_refused_before_anything_is_read() {
    let limits = FrameLimits { body_bytes: 10, payload_bytes: 100 };
    let mut header = Header::new(FrameKind::Request, 1);
    header.payload_bytes = u32::MAX;
    assert_eq!(Header::decode(&header.encode(), limits), Err(FrameError::TooLong { bytes: u32::MAX, limit: 100 }));
    header.payload_bytes = 100;
    header.body_bytes = 11;
    assert_eq!(Header::decode(&header.encode(), limits), Err(FrameError::TooLong { bytes: 11, limit: 10 }));
    header.body_bytes = 10;
    assert!(Header::decode(&header.encode(), limits).is_ok());
    header.kind = FrameKind::Ping;
    assert_eq!(Header::decode(&header.encode(), limits), Err(FrameError::Unexpected(FrameKind::Ping)));
}

#[test]
fn what_has_no_meaning_is_refused() {
    for (at, error) in [
        (4, FrameError::FrameKind(99)),
        (5, FrameError::Reserved),
        (10, FrameError::Reserved),
        (43, FrameError::Reserved),
    ] {
        let mut bytes = Header::new(FrameKind::Ping, 0).encode();
        bytes[at] = 99;
        let checksum = crc32c(&bytes[..44]);
        bytes[44..].copy_from_slice(&checksum.to_le_bytes());
        assert_eq!(Header::decode(&bytes, FrameLimits::default()), Err(error));
    }
}

proptest! {
    #[test]
    fn any_bytes_are_a_frame_or_an_error(
        bytes in proptest::collection::vec(any::<u8>(), 0..200), sound in any::<bool>()
    ) {
        let mut bytes = bytes;
        if sound && bytes.len() >= HEADER_BYTES {
            bytes[..4].copy_from_slice(MAGIC);
            bytes[4] %= 13;
            let checksum = crc32c(&bytes[..44]);
            bytes[44..48].copy_from_slice(&checksum.to_le_bytes());
        }
        if let Ok(header) = Header::decode(&bytes, FrameLimits { body_bytes: u32::MAX, payload_bytes: u32::MAX }) {
            prop_assert_eq!(&header.encode()[..], &bytes[..HEADER_BYTES]);
        }
        let _ = split(&bytes, FrameLimits::default());
    }

    #[test]
    fn round_trip(
        kind in 0..6usize, method: u16, status: u16, deadline_ms: u32, id: u64, count: u32,
        body in proptest::collection::vec(any::<u8>(), 0..50), payload in proptest::collection::vec(any::<u8>(), 0..50),
        cut in 0..50usize,
    ) {
        let fields = Header { method, status, deadline_ms, count, ..Header::new(FrameKind::ALL[kind], id) };
        let (first, second) = payload.split_at(cut.min(payload.len()));
        let header = fields.with_content(&body, &[IoSlice::new(first), IoSlice::new(second)]);
        let bytes = [&header.encode(), body.as_slice(), &payload].concat();
        prop_assert_eq!(split(&bytes, FrameLimits::default()), Ok((header, body.as_slice(), payload.as_slice())));
    }
}
