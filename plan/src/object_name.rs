//! The names of files that S3 objects have. A key is cut at its slashes, and each part is the name
//! of a directory entry: most parts are names as they are. A part that cannot be a name, or whose
//! name is a directory's, has a name that begins with `.s3`; so has a part that begins with `.s3`
//! itself. Both directions are functions, so a key always leads to the same file, and back
//! (`docs/s3.md`). A directory is listed in the order of [`order`].

use std::fmt::Write;

/// Names that begin so belong to the gateway.
const RESERVED: &[u8] = b".s3";
/// The directory of a gateway. Another one may have it inside a bucket.
pub const HOME: &[u8] = b".weft-s3";
/// Before a part that is no name.
const ESCAPED: &[u8] = b".s3=";
/// Before a part whose name is a directory's.
const BESIDE: &[u8] = b".s3@";
/// In a part: before the bytes of a name that is not UTF-8, in hexadecimal.
const BYTES: &str = ".s3%";
/// The longest name, in bytes.
const MAX_NAME: usize = 255;

/// Why a part has no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It is longer than a name can be.
    TooLong,
    /// It has a byte 0.
    Zero,
}

/// The parts of a key; there is at least one.
pub fn parts(key: &str) -> Vec<&str> {
    key.split('/').collect()
}

/// The name of a part, where no directory has it.
pub fn name(part: &str) -> Result<Vec<u8>, Refused> {
    if part.contains('\0') {
        return Err(Refused::Zero);
    }
    if let Some(bytes) = part.strip_prefix(BYTES).and_then(unhex)
        && std::str::from_utf8(&bytes).is_err()
        && is_plain(&bytes)
    {
        return Ok(bytes);
    }
    if is_plain(part.as_bytes()) { Ok(part.as_bytes().to_vec()) } else { behind(ESCAPED, part) }
}

/// The name of an object of a part whose name is a directory's.
pub fn beside(part: &str) -> Result<Vec<u8>, Refused> {
    if part.contains('\0') { Err(Refused::Zero) } else { behind(BESIDE, part) }
}

/// Whether a name is one that `beside` gives.
pub fn is_beside(name: &[u8]) -> bool {
    name.starts_with(BESIDE)
}

fn behind(prefix: &[u8], part: &str) -> Result<Vec<u8>, Refused> {
    let name = [prefix, part.as_bytes()].concat();
    if name.len() > MAX_NAME { Err(Refused::TooLong) } else { Ok(name) }
}

/// The part that a name stands for; None for one that no part has.
pub fn part(name: &[u8]) -> Option<String> {
    if let Some(part) = name.strip_prefix(ESCAPED).or_else(|| name.strip_prefix(BESIDE)) {
        let part = String::from_utf8(part.to_vec()).ok()?;
        let names = [self::name(&part), beside(&part)];
        return names.iter().flatten().any(|own| own == name).then_some(part);
    }
    if name.starts_with(RESERVED) || name == HOME {
        return None;
    }
    match std::str::from_utf8(name) {
        Ok(part) => Some(part.to_owned()),
        Err(_) => Some(name.iter().fold(BYTES.to_owned(), |mut part, byte| {
            let _ = write!(part, "{byte:02x}");
            part
        })),
    }
}

/// Where an entry of a directory is in the byte order of keys: the text by which it is sorted. None
/// for one that no key has.
///
/// Keys below a directory begin with its part and a slash, so this is its text, and `a-b` is before
/// the directory `a`. Of two objects of one part, the one with the plain name is first.
pub fn order(name: &[u8], is_directory: bool) -> Option<Vec<u8>> {
    let is_beside = is_beside(name);
    // Only objects are beside directories.
    if is_beside && is_directory {
        return None;
    }
    let mut text = part(name)?.into_bytes();
    if is_directory {
        text.push(b'/');
    } else if is_beside {
        // No part has this byte.
        text.push(0);
    }
    Some(text)
}

/// The name of an entry, of which `order` gives this text.
pub fn ordered(text: &[u8]) -> Option<Vec<u8>> {
    let (text, is_beside) = match text.strip_suffix(&[0]) {
        Some(text) => (text, true),
        None => (text.strip_suffix(b"/").unwrap_or(text), false),
    };
    let part = std::str::from_utf8(text).ok()?;
    if is_beside { beside(part) } else { name(part) }.ok()
}

/// Whether bytes are a name as they are.
fn is_plain(part: &[u8]) -> bool {
    let is_dots = matches!(part, b"" | b"." | b"..");
    !is_dots && part != HOME && !part.starts_with(RESERVED) && part.len() <= MAX_NAME && !part.contains(&b'/')
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    let is_hex = |digit: &u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
    if !digits.len().is_multiple_of(2) || !digits.iter().all(is_hex) {
        return None;
    }
    let pairs = digits.chunks_exact(2).map(|pair| std::str::from_utf8(pair).ok());
    pairs.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_has_one_name_and_comes_back() {
        let long = "x".repeat(255);
        let parts = [
            "a",
            "a-b",
            "",
            ".",
            "..",
            ".s3",
            ".s3=",
            ".s3=a",
            ".s3%",
            ".s3%6162",
            ".weft-s3",
            "ä",
            " ",
            long.as_str(),
        ];
        for given in parts {
            let name = name(given).unwrap();
            assert!(!matches!(&name[..], b"" | b"." | b"..") && !name.contains(&b'/'), "{given}");
            assert_eq!(part(&name).as_deref(), Some(given));
        }
        let names: std::collections::BTreeSet<Vec<u8>> = parts.iter().map(|part| name(part).unwrap()).collect();
        assert_eq!(names.len(), parts.len());
        assert_eq!(name(&"x".repeat(256)), Err(Refused::TooLong));
        assert_eq!(name("a\0"), Err(Refused::Zero));
    }

    #[test]
    fn a_name_that_is_not_utf_8_has_a_part() {
        let given = b"caf\xe9";
        let shown = part(given).unwrap();
        assert_eq!(shown, ".s3%636166e9");
        assert_eq!(name(&shown).unwrap(), given);
        // These would be second names of their parts.
        for other in [&b".s3other"[..], b".s3=plain", b".weft-s3", b".s3=.s3%636166e9"] {
            assert_eq!(part(other), None, "{}", other.escape_ascii());
        }
    }

    #[test]
    fn the_order_of_names_is_that_of_keys() {
        let entries = [
            (&b"a"[..], false, &b"a"[..]),
            (b".s3@a", false, b"a\0"),
            (b"a\x01", false, b"a\x01"),
            (b"a-b", false, b"a-b"),
            (b"a", true, b"a/"),
            (b"a0", false, b"a0"),
            (b"caf\xe9", true, b".s3%636166e9/"),
            (b".s3=", false, b""),
            (b".s3=", true, b"/"),
        ];
        for (name, is_directory, text) in entries {
            assert_eq!(order(name, is_directory).as_deref(), Some(text));
            assert_eq!(ordered(text).as_deref(), Some(name));
        }
        assert_eq!(order(b".s3@a", true), None);
        assert_eq!(order(b".s3other", false), None);
    }

    #[test]
    fn a_part_beside_a_directory_is_the_same_part() {
        assert_eq!(beside("a").unwrap(), b".s3@a");
        assert_eq!(part(b".s3@a").as_deref(), Some("a"));
        assert!(beside("").unwrap() != name("").unwrap());
    }
}
