//! The names of chunk files: `NAME.000.weft`, and `.NAME.000.weft.tmp-PID-N` until they are
//! committed.
//!
//! The name in a chunk's header is authoritative; the file name only helps to find it. So a name
//! that leaves no space for the endings is shortened, always in the same way.

use gf::checksum::crc64;
use plan::Position;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

const FRAGMENT_SUFFIX: &[u8] = b".weft";
/// With `.000.weft`, a dot and `.tmp-4294967295-4294967295`, the name stays within 255 bytes, the
/// maximum of a directory entry.
const MAX_STEM_BYTES: usize = 200;

/// The part of a chunk's file name before the position: the object's name, or for a long name its
/// beginning and a checksum of the whole name.
pub fn stem(name: &[u8]) -> Vec<u8> {
    if name.len() <= MAX_STEM_BYTES {
        return name.to_vec();
    }
    let suffix = format!("~{:016x}", crc64(name));
    let mut cut = MAX_STEM_BYTES - suffix.len();
    // Do not cut a UTF-8 character in two; in other encodings this drops at most three more bytes.
    while cut > MAX_STEM_BYTES - suffix.len() - 4 && name[cut] & 0xc0 == 0x80 {
        cut -= 1;
    }
    [&name[..cut], suffix.as_bytes()].concat()
}

/// The file name of the chunk of an object at a position.
pub fn fragment_file_name(name: &[u8], position: Position) -> OsString {
    OsString::from_vec([&stem(name)[..], format!(".{position:03}").as_bytes(), FRAGMENT_SUFFIX].concat())
}

/// The temporary name of a file until it is committed under `file_name`.
pub(super) fn temporary_file_name(file_name: &OsStr, number: u32) -> OsString {
    let ending = format!(".tmp-{}-{number}", std::process::id());
    OsString::from_vec([b".", file_name.as_bytes(), ending.as_bytes()].concat())
}

/// The parts of a chunk file's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileName {
    /// The object's name, possibly shortened.
    pub stem: Vec<u8>,
    /// The position.
    pub position: Position,
    /// The process that wrote it, if it was never committed.
    pub written_by: Option<u32>,
}

impl FileName {
    /// Parses the name of a chunk file; None for any other file.
    pub fn parse(file_name: &OsStr) -> Option<Self> {
        let bytes = file_name.as_bytes();
        let temporary = bytes.strip_prefix(b".").and_then(|rest| {
            let at = rest.windows(5).rposition(|w| w == b".tmp-")?;
            let (process, number) = std::str::from_utf8(&rest[at + 5..]).ok()?.split_once('-')?;
            number.parse::<u32>().ok()?;
            Some((&rest[..at], process.parse::<u32>().ok()?))
        });
        let (bytes, written_by) = temporary.map_or((bytes, None), |(rest, process)| (rest, Some(process)));
        let rest = bytes.strip_suffix(FRAGMENT_SUFFIX)?;
        let (stem, position) = rest.split_at_checked(rest.len().checked_sub(4)?)?;
        let digits = position.strip_prefix(b".").filter(|digits| digits.iter().all(u8::is_ascii_digit))?;
        let position = Position(std::str::from_utf8(digits).ok()?.parse().ok()?);
        (!stem.is_empty()).then(|| Self { stem: stem.to_vec(), position, written_by })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_come_apart_as_they_were_put_together() {
        for name in [&b"a"[..], b".hidden", b"a.000.weft", b"with \n\xff", &[b'x'; 255], "ä".repeat(127).as_bytes()] {
            let file_name = fragment_file_name(name, Position(7));
            let parsed = FileName::parse(&file_name).unwrap();
            assert_eq!(parsed, FileName { stem: stem(name), position: Position(7), written_by: None });
            let temporary = temporary_file_name(&file_name, u32::MAX);
            assert!(temporary.len() <= 255, "{}", temporary.len());
            assert_eq!(FileName::parse(&temporary).unwrap().written_by, Some(std::process::id()));
            assert_eq!(FileName::parse(&temporary).unwrap().stem, stem(name));
        }
        for other in ["", ".weft", ".000.weft", "a.weft", "a.00x.weft", "a.000.wef", "é.weft", ".a.000.weft.tmp-1"] {
            assert_eq!(FileName::parse(OsStr::new(other)), None, "{other}");
        }
    }

    #[test]
    fn long_names_stay_different_and_readable() {
        let [a, b] = [[b'x'; 255], [b'x'; 254].iter().chain(b"y").copied().collect::<Vec<_>>().try_into().unwrap()];
        assert_ne!(stem(&a), stem(&b));
        assert!(String::from_utf8(stem("ä".repeat(127).as_bytes())).is_ok());
        assert!(String::from_utf8(stem("x€".repeat(63).as_bytes())).is_ok());
    }
}
