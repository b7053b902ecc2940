//! Checksums of objects that are uploaded in parts: of the whole object (CRCs alone, which combine
//! without their bytes), or of the checksums of the parts, with their number behind a dash. S3
//! calls these FULL_OBJECT and COMPOSITE.

use crate::digest::{ALGORITHMS, kind, of_bytes};
use base64_simd::STANDARD;
use crc_fast::CrcAlgorithm;
use objects::multipart::{ChecksumOfWhole, Upload};
use objects::{About, Code, Error, Result};
use s3s::dto::{ChecksumAlgorithm, ChecksumType, CompletedPart};
use s3s::{S3Result, s3_error};
use std::collections::BTreeMap;

/// What the request that begins an upload asks for.
///
/// # Errors
/// `InvalidRequest` for a type that the algorithm does not have.
pub fn asked(algorithm: Option<&ChecksumAlgorithm>, kind: Option<&ChecksumType>) -> S3Result<Option<ChecksumOfWhole>> {
    let Some(algorithm) = algorithm else {
        return match kind {
            Some(_) => Err(s3_error!(InvalidRequest, "x-amz-checksum-type needs x-amz-checksum-algorithm")),
            None => Ok(None),
        };
    };
    let name = ALGORITHMS.into_iter().find(|name| algorithm.as_str().eq_ignore_ascii_case(name));
    let name = name.ok_or_else(|| s3_error!(InvalidRequest, "no such checksum algorithm"))?;
    // The defaults are those of S3.
    let composite = match kind.map(ChecksumType::as_str) {
        Some(ChecksumType::COMPOSITE) => true,
        Some(ChecksumType::FULL_OBJECT) => false,
        Some(_) => return Err(s3_error!(InvalidRequest, "x-amz-checksum-type is COMPOSITE or FULL_OBJECT")),
        None => name != "crc64nvme",
    };
    match composite {
        true if name == "crc64nvme" => Err(s3_error!(InvalidRequest, "crc64nvme is of whole objects: FULL_OBJECT")),
        false if crc(name).is_none() => Err(s3_error!(InvalidRequest, "{name} is of the parts: COMPOSITE")),
        _ => Ok(Some(ChecksumOfWhole { algorithm: name.into(), composite })),
    }
}

/// The algorithm as answers have it.
pub fn algorithm(asked: &ChecksumOfWhole) -> ChecksumAlgorithm {
    asked.algorithm.to_uppercase().into()
}

/// What the request that completes an upload says.
#[derive(Clone, Debug, Default)]
pub struct Said {
    /// Of the whole object, by algorithm.
    pub whole: BTreeMap<&'static str, String>,
    /// Of each part that it lists, by algorithm.
    pub parts: Vec<BTreeMap<&'static str, String>>,
    /// The type of `whole`.
    pub kind: Option<ChecksumType>,
    /// The size of the object.
    pub size: Option<i64>,
}

impl Said {
    /// Compares that with the parts, and returns the checksums that are kept of the object.
    ///
    /// # Errors
    /// `InvalidPart`, `BadDigest`; `InvalidRequest` for another size or type, and for a checksum
    /// that the parts do not have.
    pub fn compare(&self, upload: &Upload, parts: &[About]) -> Result<BTreeMap<String, String>> {
        let asked = upload.checksum.as_ref();
        for (number, (said, part)) in self.parts.iter().zip(parts).enumerate() {
            let differs = |(name, said): &(&&str, &String)| match part.checksums.get(**name) {
                Some(is) => is != *said,
                None => asked.is_some_and(|asked| asked.algorithm == **name),
            };
            if let Some((name, _)) = said.iter().find(differs) {
                let message = format!("the {name} of part {} of the list is another one", number + 1);
                return Err(Error::with_message(Code::InvalidPart, message));
            }
        }
        let size = parts.iter().try_fold(0_u64, |all, part| all.checked_add(part.size));
        self.has(size)?;
        // Without an algorithm (an older gateway began the upload), the type is what is said.
        let says_composite = || match &self.kind {
            Some(said) => said.as_str() == ChecksumType::COMPOSITE,
            None => self.whole.values().any(|value| value.contains('-')),
        };
        let composite = asked.map_or_else(says_composite, |asked| asked.composite);
        if self.kind.as_ref().is_some_and(|said| *said != kind(composite)) {
            return refused(format!("the upload was begun with checksums of type {}", kind(composite).as_str()));
        }
        let kept = match asked {
            Some(asked) => vec![asked.algorithm.as_str()],
            None if composite => Vec::new(),
            None => ALGORITHMS.into_iter().filter(|name| crc(name).is_some()).collect(),
        };
        let names = kept.into_iter().chain(self.whole.keys().copied());
        let of_whole = |name: &str| if composite { of_checksums(name, parts) } else { combined(name, parts) };
        let mut found = BTreeMap::new();
        for name in names {
            if !found.contains_key(name) {
                found.extend(of_whole(name).map(|is| (name.to_owned(), is)));
            }
        }
        for (name, said) in &self.whole {
            let Some(is) = found.get(*name) else {
                return refused(format!("not every part has a {name}, so that of the object is not known"));
            };
            let is_other_type = || {
                asked.is_none() && self.kind.is_none() && of_checksums(name, parts).is_some_and(|is| says(said, &is))
            };
            if !says(said, is) && !is_other_type() {
                return wrong(name);
            }
        }
        Ok(found)
    }

    /// Compares that with an object that is there.
    ///
    /// # Errors
    /// `BadDigest`; `InvalidRequest` for another size.
    pub fn fits(&self, about: &About) -> Result<()> {
        self.has(Some(about.size))?;
        let differs = |(name, said): &(&&str, &String)| about.checksums.get(**name).is_some_and(|is| !says(said, is));
        match self.whole.iter().find(differs) {
            // Without a type, one of the other type was said.
            Some((name, _)) if self.kind.is_some() => wrong(name),
            _ => Ok(()),
        }
    }

    /// Whether the object has the size that is said.
    fn has(&self, size: Option<u64>) -> Result<()> {
        let Some(size) = size else { return refused("the parts are too long together".into()) };
        match self.size {
            Some(said) if u64::try_from(said) != Ok(size) => refused(format!("the object has {size} bytes")),
            _ => Ok(()),
        }
    }
}

/// Whether a checksum is what is said, which may lack the number of parts.
fn says(said: &str, is: &str) -> bool {
    is == said || is.split_once('-').is_some_and(|(is, _)| is == said)
}

fn refused<T>(message: String) -> Result<T> {
    Err(Error::with_message(Code::InvalidRequest, message))
}

fn wrong<T>(name: &str) -> Result<T> {
    Err(Error::with_message(Code::BadDigest, format!("the {name} of the object is another one")))
}

/// The checksums of a part as a completion lists it.
pub fn of_listed(part: &CompletedPart) -> BTreeMap<&'static str, String> {
    let values = [
        &part.checksum_crc32,
        &part.checksum_crc32c,
        &part.checksum_crc64nvme,
        &part.checksum_sha1,
        &part.checksum_sha256,
    ];
    ALGORITHMS.into_iter().zip(values).filter_map(|(name, value)| Some((name, value.clone()?))).collect()
}

fn crc(name: &str) -> Option<CrcAlgorithm> {
    match name {
        "crc32" => Some(CrcAlgorithm::Crc32IsoHdlc),
        "crc32c" => Some(CrcAlgorithm::Crc32Iscsi),
        "crc64nvme" => Some(CrcAlgorithm::Crc64Nvme),
        _ => None,
    }
}

/// The bytes of a checksum of each part; none if one has none.
fn of_each(name: &str, parts: &[About]) -> Option<Vec<Vec<u8>>> {
    let width = STANDARD.decode_to_vec(of_bytes(name, b"")?).ok()?.len();
    let of = |part: &About| STANDARD.decode_to_vec(part.checksums.get(name)?).ok().filter(|sum| sum.len() == width);
    parts.iter().map(of).collect()
}

/// The CRC of all bytes, from those of the parts.
fn combined(name: &str, parts: &[About]) -> Option<String> {
    let (shift, mut whole, mut width) = (Shift::new(crc(name)?), 0, 0);
    for (sum, part) in of_each(name, parts)?.into_iter().zip(parts) {
        let value = sum.iter().fold(0, |value, &byte| value << 8 | u64::from(byte));
        (whole, width) = (shift.over(whole, part.size) ^ value, sum.len());
    }
    let bytes: [u8; 8] = whole.to_be_bytes();
    Some(STANDARD.encode_to_string(bytes.get(bytes.len() - width..)?))
}

/// What a CRC becomes when bytes follow, without their own CRC. It is linear, so it is known for
/// each bit of the CRC, and for each power of two of bytes. The library's own combination makes
/// these tables anew for each of 10,000 parts.
struct Shift(Vec<[u64; 64]>);

impl Shift {
    fn new(algorithm: CrcAlgorithm) -> Self {
        let width = if matches!(algorithm, CrcAlgorithm::Crc64Nvme) { 64 } else { 32 };
        let one = |bit: usize| match bit < width {
            true => crc_fast::checksum_combine(algorithm, 1 << bit, 0, 1),
            false => 0,
        };
        let mut tables = vec![std::array::from_fn(one)];
        for power in 1..64 {
            let half: &[u64; 64] = &tables[power - 1];
            let twice = std::array::from_fn(|bit| apply(half, half[bit]));
            tables.push(twice);
        }
        Self(tables)
    }

    /// With so many bytes.
    fn over(&self, value: u64, bytes: u64) -> u64 {
        let powers = self.0.iter().enumerate().filter(|(power, _)| bytes >> power & 1 == 1);
        powers.fold(value, |value, (_, table)| apply(table, value))
    }
}

fn apply(table: &[u64; 64], value: u64) -> u64 {
    table.iter().enumerate().filter(|(bit, _)| value >> bit & 1 == 1).fold(0, |sum, (_, row)| sum ^ row)
}

/// The checksum of the checksums of the parts, and how many these are.
fn of_checksums(name: &str, parts: &[About]) -> Option<String> {
    let sums = of_each(name, parts)?;
    Some(format!("{}-{}", of_bytes(name, &sums.concat())?, sums.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(bytes: &[u8]) -> About {
        let checksums = ALGORITHMS.into_iter().map(|name| (name.into(), of_bytes(name, bytes).unwrap()));
        About { size: bytes.len() as u64, checksums: checksums.collect(), ..About::default() }
    }

    #[test]
    fn crcs_of_parts_combine_to_that_of_all_bytes() {
        let bytes: Vec<u8> = (0..100_000_u64).map(|number| ((number * number) >> 7) as u8).collect();
        for cuts in [&[][..], &[0], &[1], &[99_999], &[100_000], &[5, 5, 70_000], &[3, 50_000, 50_001]] {
            let mut begin = 0;
            let ends = cuts.iter().copied().chain([bytes.len()]);
            let parts: Vec<About> = ends.map(|end| part(&bytes[std::mem::replace(&mut begin, end)..end])).collect();
            for name in ["crc32", "crc32c", "crc64nvme"] {
                assert_eq!(combined(name, &parts), of_bytes(name, &bytes), "{name} {cuts:?}");
            }
            assert_eq!(combined("sha256", &parts), None);
        }
        assert_eq!(combined("crc32", &[About { checksums: BTreeMap::new(), ..part(b"x") }]), None);
        // What somebody wrote into the attribute.
        let odd = |value: &str| About { checksums: [("crc32".into(), value.into())].into(), ..part(b"x") };
        for value in ["", "AAAA", "AAAAAAAAAAAAAAAAAAAA", "?"] {
            assert_eq!(combined("crc32", &[part(b"x"), odd(value)]), None);
        }
        // Long parts, as the library combines them.
        for (name, algorithm) in ["crc32", "crc32c", "crc64nvme"].map(|name| (name, crc(name).unwrap())) {
            let shift = Shift::new(algorithm);
            for size in [u64::MAX, 1 << 40, 5 << 30, (64 << 20) + 3] {
                let value = 0x0123_4567_89AB_CDEF >> if name == "crc64nvme" { 0 } else { 32 };
                assert_eq!(shift.over(value, size), crc_fast::checksum_combine(algorithm, value, 0, size), "{name}");
            }
        }
    }

    #[test]
    fn what_a_completion_says_is_compared() {
        let parts = [part(b"12345"), part(b"6789")];
        let upload = |algorithm: &str, composite| Upload {
            checksum: Some(ChecksumOfWhole { algorithm: algorithm.into(), composite }),
            ..Upload::default()
        };
        let whole = |name: &'static str, value: &str| Said { whole: [(name, value.into())].into(), ..Said::default() };
        let code = |said: &Said, upload: &Upload| said.compare(upload, &parts).unwrap_err().code();
        // CRC-32 of "123456789", from its catalogue.
        let full = upload("crc32", false);
        let kept = whole("crc32", "y/Q5Jg==").compare(&full, &parts).unwrap();
        assert_eq!(kept, [("crc32".into(), "y/Q5Jg==".into())].into());
        assert_eq!(code(&whole("crc32", "y/Q5Jw=="), &full), Code::BadDigest);
        assert_eq!(code(&whole("sha1", "y/Q5Jw=="), &full), Code::InvalidRequest);
        let composite = upload("sha256", true);
        let kept = Said::default().compare(&composite, &parts).unwrap()["sha256"].clone();
        assert!(kept.ends_with("=-2"), "{kept}");
        for said in [&kept[..], kept.split('-').next().unwrap()] {
            whole("sha256", said).compare(&composite, &parts).unwrap();
        }
        assert_eq!(code(&whole("sha256", "y/Q5Jw=="), &composite), Code::BadDigest);
        let size = |size| Said { size: Some(size), ..Said::default() };
        size(9).compare(&full, &parts).unwrap();
        assert_eq!([10, -1].map(|bytes| code(&size(bytes), &full)), [Code::InvalidRequest; 2]);
        let typed = Said { kind: Some(kind(true)), ..Said::default() };
        assert_eq!(code(&typed, &full), Code::InvalidRequest);
        let listed = Said { parts: vec![BTreeMap::new(), [("crc32", "y/Q5Jg==".into())].into()], ..Said::default() };
        assert_eq!(code(&listed, &full), Code::InvalidPart);
        let absent = About { checksums: BTreeMap::new(), ..part(b"x") };
        let listed = Said { parts: vec![[("crc32", "y/Q5Jg==".into())].into()], ..Said::default() };
        assert_eq!(listed.compare(&full, &[absent]).unwrap_err().code(), Code::InvalidPart);
        let long = [u64::MAX, 1].map(|size| About { size, ..part(b"x") });
        assert_eq!(Said::default().compare(&full, &long).unwrap_err().code(), Code::InvalidRequest);
        // An older gateway began it: the client says the type, or only the value.
        let sum = of_checksums("crc32c", &parts).unwrap();
        let typed = Said { kind: Some(kind(true)), ..whole("crc32c", sum.split('-').next().unwrap()) };
        for said in [whole("crc32c", &sum), whole("crc32c", sum.split('-').next().unwrap()), typed] {
            let kept = said.compare(&Upload::default(), &parts).unwrap();
            said.fits(&About { checksums: kept, size: 9, ..About::default() }).unwrap();
        }
        assert_eq!(code(&whole("crc32c", "4waSgQ=="), &Upload::default()), Code::BadDigest);
        let other = Said { kind: Some(kind(false)), ..whole("crc32", "y/Q5Jw==") };
        let about = About { checksums: [("crc32".into(), "y/Q5Jg==".into())].into(), ..About::default() };
        assert_eq!(other.fits(&about).unwrap_err().code(), Code::BadDigest);
        assert_eq!(size(1).fits(&about).unwrap_err().code(), Code::InvalidRequest);
        // Without an algorithm, the CRCs that all parts have are kept.
        let kept = Said::default().compare(&Upload::default(), &parts).unwrap();
        assert_eq!(kept.keys().collect::<Vec<_>>(), ["crc32", "crc32c", "crc64nvme"]);
    }

    #[test]
    fn types_are_those_that_algorithms_have() {
        let asked = |name: &'static str, kind: Option<&'static str>| {
            asked(Some(&ChecksumAlgorithm::from_static(name)), kind.map(ChecksumType::from_static).as_ref())
        };
        let composite = |name, kind| asked(name, kind).unwrap().unwrap().composite;
        assert!(composite("SHA256", None) && composite("CRC32", None) && !composite("CRC64NVME", None));
        assert!(!composite("CRC32C", Some("FULL_OBJECT")));
        for (name, kind) in [("SHA1", "FULL_OBJECT"), ("CRC64NVME", "COMPOSITE"), ("CRC32", "other")] {
            assert!(asked(name, Some(kind)).is_err(), "{name} {kind}");
        }
        assert!(asked("MD4", None).is_err());
        assert!(super::asked(None, Some(&kind(true))).is_err());
        assert_eq!(super::asked(None, None).unwrap(), None);
    }
}
