//! Who may ask: requests are signed with a key of the volume (Signature Version 4), by a clock that
//! agrees with this one, for something that the key may do.

use crate::failure::failed;
use crate::gateway::Gateway;
use crate::keys::{KeyFile, Keys, Rights};
use hyper::header::AUTHORIZATION;
use s3s::access::{S3Access, S3AccessContext};
use s3s::auth::{S3Auth, SecretKey};
use s3s::{S3Result, s3_error};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long a key that was removed or rotated may go on to work.
const KNOWN_FOR: Duration = Duration::from_secs(5);
/// The most keys that are known at a time.
const MAX_KNOWN: usize = 10_000;
/// How far clocks may be apart, in seconds.
const MAX_SKEW: i64 = 15 * 60;

type Known = Option<(String, Rights)>;

/// Knows the keys.
#[derive(Clone)]
pub struct Access {
    gateway: Gateway,
    key: Arc<KeyFile>,
    known: Arc<Mutex<HashMap<String, (Instant, Known)>>>,
}

impl Access {
    /// By the keys of the gateway's volume.
    pub fn new(gateway: Gateway, key: KeyFile) -> Self {
        Self { gateway, key: Arc::new(key), known: Arc::default() }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, (Instant, Known)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn find(&self, id: &str) -> S3Result<Known> {
        if let Some((since, known)) = self.known().get(id)
            && since.elapsed() < KNOWN_FOR
        {
            return Ok(known.clone());
        }
        let (key, asked) = (self.key.clone(), id.to_owned());
        let find = move |objects: &crate::objects::Objects| {
            Keys::of(objects, &key).secret(&asked).map_err(|error| failed(&error))
        };
        let found = self.gateway.beside(find).await?;
        let mut known = self.known();
        if known.len() >= MAX_KNOWN {
            known.clear();
        }
        known.insert(id.to_owned(), (Instant::now(), found.clone()));
        Ok(found)
    }
}

#[async_trait::async_trait]
impl S3Auth for Access {
    async fn get_secret_key(&self, id: &str) -> S3Result<SecretKey> {
        let found = self.find(id).await?;
        found.map(|(secret, _)| SecretKey::from(secret)).ok_or_else(|| s3_error!(InvalidAccessKeyId))
    }
}

/// Whether an operation only reads.
fn reads(operation: &str) -> bool {
    ["Get", "Head", "List"].iter().any(|word| operation.starts_with(word))
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

#[async_trait::async_trait]
impl S3Access for Access {
    async fn check(&self, asked: &mut S3AccessContext<'_>) -> S3Result<()> {
        let query = asked.uri().query().unwrap_or_default();
        let signature = asked.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let is_old = signature.is_some_and(|value| value.starts_with("AWS "))
            || signature.is_none() && query.split('&').any(|pair| pair.starts_with("AWSAccessKeyId="));
        if is_old {
            return Err(s3_error!(InvalidRequest, "sign with AWS4-HMAC-SHA256; the older signature is not accepted"));
        }
        // A presigned request says itself how long it is good.
        if signature.is_some() {
            let date = asked.headers().get("x-amz-date").and_then(|value| seconds(value.to_str().ok()?));
            let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs().cast_signed());
            if date.is_none_or(|date| date.abs_diff(now) > MAX_SKEW.unsigned_abs()) {
                return Err(s3_error!(RequestTimeTooSkewed));
            }
        }
        let id = match asked.credentials() {
            Some(credentials) => credentials.access_key.clone(),
            None => return Err(s3_error!(AccessDenied, "the request is not signed")),
        };
        let (_, rights) = self.find(&id).await?.ok_or_else(|| s3_error!(InvalidAccessKeyId))?;
        if rights.read_only && !reads(asked.s3_op().name()) {
            return Err(s3_error!(AccessDenied, "this key may only read"));
        }
        if asked.s3_path().get_bucket_name().is_some_and(|bucket| !rights.has(bucket)) {
            return Err(s3_error!(AccessDenied, "this key may not use this bucket"));
        }
        asked.extensions_mut().insert(rights);
        Ok(())
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
    fn operations_that_read_begin_so() {
        assert!(reads("GetObject") && reads("ListBuckets") && reads("HeadBucket"));
        assert!(!reads("PutObject") && !reads("DeleteObjects") && !reads("UploadPartCopy"));
    }
}
