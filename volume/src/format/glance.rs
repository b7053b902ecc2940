//! What a record header says before it is checked.

use super::chunk::StripeHeader;
use super::record::RecordHeader;

/// The length of the record that begins with `bytes` at `offset` of a chunk or a fragment, in
/// bytes, and the checksum in its header, which is not checked.
pub(crate) fn record_of(bytes: &[u8], offset: u64) -> Option<(u64, u64)> {
    StripeHeader::glance(bytes, offset).or_else(|| RecordHeader::glance(bytes))
}
