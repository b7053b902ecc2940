//! What a stripe says about the files in it, so that the metadata can be made again from chunks alone.
//!
//! The manifest stands behind the data of the stripe and is coded with it, so that any k blocks give it back. It is the last thing to be
//! needed: a name that was changed, or removed, after the stripe was written is still in it.

use meta::Time;
use serde::{Deserialize, Serialize};

/// A piece of a file in a stripe. The pieces stand in the stripe in this order, one behind the other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    /// The file.
    pub ino: u64,
    /// Where in the file it begins.
    pub offset: u64,
    /// Its bytes.
    pub length: u64,
    /// What the file was when it was written; the same as that of the piece before if None.
    pub file: Option<File>,
}

/// What a file was when some of it was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct File {
    /// Its path from the root of the volume, without a slash in front; one of its paths, if there are several.
    pub path: Vec<u8>,
    /// Its size then.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last change of its content.
    pub modified: Time,
}

/// The bytes of a manifest.
pub(crate) fn encode(pieces: &[Piece]) -> Vec<u8> {
    postcard::to_stdvec(pieces).expect("a list of numbers and bytes")
}

/// The pieces in some bytes; None when they are no manifest.
pub fn decode(bytes: &[u8]) -> Option<Vec<Piece>> {
    postcard::from_bytes(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_a_manifest_or_none(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&bytes);
        }

        #[test]
        fn pieces_come_back(ino: u64, offset: u64, length: u64, path in prop::collection::vec(any::<u8>(), 0..50)) {
            let file = File { path, size: 5, mode: 0o644, uid: 1, gid: 2, modified: Time::default() };
            let pieces = vec![Piece { ino, offset, length, file: Some(file) }, Piece { ino, offset: 0, length, file: None }];
            prop_assert_eq!(decode(&encode(&pieces)), Some(pieces));
        }
    }
}
