//! Who may ask: requests are signed with a key of the volume (Signature Version 4), by a clock that
//! agrees with this one, for something that the key may do.

use crate::failure::failed;
use crate::gateway::Gateway;
use crate::keys::{KeyFile, Keys, Rights, check};
use crate::known::Known;
use crate::permits::no_signature;
use crate::rights::{Asker, On};
use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, CONTENT_ENCODING, HeaderName};
use objects::Objects;
use objects::text::pairs;
use s3s::access::{S3Access, S3AccessContext};
use s3s::auth::{S3Auth, SecretKey};
use s3s::path::S3Path;
use s3s::{S3Result, s3_error};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// How far clocks may be apart, in seconds.
const MAX_SKEW: i64 = 15 * 60;

/// A secret, and what its key may do; None if there is no such key.
type Found = Option<(String, Rights)>;

/// Knows the keys.
#[derive(Clone)]
pub struct Access {
    gateway: Gateway,
    key: Arc<KeyFile>,
    known: Arc<Known<Found>>,
}

impl Access {
    /// By the keys of the gateway's volume.
    pub fn new(gateway: Gateway, key: KeyFile) -> Self {
        Self { gateway, key: Arc::new(key), known: Arc::default() }
    }

    async fn find(&self, id: &str) -> S3Result<Found> {
        // What can be no key is not remembered either: anybody may send it.
        if check(id).is_err() {
            return Ok(None);
        }
        if let Some(found) = self.known.fresh(id) {
            return Ok(found);
        }
        let (known, key, id) = (self.known.clone(), self.key.clone(), id.to_owned());
        let find = move |objects: &Objects| {
            known.read(&id, || Keys::of(objects, &key).secret(&id).map_err(|error| failed(&error)))
        };
        self.gateway.beside(find).await
    }
}

#[async_trait::async_trait]
impl S3Auth for Access {
    async fn get_secret_key(&self, id: &str) -> S3Result<SecretKey> {
        let found = self.find(id).await?;
        found.map(|(secret, _)| SecretKey::from(secret)).ok_or_else(|| s3_error!(InvalidAccessKeyId))
    }
}

/// Seconds since 1970 of `20240229T235959Z`.
fn seconds(date: &str) -> Option<i64> {
    let digits: Vec<u8> = date.bytes().filter(u8::is_ascii_digit).map(|digit| digit - b'0').collect();
    if digits.len() != 14 || date.len() != 16 {
        return None;
    }
    let number =
        |range: std::ops::Range<usize>| digits[range].iter().fold(0, |sum, digit| 10 * sum + i64::from(*digit));
    let (year, month, day) = (number(0..4), number(4..6), number(6..8));
    // Days from the first of March of the year 0, as H. Hinnant's "chrono-compatible low-level date
    // algorithms" count them.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1 - 719_468;
    Some(86_400 * days + 3600 * number(8..10) + 60 * number(10..12) + number(12..14))
}

/// The names of the headers that the signature covers.
fn signed_headers(authorization: Option<&str>, query: &[(String, String)]) -> Vec<String> {
    let by_url = query.iter().find(|(name, _)| name == "X-Amz-SignedHeaders").map(|(_, names)| names.as_str());
    let in_header = |value| {
        let mut fields = str::split(value, ',');
        fields.find_map(|field| field.trim().strip_prefix("SignedHeaders="))
    };
    let names = authorization.map_or(by_url, in_header).unwrap_or_default();
    names.split(';').map(str::to_ascii_lowercase).collect()
}

/// A header that says what to do and is not signed: who has a presigned URL could add one, and
/// make another request of it.
fn unsigned<'a>(headers: &'a HeaderMap, signed: &[String]) -> Option<&'a str> {
    let mut names = headers.keys().map(HeaderName::as_str);
    names.find(|name| name.starts_with("x-amz-") && !signed.iter().any(|signed| signed == name))
}

/// Whether the library takes the framing out of a body, if it has any.
fn is_decoded(headers: &HeaderMap, is_signed_in_header: bool) -> bool {
    let encodings = headers.get_all(CONTENT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    let is_framed = headers.contains_key("x-amz-decoded-content-length")
        || headers.contains_key("x-amz-trailer")
        || encodings.flat_map(|value| value.split(',')).any(|name| name.trim().eq_ignore_ascii_case("aws-chunked"));
    let kind = headers.get("x-amz-content-sha256").and_then(|value| value.to_str().ok()).unwrap_or_default();
    !is_framed || is_signed_in_header && kind.starts_with("STREAMING-")
}

#[async_trait::async_trait]
impl S3Access for Access {
    async fn check(&self, asked: &mut S3AccessContext<'_>) -> S3Result<()> {
        let query = pairs(asked.uri().query().unwrap_or_default());
        let query = query.ok_or_else(|| s3_error!(InvalidURI, "the query is not UTF-8, percent-encoded"))?;
        let signature = asked.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let has = |word: &str| query.iter().any(|(name, _)| name == word);
        let is_old = signature.is_some_and(|value| value.starts_with("AWS "));
        // The library takes either for the older signature, whatever else there is.
        if is_old || has("Signature") || has("AWSAccessKeyId") {
            return Err(s3_error!(InvalidRequest, "sign with AWS4-HMAC-SHA256; the older signature is not accepted"));
        }
        let is_presigned = has("X-Amz-Signature");
        if is_presigned && signature.is_some() {
            return Err(s3_error!(InvalidArgument, "a request is signed in its URL or in a header, not in both"));
        }
        let is_signed = is_presigned || signature.is_some();
        if !is_decoded(asked.headers(), signature.is_some()) {
            let what = "an aws-chunked body is accepted where the request is signed in a header, and says STREAMING-";
            return Err(s3_error!(NotImplemented, "{what}"));
        }
        if is_signed && let Some(name) = unsigned(asked.headers(), &signed_headers(signature, &query)) {
            return Err(s3_error!(AccessDenied, "the header {name} is not signed"));
        }
        // A presigned request says itself how long it is good.
        if signature.is_some() {
            let date = asked.headers().get("x-amz-date").and_then(|value| seconds(value.to_str().ok()?));
            let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs().cast_signed());
            if date.is_none_or(|date| date.abs_diff(now) > MAX_SKEW.unsigned_abs()) {
                return Err(s3_error!(RequestTimeTooSkewed));
            }
        }
        let asker = match asked.credentials() {
            Some(credentials) => {
                let id = credentials.access_key.clone();
                let (_, rights) = self.find(&id).await?.ok_or_else(|| s3_error!(InvalidAccessKeyId))?;
                Asker { key: Some((id, rights)) }
            }
            None => Asker::default(),
        };
        self.permit_path(&asker, asked.s3_op().name(), asked.s3_path(), &query).await?;
        asked.extensions_mut().insert(asker);
        Ok(())
    }
}

impl Access {
    /// Whether who asks may do an operation. Of an operation on two objects, or on many, this is
    /// about the one in the path; the operation asks for the others (`Gateway::permit`).
    pub async fn permit_path(
        &self,
        asker: &Asker,
        operation: &str,
        path: &S3Path,
        query: &[(String, String)],
    ) -> S3Result<()> {
        let Some(bucket) = path.get_bucket_name() else {
            // Of the buckets, those that a key may use are shown.
            return if asker.key.is_some() { Ok(()) } else { Err(no_signature()) };
        };
        if operation == "DeleteObjects" {
            return self.gateway.may_remove_some(asker, bucket).await;
        }
        let prefix = query.iter().find(|(name, _)| name == "prefix").map_or("", |(_, prefix)| prefix);
        let prefix = operation.starts_with("List").then_some(prefix);
        self.gateway.allow(asker, operation, &On { bucket, object: path.get_object_key(), prefix }).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_seconds() {
        assert_eq!(seconds("19700101T000000Z"), Some(0));
        assert_eq!(seconds("20240229T235959Z"), Some(1_709_251_199));
        assert_eq!(seconds("20260101T000000Z"), Some(1_767_225_600));
        assert_eq!(seconds("2026-01-01T00:00:00Z"), None);
    }

    #[test]
    fn headers_that_say_what_to_do_must_be_signed() {
        let mut headers = HeaderMap::new();
        for name in ["host", "content-type", "x-amz-date", "x-amzn-trace-id"] {
            headers.insert(name, "x".parse().unwrap());
        }
        let authorization = "AWS4-HMAC-SHA256 Credential=A/20240229/r/s3/aws4_request, SignedHeaders=host;X-Amz-Date, \
                             Signature=00";
        let signed = signed_headers(Some(authorization), &[]);
        assert_eq!(signed, ["host", "x-amz-date"]);
        assert_eq!(unsigned(&headers, &signed), None);
        headers.insert("x-amz-copy-source", "other/secret".parse().unwrap());
        assert_eq!(unsigned(&headers, &signed), Some("x-amz-copy-source"));
        let url = [("X-Amz-SignedHeaders".to_owned(), "host;x-amz-copy-source;x-amz-date".to_owned())];
        assert_eq!(unsigned(&headers, &signed_headers(None, &url)), None);
        assert!(unsigned(&headers, &signed_headers(None, &[])).is_some());
    }

    #[test]
    fn a_framed_body_is_taken_where_the_framing_is_taken_out() {
        let headers = |pairs: &[(&'static str, &str)]| -> HeaderMap {
            pairs.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
        };
        let streaming = ("x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER");
        assert!(is_decoded(&headers(&[]), false));
        assert!(is_decoded(&headers(&[("content-encoding", "gzip")]), false));
        for framed in [
            ("content-encoding", "gzip, aws-chunked"),
            ("x-amz-trailer", "x-amz-checksum-crc32"),
            ("x-amz-decoded-content-length", "5"),
        ] {
            assert!(is_decoded(&headers(&[framed, streaming]), true), "{framed:?}");
            assert!(!is_decoded(&headers(&[framed, streaming]), false), "{framed:?}: unsigned, or in the URL");
            assert!(!is_decoded(&headers(&[framed, ("x-amz-content-sha256", "UNSIGNED-PAYLOAD")]), true), "{framed:?}");
        }
    }
}
