//! Headers written out: a line for each 32 bytes that are not all zero, with their offset.

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// That these are the bytes of the table.
#[track_caller]
pub fn is_fixed(bytes: &[u8], table: &str) {
    let parts = bytes.chunks(32).enumerate().filter(|(_, part)| part.iter().any(|byte| *byte != 0));
    let lines: Vec<String> = parts.map(|(number, part)| format!("{:4} {}", 32 * number, hex(part))).collect();
    assert!(table.lines().eq(&lines), "the bytes have changed; they are now:\n{}\n", lines.join("\n"));
}
