//! Tables of the bytes of messages. A change of them is another version of the messages.

/// Bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A line of a table: a name and the bytes of a value, which decode to this value.
macro_rules! row {
    ($name:expr, $type:ty, $value:expr) => {{
        let value: $type = $value;
        let encoded = postcard::to_stdvec(&value).unwrap();
        assert_eq!(postcard::from_bytes::<$type>(&encoded).as_ref(), Ok(&value));
        format!("{} {}", $name, crate::golden::hex(&encoded))
    }};
}

/// That these lines are the table's. If not, all of them are shown.
#[track_caller]
pub(crate) fn table(expected: &str, lines: &[String]) {
    assert!(expected.lines().eq(lines), "the bytes have changed; they are now:\n{}\n", lines.join("\n"));
}

pub(crate) use row;
