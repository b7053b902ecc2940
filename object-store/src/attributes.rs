//! What is kept of an object, in the words of `object_store` and in those of S3.

use crate::failure::{generic, unsupported};
use chrono::{DateTime, Utc};
use object_store::path::Path;
use object_store::{Attribute, AttributeValue, Attributes, Error, ObjectMeta, PutMode, TagSet};
use objects::{About, Condition, about, text};

/// Attributes that are headers of S3.
const HEADERS: [(Attribute, &str); 5] = [
    (Attribute::CacheControl, "cache-control"),
    (Attribute::ContentDisposition, "content-disposition"),
    (Attribute::ContentEncoding, "content-encoding"),
    (Attribute::ContentLanguage, "content-language"),
    (Attribute::ContentType, "content-type"),
];

/// What is to be kept of an object.
///
/// # Errors
/// `NotSupported` for attributes that S3 could not show, and for another storage class than
/// `STANDARD`; `Generic` for too many tags and too long metadata.
pub fn about(attributes: &Attributes, tags: &TagSet) -> Result<About, Error> {
    let mut kept = About::default();
    for (attribute, value) in attributes {
        // A gateway shows them as headers.
        if !value.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
            return Err(unsupported(format!("{attribute:?} has characters other than those of ASCII")));
        }
        match attribute {
            Attribute::Metadata(name) if is_header(name) => {
                kept.metadata.insert(name.to_string(), value.to_string());
            }
            Attribute::Metadata(name) => return Err(unsupported(format!("metadata has no name {name:?}"))),
            Attribute::StorageClass if **value == *"STANDARD" => {}
            Attribute::StorageClass => return Err(unsupported("there is one storage class: STANDARD")),
            other => {
                let header = HEADERS.iter().find(|(attribute, _)| attribute == other);
                let (_, name) = header.ok_or_else(|| unsupported(format!("{other:?} is not kept")))?;
                kept.headers.insert((*name).to_owned(), value.to_string());
            }
        }
    }
    if !tags.is_empty() {
        let pairs = text::pairs(tags.encoded()).ok_or_else(|| generic("the tags are not UTF-8"))?;
        kept.tags = about::tags(pairs).map_err(generic)?;
    }
    kept.fits().map_err(generic)?;
    Ok(kept)
}

/// Whether `x-amz-meta-` and this are the name of a header (RFC 9110, section 5.6.2).
fn is_header(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

/// What was kept of an object.
pub fn attributes(about: &About) -> Attributes {
    let headers = HEADERS.iter().filter_map(|(attribute, name)| {
        let value = about.headers.get(*name)?;
        Some((attribute.clone(), AttributeValue::from(value.clone())))
    });
    let metadata = about
        .metadata
        .iter()
        .map(|(name, value)| (Attribute::Metadata(name.clone().into()), AttributeValue::from(value.clone())));
    headers.chain(metadata).collect()
}

/// The condition of a put.
///
/// # Errors
/// When an update says no ETag, or a version, of which there are none.
pub fn condition(mode: PutMode) -> Result<Condition, Error> {
    match mode {
        PutMode::Overwrite => Ok(Condition::Always),
        PutMode::Create => Ok(Condition::Absent),
        PutMode::Update(version) if version.version.is_some() => Err(unsupported("objects have no versions")),
        PutMode::Update(version) => {
            let tag = version.e_tag.ok_or_else(|| generic("an update needs the ETag of what it replaces"))?;
            Ok(Condition::Matches(tag.trim_matches('"').to_owned()))
        }
    }
}

/// An ETag as S3 shows it.
pub fn e_tag(about: &About) -> String {
    format!("\"{}\"", about.etag)
}

/// What listings say of an object.
pub fn meta(location: Path, file: &fs::Attributes, about: &About) -> ObjectMeta {
    let fs::Time { seconds, nanoseconds } = file.modified;
    let last_modified = DateTime::<Utc>::from_timestamp(seconds, nanoseconds).unwrap_or_default();
    ObjectMeta { location, last_modified, size: file.size, e_tag: Some(e_tag(about)), version: None }
}

/// The path of a key; None for one that has none, as `a//b`.
pub fn path(key: &str) -> Option<Path> {
    Path::parse(key).ok().filter(|path| path.as_ref() == key)
}
