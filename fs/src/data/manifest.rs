//! The manifest of a stripe: a description of the files in it, so that the metadata can be rebuilt
//! from chunks alone.
//!
//! The manifest follows the data of the stripe and is coded with it, so that any k blocks restore
//! it. It is the last resort: it still has a name that was changed or removed after the stripe was
//! written.

use meta::Time;
use plan::Ino;
use serde::{Deserialize, Serialize};

/// A piece of a file in a stripe. The pieces lie in the stripe in this order, without gaps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    /// The inode number of the file.
    pub ino: Ino,
    /// Its offset in the file, in bytes.
    pub offset: u64,
    /// Its length, in bytes.
    pub length: u64,
    /// The file at the time of the write; None: the same as for the piece before.
    pub file: Option<File>,
}

/// A file, as it was when some of it was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct File {
    /// Its path from the root of the volume, without a leading slash. If there are several paths,
    /// one of them.
    pub path: Vec<u8>,
    /// Its size at that time, in bytes.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// The time of the last change of its content.
    pub modified: Time,
}

impl File {
    /// Without its path if that leaves too little of a stripe of this size for the file's data.
    pub(crate) fn fitting(self, stripe_bytes: usize) -> Self {
        // Beside the path, an entry takes some numbers.
        let fits = self.path.len() + 256 <= stripe_bytes;
        if fits { self } else { Self { path: Vec::new(), ..self } }
    }
}

/// Encodes a manifest.
pub(crate) fn encode(pieces: &[Piece]) -> Vec<u8> {
    postcard::to_stdvec(pieces).expect("a list of numbers and bytes")
}

/// Decodes a manifest; None when the bytes are not one.
pub fn decode(bytes: &[u8]) -> Option<Vec<Piece>> {
    postcard::from_bytes(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The bytes were made from `docs/format.md`, not by this code.
    #[test]
    fn a_manifest_has_fixed_bytes() {
        let modified = Time { seconds: 1_700_000_000, nanoseconds: 5 };
        let file = File { path: b"a/b".to_vec(), size: 5000, mode: 0o644, uid: 1000, gid: 100, modified };
        let pieces = [
            Piece { ino: Ino(16), offset: 0, length: 4096, file: Some(file) },
            Piece { ino: Ino(16), offset: 4096, length: 904, file: None },
        ];
        let bytes: String = encode(&pieces).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(bytes, "02100080200103612f628827a403e8076480c49fd50c05108020880700");
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_manifest_or_none(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&bytes);
        }

        #[test]
        fn pieces_come_back(ino: u64, offset: u64, length: u64, path in prop::collection::vec(any::<u8>(), 0..50)) {
            let file = File { path, size: 5, mode: 0o644, uid: 1, gid: 2, modified: Time::default() };
            let ino = Ino(ino);
            let pieces =
                vec![Piece { ino, offset, length, file: Some(file) }, Piece { ino, offset: 0, length, file: None }];
            prop_assert_eq!(decode(&encode(&pieces)), Some(pieces));
        }
    }
}
