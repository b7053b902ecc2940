//! What is set for a bucket: attributes of its directory, so they go with it. A mount shows them to
//! its superuser alone.

use crate::cors;
use crate::failure::{failed, is};
use crate::policy::Policy;
use objects::Objects;
use objects::home::is_missing;
use rustix::io::Errno;
use s3s::{S3ErrorCode, S3Result, s3_error};

/// The policy, as it was put.
pub const POLICY: &[u8] = b"trusted.weft.s3.policy";
/// Rules for pages of other sites, JSON (`cors::Rule`).
pub const CORS: &[u8] = b"trusted.weft.s3.cors";
/// Rules of what ends by itself, JSON (`lifecycle::Rule`).
pub const LIFECYCLE: &[u8] = b"trusted.weft.s3.lifecycle";

/// The longest value, in bytes.
const MAX_VALUE: usize = 60 << 10;

/// What requests need of a bucket.
#[derive(Debug)]
pub struct Settings {
    /// Its policy, or why there is one that cannot be read: then nobody may do anything with the
    /// bucket but read, replace and remove the policy.
    pub policy: Result<Option<Policy>, String>,
    /// Rules for pages of other sites.
    pub cors: Vec<cors::Rule>,
}

/// Reads what requests need of a bucket. One that is not there has no settings.
///
/// # Errors
/// When it cannot be read.
pub fn read(objects: &Objects, bucket: &str) -> S3Result<Settings> {
    let value = |name| match stored(objects, bucket, name) {
        Err(why) if why.code() == &S3ErrorCode::NoSuchBucket => Ok(None),
        found => found,
    };
    let policy = value(POLICY)?.map(|stored| {
        let text = String::from_utf8(stored).map_err(|why| why.to_string());
        text.and_then(|text| Policy::stored(&text, bucket))
    });
    let cors = value(CORS)?.map_or_else(Vec::new, |stored| {
        serde_json::from_slice(&stored).unwrap_or_else(|why| {
            tracing::warn!("the CORS rules of the bucket {bucket} cannot be read: {why}");
            Vec::new()
        })
    });
    Ok(Settings { policy: policy.transpose(), cors })
}

/// Sets a value, or removes it.
///
/// # Errors
/// `NoSuchBucket`, `EntityTooLarge`.
pub fn set(objects: &Objects, bucket: &str, name: &[u8], value: Option<&[u8]>) -> S3Result<()> {
    let directory = objects.bucket(bucket)?.ino;
    let done = match value {
        Some(value) if value.len() > MAX_VALUE => return Err(s3_error!(EntityTooLarge)),
        Some(value) => objects.fs.set_attribute(directory, name, value, None),
        None => objects.fs.remove_attribute(directory, name),
    };
    match done {
        Ok(()) => {}
        Err(error) if value.is_none() && is(&error, Errno::NODATA) => {}
        Err(error) if is_missing(&error) => return Err(s3_error!(NoSuchBucket)),
        Err(error) => return Err(failed(&error)),
    }
    Ok(objects.settle(directory)?)
}

/// A value that is set for a bucket.
///
/// # Errors
/// `NoSuchBucket`.
pub fn stored(objects: &Objects, bucket: &str, name: &[u8]) -> S3Result<Option<Vec<u8>>> {
    let directory = objects.bucket(bucket)?.ino;
    match objects.fs.attribute(directory, name) {
        Ok(stored) => Ok(Some(stored)),
        Err(error) if is(&error, Errno::NODATA) => Ok(None),
        Err(error) if is_missing(&error) => Err(s3_error!(NoSuchBucket)),
        Err(error) => Err(failed(&error)),
    }
}
