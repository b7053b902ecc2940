//! ETags. That of an object put in one piece is the MD5 of its bytes, as clients of S3 expect, or a
//! BLAKE3 hash of them, which takes a fraction of the time. Every ETag with a dash is no MD5:
//! clients compare none of these with the bytes.

use crate::text::{hex, unhex};
use fs::Attributes;
use md5::{Digest, Md5};

/// Behind a tag of one piece that is no MD5. S3 writes the number of parts behind the dash.
const ONE_PIECE: &str = "-0";

/// What the ETag of an object is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// The MD5 of its bytes.
    #[default]
    Md5,
    /// The first 16 bytes of the BLAKE3 hash of its bytes, and `-0`.
    Blake3,
}

/// Goes over the bytes of an object.
pub enum Hash {
    /// For the one kind.
    Md5(Md5),
    /// For the other.
    Blake3(Box<blake3::Hasher>),
}

impl Hash {
    /// Without any bytes yet.
    pub fn new(kind: Kind) -> Self {
        match kind {
            Kind::Md5 => Self::Md5(Md5::new()),
            Kind::Blake3 => Self::Blake3(Box::new(blake3::Hasher::new())),
        }
    }

    /// The next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Md5(hash) => hash.update(bytes),
            Self::Blake3(hash) => _ = hash.update(bytes),
        }
    }

    /// The ETag of all bytes, without quotes.
    pub fn etag(self) -> String {
        match self {
            Self::Md5(hash) => hex(&hash.finalize()),
            Self::Blake3(hash) => of_one_piece(&hash.finalize().as_bytes()[..16]),
        }
    }
}

/// The ETag of the bytes of an object that are in memory.
pub fn of_bytes(kind: Kind, bytes: &[u8]) -> String {
    let mut hash = Hash::new(kind);
    hash.update(bytes);
    hash.etag()
}

/// The ETag of a file that no gateway wrote. It changes with the file's number, size and
/// modification time, and its bytes are not read.
pub fn of_file(file: &Attributes) -> String {
    let mut bytes = Vec::with_capacity(28);
    bytes.extend(file.ino.0.to_le_bytes());
    bytes.extend(file.size.to_le_bytes());
    bytes.extend(file.modified.seconds.to_le_bytes());
    bytes.extend(file.modified.nanoseconds.to_le_bytes());
    of_one_piece(&Md5::digest(&bytes))
}

/// The ETag of an object in parts: the MD5 of the tags of the parts, and their number. None if
/// one of them is no ETag of a part.
pub fn of_parts<'a>(parts: impl ExactSizeIterator<Item = &'a str>) -> Option<String> {
    let (count, mut hash) = (parts.len(), Md5::new());
    for part in parts {
        hash.update(unhex(part.strip_suffix(ONE_PIECE).unwrap_or(part))?);
    }
    Some(format!("{}-{count}", hex(&hash.finalize())))
}

/// Whether the ETag is that of an object in parts.
pub fn is_of_parts(etag: &str) -> bool {
    etag.contains('-') && !etag.ends_with(ONE_PIECE)
}

fn of_one_piece(bytes: &[u8]) -> String {
    format!("{}{ONE_PIECE}", hex(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_made_of_the_bytes() {
        // From RFC 1321, and from BLAKE3's test vectors (the empty input).
        assert_eq!(of_bytes(Kind::Md5, b"abc"), "900150983cd24fb0d6963f7d28e17f72");
        assert_eq!(of_bytes(Kind::Blake3, b""), "af1349b9f5f9a1a6a0404dea36dcc949-0");
        let mut pieces = Hash::new(Kind::Blake3);
        pieces.update(b"ab");
        pieces.update(b"c");
        assert_eq!(pieces.etag(), of_bytes(Kind::Blake3, b"abc"));
    }

    #[test]
    fn an_object_in_parts_has_the_tag_of_its_parts() {
        let parts = [of_bytes(Kind::Md5, b"a"), of_bytes(Kind::Md5, b"b")];
        let tag = of_parts(parts.iter().map(String::as_str)).unwrap();
        let both = [unhex(&parts[0]).unwrap(), unhex(&parts[1]).unwrap()].concat();
        assert_eq!(tag, format!("{}-2", of_bytes(Kind::Md5, &both)));
        let of_one = [of_bytes(Kind::Blake3, b"a")];
        assert!(of_parts(of_one.iter().map(String::as_str)).unwrap().ends_with("-1"));
        assert!(is_of_parts(&tag) && !is_of_parts(&of_one[0]) && !is_of_parts(&parts[0]));
        // Ten parts end with a 0, too.
        assert!(is_of_parts("900150983cd24fb0d6963f7d28e17f72-10"));
        assert_eq!(of_parts(["x"].into_iter()), None);
    }
}
