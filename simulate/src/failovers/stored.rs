//! What is stored: the position of each request, and the number of all.

use meta::kv::KvError;

/// The key of the number of all requests that were carried out.
pub const SUM: &[u8] = b"sum";

/// Adds little-endian numbers.
pub fn add(_key: &[u8], old: Option<&[u8]>, operand: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
    Ok(Some((old.map_or(0, number) + number(operand)).to_le_bytes().to_vec()))
}

/// A stored number.
pub fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("it has eight bytes"))
}
