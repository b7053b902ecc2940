//! Tables of the bytes of messages: a name and the bytes, a line each. They were made from the
//! rules of postcard 1, not by this code: what differs from them is another version of the
//! messages.

/// A line of a table.
pub(crate) fn line(name: &str, bytes: &[u8]) -> String {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{name} {hex}")
}

/// The line of a value, whose bytes decode to this value.
macro_rules! row {
    ($name:expr, $type:ty, $value:expr) => {{
        let value: $type = $value;
        let encoded = postcard::to_stdvec(&value).unwrap();
        assert_eq!(postcard::from_bytes::<$type>(&encoded).as_ref(), Ok(&value));
        crate::golden::line($name, &encoded)
    }};
}

/// That these lines are the table's. If not, all of them are shown.
#[track_caller]
pub(crate) fn is_table(expected: &str, lines: &[String]) {
    assert!(expected.lines().eq(lines), "the bytes have changed; they are now:\n{}\n", lines.join("\n"));
}

pub(crate) use row;
