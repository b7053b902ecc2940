//! Headers of requests that are kept with an object, and those that ask for what does not exist.

use hyper::header::{HeaderName, HeaderValue};
use hyper::{HeaderMap, Uri};
use objects::about::{self, About, KEPT};
use objects::text::pairs;
use s3s::dto::Metadata;
use s3s::{S3Result, s3_error};

/// The tags of an object that is written.
pub const TAGGING: &str = "x-amz-tagging";
/// What a GET says of an object whose type nobody said.
const TYPE: &str = "binary/octet-stream";
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
    about.metadata = metadata.unwrap_or_default().into_iter().collect();
    if let Some(value) = headers.get(TAGGING).and_then(|value| value.to_str().ok()) {
        about.tags = about::tags(pairs(value).ok_or_else(|| s3_error!(InvalidTag))?)?;
    }
    about.fits()?;
    Ok(about)
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

/// A number as answers have it.
pub fn signed(value: usize) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}
