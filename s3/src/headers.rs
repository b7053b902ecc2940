//! Headers of requests that are kept with an object, and those that ask for what does not exist.

use crate::about::About;
use crate::text::pairs;
use hyper::header::{HeaderName, HeaderValue};
use hyper::{HeaderMap, Uri};
use s3s::dto::Metadata;
use s3s::{S3Result, s3_error};
use std::collections::BTreeMap;

/// Headers that a GET returns as a PUT gave them.
const KEPT: [&str; 6] =
    ["content-type", "cache-control", "content-disposition", "content-encoding", "content-language", "expires"];
/// What a GET says of an object whose type nobody said.
const TYPE: &str = "binary/octet-stream";
/// The most user metadata, in bytes.
const MAX_METADATA: usize = 2048;
/// The most of the headers that are kept, in bytes.
const MAX_HEADERS: usize = 8 << 10;
/// The most tags of an object, and the longest key and value, in characters.
const MAX_TAGS: (usize, usize, usize) = (10, 128, 256);
/// Headers that ask for something which is not done. To go on as if it were would be a lie.
const REFUSED: [&str; 6] = [
    "x-amz-server-side-encryption",
    "x-amz-server-side-encryption-customer-algorithm",
    "x-amz-object-lock-mode",
    "x-amz-object-lock-legal-hold",
    "x-amz-website-redirect-location",
    "x-amz-write-offset-bytes",
];

/// Refuses a write that asks for what does not exist.
///
/// # Errors
/// `NotImplemented` and `InvalidStorageClass`.
pub fn supported(headers: &HeaderMap) -> S3Result<()> {
    if let Some(name) = REFUSED.iter().find(|name| headers.contains_key(**name)) {
        return Err(s3_error!(NotImplemented, "{name} is not implemented"));
    }
    match headers.get("x-amz-storage-class").map(HeaderValue::as_bytes) {
        None | Some(b"STANDARD") => Ok(()),
        Some(_) => Err(s3_error!(InvalidStorageClass)),
    }
}

/// What the headers of a write say of an object.
///
/// # Errors
/// `MetadataTooLarge`, `InvalidTag`.
pub fn about(headers: &HeaderMap, metadata: Option<Metadata>) -> S3Result<About> {
    let mut about = About::default();
    for name in KEPT {
        let Some(value) = headers.get(name).and_then(|value| value.to_str().ok()) else { continue };
        let value = match name {
            // It is how the request was sent, not what the object is.
            "content-encoding" => {
                let codings = value.split(',').map(str::trim).filter(|coding| *coding != "aws-chunked");
                codings.collect::<Vec<_>>().join(",")
            }
            _ => value.to_owned(),
        };
        if !value.is_empty() {
            about.headers.insert(name.to_owned(), value);
        }
    }
    if about.headers.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() > MAX_HEADERS {
        return Err(s3_error!(MetadataTooLarge, "the headers that are kept are over 8 KiB together"));
    }
    about.metadata = metadata.unwrap_or_default().into_iter().collect();
    if about.metadata.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() > MAX_METADATA {
        return Err(s3_error!(MetadataTooLarge));
    }
    if let Some(value) = headers.get("x-amz-tagging").and_then(|value| value.to_str().ok()) {
        about.tags = tags(pairs(value).ok_or_else(|| s3_error!(InvalidTag))?)?;
    }
    Ok(about)
}

/// Tags, if there are not too many and none is too long.
///
/// # Errors
/// `InvalidTag`.
pub fn tags(given: Vec<(String, String)>) -> S3Result<BTreeMap<String, String>> {
    let (most, key, value) = MAX_TAGS;
    let count = given.len();
    let fits = given.iter().all(|(k, v)| !k.is_empty() && k.chars().count() <= key && v.chars().count() <= value);
    let tags: BTreeMap<String, String> = given.into_iter().collect();
    if count > most || !fits || tags.len() < count {
        return Err(s3_error!(InvalidTag, "an object has at most 10 tags, each key once"));
    }
    Ok(tags)
}

/// The headers of an answer that has an object. What the request says in its query (`response-*`)
/// goes before what is kept.
pub fn of_object(about: &About, uri: &Uri) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static(TYPE));
    for (name, value) in &about.headers {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            headers.insert(name, value);
        }
    }
    for (name, value) in pairs(uri.query().unwrap_or_default()).unwrap_or_default() {
        let name = name.strip_prefix("response-").and_then(|name| KEPT.iter().find(|kept| **kept == name));
        if let (Some(name), Ok(value)) = (name, HeaderValue::try_from(value)) {
            headers.insert(*name, value);
        }
    }
    headers
}
