//! What a client says of the bytes that it sends: MD5 and five checksums, in headers or behind the
//! bytes. All that it says is compared before the object is there, and the checksums are kept. The
//! ETag is made on the way.

use hyper::HeaderMap;
use objects::etag::{Hash, Kind};
use objects::text::hex;
use s3s::checksum::ChecksumHasher;
use s3s::crypto::{Checksum as _, Crc32, Crc32c, Crc64Nvme, Sha1, Sha256};
use s3s::dto::{Checksum, ChecksumType};
use s3s::{S3Result, TrailingHeaders, s3_error};
use std::collections::BTreeMap;

/// The names of the algorithms, as S3 writes them in headers.
pub const ALGORITHMS: [&str; 5] = ["crc32", "crc32c", "crc64nvme", "sha1", "sha256"];

/// What a client says of a body.
#[derive(Clone, Debug, Default)]
pub struct Claims {
    /// Its MD5 in base64.
    pub md5: Option<String>,
    /// Its checksums in base64, by algorithm.
    pub checksums: BTreeMap<&'static str, String>,
    /// Algorithms whose checksum comes behind the body, or that the client wants.
    pub wanted: Vec<&'static str>,
    /// Algorithms whose checksum the client says it sends behind the body.
    pub promised: Vec<&'static str>,
    /// The checksums behind the body.
    pub trailers: Option<TrailingHeaders>,
}

impl Claims {
    /// What the headers of a request say; `declared` is its `x-amz-sdk-checksum-algorithm`.
    pub fn new(
        headers: &HeaderMap,
        declared: Option<&str>,
        md5: Option<String>,
        trailers: Option<TrailingHeaders>,
    ) -> Self {
        let mut claims = Self { md5, trailers, ..Self::default() };
        let trailing = headers.get_all("x-amz-trailer").iter().filter_map(|value| value.to_str().ok());
        let trailing: Vec<String> =
            trailing.flat_map(|value| value.split(',')).map(|name| name.trim().to_lowercase()).collect();
        for algorithm in ALGORITHMS {
            let header = format!("x-amz-checksum-{algorithm}");
            if let Some(value) = headers.get(&header).and_then(|value| value.to_str().ok()) {
                claims.checksums.insert(algorithm, value.to_owned());
            }
            let is_declared = declared.is_some_and(|declared| declared.eq_ignore_ascii_case(algorithm));
            let is_promised = trailing.contains(&header);
            if is_declared || is_promised {
                claims.wanted.push(algorithm);
            }
            if is_promised {
                claims.promised.push(algorithm);
            }
        }
        claims
    }

    /// Something that goes over the bytes. The ETag is the MD5 if the client says that, else of
    /// the kind that is asked for.
    pub fn digest(&self, etag: Kind) -> Digest {
        let kind = if self.md5.is_some() { Kind::Md5 } else { etag };
        Digest { etag: Hash::new(kind), hasher: self.hasher() }
    }

    fn hasher(&self) -> ChecksumHasher {
        let is_wanted = |algorithm| self.checksums.contains_key(algorithm) || self.wanted.contains(&algorithm);
        ChecksumHasher {
            crc32: is_wanted("crc32").then(Crc32::new),
            crc32c: is_wanted("crc32c").then(Crc32c::new),
            crc64nvme: is_wanted("crc64nvme").then(Crc64Nvme::new),
            sha1: is_wanted("sha1").then(Sha1::new),
            sha256: is_wanted("sha256").then(Sha256::new),
        }
    }

    /// Compares what was said with what the bytes are.
    ///
    /// # Errors
    /// `BadDigest`.
    pub fn check(&self, sums: &Sums) -> S3Result<()> {
        if let Some(md5) = &self.md5
            && base64_simd::STANDARD.decode_to_vec(md5).ok().is_none_or(|md5| hex(&md5) != sums.etag)
        {
            return Err(s3_error!(BadDigest, "the MD5 of the bytes is another one than Content-MD5"));
        }
        let mut said = self.checksums.clone();
        if let Some(trailers) = &self.trailers {
            trailers.read(|headers| {
                for algorithm in ALGORITHMS {
                    let value = headers.get(format!("x-amz-checksum-{algorithm}"));
                    if let Some(value) = value.and_then(|value| value.to_str().ok()) {
                        said.insert(algorithm, value.trim().to_owned());
                    }
                }
            });
        }
        // A body that was cut off has none.
        if let Some(algorithm) = self.promised.iter().find(|algorithm| !said.contains_key(*algorithm)) {
            return Err(s3_error!(IncompleteBody, "the {algorithm} that x-amz-trailer names is not behind the bytes"));
        }
        for (algorithm, said) in said {
            if sums.checksums.get(algorithm) != Some(&said) {
                return Err(s3_error!(BadDigest, "the {algorithm} of the bytes is another one than the request says"));
            }
        }
        Ok(())
    }
}

/// Goes over the bytes of a body.
pub struct Digest {
    etag: Hash,
    hasher: ChecksumHasher,
}

impl Digest {
    /// The next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.etag.update(bytes);
        self.hasher.update(bytes);
    }

    /// What they are.
    pub fn finish(self) -> Sums {
        Sums { etag: self.etag.etag(), checksums: kept(self.hasher) }
    }
}

/// What a body is.
#[derive(Clone, Debug, Default)]
pub struct Sums {
    /// Its ETag as an object, or a part.
    pub etag: String,
    /// Its checksums in base64, by algorithm.
    pub checksums: BTreeMap<String, String>,
}

/// A checksum of bytes in base64; none of an algorithm that is not among [`ALGORITHMS`].
pub fn of_bytes(algorithm: &str, bytes: &[u8]) -> Option<String> {
    let name = ALGORITHMS.into_iter().find(|name| *name == algorithm)?;
    let claims = Claims { wanted: vec![name], ..Claims::default() };
    let mut hasher = claims.hasher();
    hasher.update(bytes);
    kept(hasher).remove(name)
}

/// Checksums by algorithm.
fn kept(hasher: ChecksumHasher) -> BTreeMap<String, String> {
    let Checksum { checksum_crc32, checksum_crc32c, checksum_crc64nvme, checksum_sha1, checksum_sha256, .. } =
        hasher.finalize();
    let values = [checksum_crc32, checksum_crc32c, checksum_crc64nvme, checksum_sha1, checksum_sha256];
    ALGORITHMS.into_iter().zip(values).filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

/// The type of a checksum of parts, or of a whole object.
pub fn kind(composite: bool) -> ChecksumType {
    ChecksumType::from_static(if composite { ChecksumType::COMPOSITE } else { ChecksumType::FULL_OBJECT })
}

/// Checksums as the answers have them.
pub fn checksum(kept: &BTreeMap<String, String>) -> Checksum {
    let of = |algorithm: &str| kept.get(algorithm).cloned();
    Checksum {
        checksum_crc32: of("crc32"),
        checksum_crc32c: of("crc32c"),
        checksum_crc64nvme: of("crc64nvme"),
        checksum_sha1: of("sha1"),
        checksum_sha256: of("sha256"),
        // One of parts has their number behind a dash.
        checksum_type: kept.values().next().map(|value| kind(value.contains('-'))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_says_is_compared() {
        let mut headers = HeaderMap::new();
        // CRC-32 and CRC-32C of "123456789", from their catalogue.
        headers.insert("x-amz-checksum-crc32", "y/Q5Jg==".parse().unwrap());
        headers.insert("x-amz-checksum-crc32c", "4waSgw==".parse().unwrap());
        let md5 = Some("JfnnlDI7RTiF9RgfG2JNCw==".to_owned());
        let claims = Claims::new(&headers, Some("SHA256"), md5, None);
        let sums = |bytes: &[u8]| {
            // The client says an MD5, so it is needed.
            let mut digest = claims.digest(Kind::Blake3);
            digest.update(bytes);
            digest.finish()
        };
        let right = sums(b"123456789");
        claims.check(&right).unwrap();
        assert_eq!(right.etag, "25f9e794323b453885f5181f1b624d0b");
        assert_eq!(right.checksums.len(), 3);
        assert!(claims.check(&sums(b"123456788")).is_err());
        let only_md5 = Claims { md5: claims.md5.clone(), ..Claims::default() };
        assert!(only_md5.check(&Sums::default()).is_err());
    }

    #[test]
    fn a_checksum_that_is_promised_behind_the_bytes_is_there() {
        let mut headers = HeaderMap::new();
        headers.insert("x-amz-trailer", "x-amz-checksum-crc32".parse().unwrap());
        let claims = Claims::new(&headers, None, None, None);
        let mut digest = claims.digest(Kind::Blake3);
        digest.update(b"123456789");
        assert_eq!(claims.check(&digest.finish()).unwrap_err().code(), &s3s::S3ErrorCode::IncompleteBody);
    }
}
