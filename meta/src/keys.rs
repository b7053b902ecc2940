//! The keys of the metadata. Numbers are big-endian, so that keys sort by number.
//!
//! | key | value |
//! |---|---|
//! | `I` ino | [`InodeLocation`](crate::record::InodeLocation): an entry, or the dinode |
//! | `N` parent, hash, name | [`Entry`](crate::record::Entry): a dinode, or a hard link's ino |
//! | `D` ino | [`DirectoryState`](crate::record::DirectoryState) of a directory |
//! | `B` ino, offset | length and place of an extent of a file with many |
//! | `X` ino, name | value of an extended attribute |
//! | `V` set | [`SetRecord`](crate::record::SetRecord) |
//! | `T` set, record | [`StripeRecord`](crate::record::StripeRecord) |
//! | `R` set, record, ino | a file that shares bytes of a stripe written for another file |
//! | `J` set | positions of a set to rebuild |
//! | `O` ino | a file without a name, while a client has it open |
//! | `G` | [`Totals`](crate::record::Totals) |
//! | `K` session, request | a request that was carried out and whose answer may not have arrived |
//! | `S` name | a setting |

use plan::{Ino, RecordOffset, SessionId, SetId};
use std::ops::Range;

pub(crate) const INODE_LOCATION: u8 = b'I';
pub(crate) const ENTRY: u8 = b'N';
pub(crate) const DIRECTORY: u8 = b'D';
pub(crate) const EXTENT: u8 = b'B';
pub(crate) const ATTRIBUTE: u8 = b'X';
pub(crate) const SET: u8 = b'V';
pub(crate) const STRIPE: u8 = b'T';
pub(crate) const SHARED: u8 = b'R';
pub(crate) const REPAIR: u8 = b'J';
pub(crate) const ORPHAN: u8 = b'O';
pub(crate) const TOTALS: u8 = b'G';
pub(crate) const REQUEST: u8 = b'K';
pub(crate) const SETTING: u8 = b'S';

/// A key: its kind, numbers, and a suffix.
fn key(kind: u8, numbers: &[u64], tail: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(1 + 8 * numbers.len() + tail.len());
    key.push(kind);
    numbers.iter().for_each(|number| key.extend_from_slice(&number.to_be_bytes()));
    key.extend_from_slice(tail);
    key
}

/// All keys that begin with `prefix`.
pub(crate) fn under(prefix: Vec<u8>) -> Range<Vec<u8>> {
    let mut end = prefix.clone();
    while end.last() == Some(&u8::MAX) {
        end.pop();
    }
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    prefix..end
}

/// The number at `at` in a key; 0 when the key is too short.
pub(crate) fn number(key: &[u8], at: usize) -> u64 {
    key.get(at..at + 8).map_or(0, |bytes| u64::from_be_bytes(bytes.try_into().unwrap_or_default()))
}

pub(crate) fn inode_location(ino: Ino) -> Vec<u8> {
    key(INODE_LOCATION, &[ino.0], &[])
}

/// The hash that orders the names of a directory. It is cryptographic, so that no user can create
/// names that collide. The low byte is free, to tell equal hashes apart in cookies. The top bit is
/// free because cookies are signed.
pub(crate) fn hash(name: &[u8]) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = *blake3::hash(name).as_bytes();
    (u64::from_le_bytes([a, b, c, d, e, f, g, h]) >> 10) << 8
}

pub(crate) fn entry(parent: Ino, name: &[u8]) -> Vec<u8> {
    key(ENTRY, &[parent.0, hash(name)], name)
}

pub(crate) fn entries(parent: Ino) -> Range<Vec<u8>> {
    under(key(ENTRY, &[parent.0], &[]))
}

/// The range from the first entry whose hash is at least `hash` to the end of the directory.
pub(crate) fn entries_from(parent: Ino, hash: u64) -> Range<Vec<u8>> {
    key(ENTRY, &[parent.0, hash], &[])..entries(parent).end
}

/// The hash and the name in the key of an entry.
pub(crate) fn entry_name(key: &[u8]) -> (u64, &[u8]) {
    (number(key, 9), key.get(17..).unwrap_or_default())
}

pub(crate) fn directory(ino: Ino) -> Vec<u8> {
    key(DIRECTORY, &[ino.0], &[])
}

pub(crate) fn extent(ino: Ino, offset: u64) -> Vec<u8> {
    key(EXTENT, &[ino.0, offset], &[])
}

pub(crate) fn extents(ino: Ino) -> Range<Vec<u8>> {
    under(key(EXTENT, &[ino.0], &[]))
}

pub(crate) fn attribute(ino: Ino, name: &[u8]) -> Vec<u8> {
    key(ATTRIBUTE, &[ino.0], name)
}

pub(crate) fn attributes(ino: Ino) -> Range<Vec<u8>> {
    under(key(ATTRIBUTE, &[ino.0], &[]))
}

pub(crate) fn set(set: SetId) -> Vec<u8> {
    key(SET, &[set.0], &[])
}

pub(crate) fn stripe(set: SetId, record: RecordOffset) -> Vec<u8> {
    key(STRIPE, &[set.0], &record.0.to_be_bytes())
}

pub(crate) fn stripes(set: SetId) -> Range<Vec<u8>> {
    under(key(STRIPE, &[set.0], &[]))
}

pub(crate) fn shared(set: SetId, record: RecordOffset, ino: Ino) -> Vec<u8> {
    key(SHARED, &[set.0], &[&record.0.to_be_bytes()[..], &ino.0.to_be_bytes()].concat())
}

pub(crate) fn shared_by(set: SetId, record: RecordOffset) -> Range<Vec<u8>> {
    under(key(SHARED, &[set.0], &record.0.to_be_bytes()))
}

pub(crate) fn repair(set: SetId) -> Vec<u8> {
    key(REPAIR, &[set.0], &[])
}

pub(crate) fn orphan(ino: Ino) -> Vec<u8> {
    key(ORPHAN, &[ino.0], &[])
}

pub(crate) fn request(session: SessionId, request: u64) -> Vec<u8> {
    key(REQUEST, &[session.0, request], &[])
}

/// The requests of a session.
pub(crate) fn requests(session: SessionId) -> Range<Vec<u8>> {
    under(key(REQUEST, &[session.0], &[]))
}

pub(crate) fn totals() -> Vec<u8> {
    vec![TOTALS]
}

pub(crate) fn setting(name: &str) -> Vec<u8> {
    key(SETTING, &[], name.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_hold_what_begins_with_the_prefix() {
        let range = under(vec![b'N', 0xFF, 0xFF]);
        assert_eq!(range.end, [b'N' + 1]);
        assert!(entries(Ino(5)).contains(&entry(Ino(5), b"name")));
        assert!(
            !entries(Ino(5)).contains(&entry(Ino(6), b"name")) && !entries(Ino(5)).contains(&entry(Ino(4), b"name"))
        );
        assert!(entries(Ino(u64::MAX)).contains(&entry(Ino(u64::MAX), b"name")));
        assert!(entries_from(Ino(5), hash(b"name")).contains(&entry(Ino(5), b"name")));
    }

    #[test]
    fn cookies_have_space_and_are_not_negative() {
        assert!((0..1000u32).all(|n| hash(&n.to_le_bytes()) & 0xFF == 0 && hash(&n.to_le_bytes()) < 1 << 63));
    }
}
