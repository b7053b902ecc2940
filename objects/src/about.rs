//! What is kept of an object beside its bytes: one extended attribute, as JSON. The ETag and the
//! checksums in it hold for one size and modification time; when a program changed the file by a
//! mount, they are void.

use crate::etag;
use crate::failure::{Result, error};
use fs::{Attributes, Time};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Headers that a reader gets as the writer gave them.
pub const KEPT: [&str; 6] =
    ["content-type", "cache-control", "content-disposition", "content-encoding", "content-language", "expires"];
/// The most user metadata, in bytes.
const MAX_METADATA: usize = 2048;
/// The most of the headers that are kept, in bytes.
const MAX_HEADERS: usize = 8 << 10;
/// The most tags of an object, and the longest key and value, in characters.
const MAX_TAGS: (usize, usize, usize) = (10, 128, 256);

/// The attribute of an object, and of an upload.
pub const ATTRIBUTE: &[u8] = b"user.weft.s3";

/// What is kept of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct About {
    /// Without quotes.
    pub etag: String,
    /// The size that ETag and checksums are of, in bytes.
    pub size: u64,
    /// The modification time that they are of: seconds and nanoseconds.
    pub modified: (i64, u32),
    /// `content-type` and others that a GET returns.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// The user's own metadata, without `x-amz-meta-`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// Tags.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// Checksums by algorithm, in base64.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub checksums: BTreeMap<String, String>,
}

impl About {
    /// Says which content ETag and checksums are of.
    pub fn of(mut self, size: u64, modified: Time) -> Self {
        (self.size, self.modified) = (size, (modified.seconds, modified.nanoseconds));
        self
    }

    /// Whether it is not too much.
    ///
    /// # Errors
    /// `MetadataTooLarge`.
    pub fn fits(&self) -> Result<()> {
        let bytes = |all: &BTreeMap<String, String>| -> usize { all.iter().map(|(k, v)| k.len() + v.len()).sum() };
        if bytes(&self.headers) > MAX_HEADERS {
            return Err(error!(MetadataTooLarge, "the headers that are kept are over 8 KiB together"));
        }
        if bytes(&self.metadata) > MAX_METADATA {
            return Err(error!(MetadataTooLarge, "the user's metadata is over 2 KiB"));
        }
        Ok(())
    }

    /// As stored.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// From the stored bytes, for a file with these attributes. One that the gateway did not write,
    /// or that was changed since, gets the ETag of a file.
    pub fn decode(stored: Option<&[u8]>, file: &Attributes) -> Self {
        let mut about: Self = stored.and_then(|stored| serde_json::from_slice(stored).ok()).unwrap_or_default();
        let is_of_file =
            (about.size, about.modified) == (file.size, (file.modified.seconds, file.modified.nanoseconds));
        if about.etag.is_empty() || !is_of_file {
            about.etag = etag::of_file(file);
            about.checksums.clear();
        }
        about
    }
}

/// Tags, if there are not too many and none is too long.
///
/// # Errors
/// `InvalidTag`.
pub fn tags(given: Vec<(String, String)>) -> Result<BTreeMap<String, String>> {
    let (most, key, value) = MAX_TAGS;
    let count = given.len();
    let fits = given.iter().all(|(k, v)| !k.is_empty() && k.chars().count() <= key && v.chars().count() <= value);
    let tags: BTreeMap<String, String> = given.into_iter().collect();
    if count > most || !fits || tags.len() < count {
        return Err(error!(InvalidTag, "an object has at most 10 tags, each key once"));
    }
    Ok(tags)
}
