use super::*;
use proptest::prelude::*;

fn hello(versions: (u16, u16), features: u64) -> Hello {
    Hello {
        versions,
        features,
        role: Role::STORE,
        refused: false,
        limits: FrameLimits::default(),
        client: 5,
        text: b"secret".to_vec(),
    }
}

#[test]
fn the_highest_common_version_and_the_common_features() {
    for (left, right, version) in [((1, 3), (2, 5), Some(3)), ((1, 1), (1, 9), Some(1)), ((4, 6), (1, 3), None)] {
        let (left, right) = (hello(left, 0b110), hello(right, 0b011));
        let agreed = version.map(|version| Agreed { version, features: 0b010 });
        assert_eq!(left.agree(&right).ok(), agreed);
        assert_eq!(right.agree(&left).ok(), agreed);
    }
    let error = hello((4, 6), 0).agree(&hello((1, 3), 0)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "no common version: the other side speaks 1 to 3, this one 4 to 6; update the older one"
    );
}

#[test]
fn the_bytes_are_those_of_the_table() {
    let limits = FrameLimits { body_bytes: 0x0102, payload_bytes: 0x0304 };
    let hello = Hello { limits, client: 0x0506, text: b"123456789".to_vec(), ..hello((1, 2), 0x0708) };
    let bytes = hello.encode();
    let expected = [
        b"WEFH".as_slice(),
        &[1, 0, 2, 0, 8, 7, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 1, 0, 0, 4, 3, 0, 0, 9, 0, 0, 0],
        &[6, 5, 0, 0, 0, 0, 0, 0, 0x83, 0x92, 0x06, 0xE3],
    ];
    assert_eq!(bytes[..44], expected.concat());
    assert_eq!(&bytes[48..], b"123456789");
}

#[test]
fn every_flipped_bit_is_found() {
    let bytes = hello((1, 2), 3).encode();
    assert_eq!(Hello::decode(&bytes), Ok(hello((1, 2), 3)));
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(Hello::decode(&flipped).is_err(), "bit {bit}");
    }
    for length in 0..bytes.len() {
        assert_eq!(Hello::decode(&bytes[..length]), Err(HelloError::Short));
    }
}

proptest! {
    #[test]
    fn any_bytes_are_a_hello_or_an_error(
        bytes in proptest::collection::vec(any::<u8>(), 0..200), sound in any::<bool>()
    ) {
        let mut bytes = bytes;
        if sound && bytes.len() >= HELLO_BYTES {
            bytes[..4].copy_from_slice(MAGIC);
            bytes[19] = 0;
            bytes[29..32].fill(0);
            let text = bytes.len().min(HELLO_BYTES + usize::from(bytes[28]));
            let checksum = crc32c(&bytes[HELLO_BYTES..text]);
            bytes[40..44].copy_from_slice(&checksum.to_le_bytes());
            let checksum = crc32c(&bytes[..44]);
            bytes[44..48].copy_from_slice(&checksum.to_le_bytes());
        }
        if let Ok(hello) = Hello::decode(&bytes) {
            let again = hello.encode();
            prop_assert_eq!(again.as_slice(), &bytes[..again.len()]);
        }
    }

    #[test]
    fn round_trip(
        low: u16, more: u16, features: u64, role: u16, refused: bool, body_bytes: u32, payload_bytes: u32, client: u64,
        text in proptest::collection::vec(any::<u8>(), 0..100),
    ) {
        let limits = FrameLimits { body_bytes, payload_bytes };
        let versions = (low, low.saturating_add(more));
        let hello = Hello { versions, features, role: Role(role), refused, limits, client, text };
        prop_assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
    }
}
