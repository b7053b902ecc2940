//! The operations that read: what an object is, and pages of keys.

use crate::gateway::Gateway;
use crate::get::{Conditions, timestamp};
use fs::{Attributes, FileKind};
use objects::Objects;
use objects::Opened;
use objects::about::About;
use objects::etag::is_of_parts;
use objects::listing::{Page, Question};
use objects::text::encode;
use s3s::dto::{Bucket, CommonPrefix, ETag, EncodingType, Object, ObjectStorageClass, Owner, Range};
use s3s::{S3Result, s3_error};

/// The most keys of a page.
pub const MAX_KEYS: i32 = 1000;

/// An object, and the range of it that is asked for.
pub struct Shown {
    /// Its file.
    pub file: Attributes,
    /// What is kept of it.
    pub about: About,
    /// The bytes that are asked for.
    pub range: std::ops::Range<u64>,
    /// What `Content-Range` says, if not all are.
    pub content_range: Option<String>,
}

/// Looks at an object for a GET or HEAD. Its bytes stay as long as it is open.
///
/// # Errors
/// `NoSuchKey`, `InvalidRange`, those of conditions; `NotImplemented` for a part of an object that
/// was uploaded in parts.
pub fn show(
    objects: &Objects,
    (bucket, key): (&str, &str),
    conditions: &Conditions,
    range: Option<Range>,
    part: Option<i32>,
) -> S3Result<(Shown, Opened)> {
    let (found, about, opened) = objects.open(bucket, key)?;
    conditions.check(&about.etag, found.file.modified)?;
    match part {
        None => {}
        Some(1) if !is_of_parts(&about.etag) => {}
        Some(_) if !is_of_parts(&about.etag) => return Err(s3_error!(InvalidPart)),
        Some(_) => return Err(s3_error!(NotImplemented, "which bytes were which part is not kept: give a range")),
    }
    let size = found.file.size;
    let is_nothing = size == 0 && range.is_some();
    if is_nothing {
        return Err(s3_error!(InvalidRange));
    }
    let range = range.map(|range| range.check(size).map_err(|_| s3_error!(InvalidRange))).transpose()?;
    let content_range = range.as_ref().map(|range| format!("bytes {}-{}/{size}", range.start, range.end - 1));
    Ok((Shown { file: found.file, about, range: range.unwrap_or(0..size), content_range }, opened))
}

/// An ETag as answers have it.
pub fn etag(about: &About) -> ETag {
    ETag::Strong(about.etag.clone())
}

/// The owner of everything.
pub fn owner() -> Owner {
    Owner { display_name: Some("weft".into()), id: Some("weft".into()) }
}

/// All buckets, in byte order.
pub fn buckets(objects: &Objects) -> S3Result<Vec<Bucket>> {
    let mut buckets = Vec::new();
    for (name, file) in objects::multipart::entries(objects, objects.home.root).map_err(crate::failure::answer)? {
        if file.kind != FileKind::Directory || !objects::is_bucket(&name) {
            continue;
        }
        let creation_date = Some(timestamp(file.created));
        buckets.push(Bucket { bucket_region: None, creation_date, name: String::from_utf8(name).ok() });
    }
    buckets.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(buckets)
}

/// How many keys a page has at most.
///
/// # Errors
/// `InvalidArgument`.
pub fn limit(asked: Option<i32>) -> S3Result<usize> {
    let asked = asked.unwrap_or(MAX_KEYS).min(MAX_KEYS);
    usize::try_from(asked).map_err(|_| s3_error!(InvalidArgument, "a page has no negative number of keys"))
}

/// Texts of a listing, as the client wants them.
#[derive(Clone, Copy)]
pub struct Texts(bool);

impl Texts {
    /// By the parameter `encoding-type`.
    ///
    /// # Errors
    /// `InvalidArgument`.
    pub fn new(encoding: Option<&EncodingType>) -> S3Result<Self> {
        match encoding.map(EncodingType::as_str) {
            None => Ok(Self(false)),
            Some(EncodingType::URL) => Ok(Self(true)),
            Some(_) => Err(s3_error!(InvalidArgument, "encoding-type is url, or not there")),
        }
    }

    /// A text.
    pub fn of(self, text: &str) -> String {
        if self.0 { encode(text) } else { text.to_owned() }
    }
}

impl Gateway {
    /// A page of keys, and its keys as answers have them.
    ///
    /// # Errors
    /// `NoSuchBucket`; when a directory cannot be read.
    pub async fn page_of(
        &self,
        question: Question,
        texts: Texts,
        limit: usize,
        with_owner: bool,
    ) -> S3Result<(Page, Vec<Object>)> {
        let listings = self.listings.clone();
        self.beside(move |objects| {
            let page = listings.page(objects, &question, limit)?;
            let contents = contents(objects, &question.bucket, &page, texts, with_owner)?;
            Ok((page, contents))
        })
        .await
    }
}

/// The keys of a page as answers have them. A key whose file went since is left out.
fn contents(objects: &Objects, bucket: &str, page: &Page, texts: Texts, with_owner: bool) -> S3Result<Vec<Object>> {
    let shown = page.keys.iter().filter_map(|key| {
        let (file, about) = match key.found(objects, bucket) {
            Ok(found) => found?,
            Err(why) => return Some(Err(why.into())),
        };
        Some(Ok(Object {
            e_tag: Some(etag(&about)),
            key: Some(texts.of(&key.key)),
            last_modified: Some(timestamp(file.modified)),
            owner: with_owner.then(owner),
            size: Some(file.size.cast_signed()),
            storage_class: Some(ObjectStorageClass::from_static(ObjectStorageClass::STANDARD)),
            ..Object::default()
        }))
    });
    shown.collect()
}

/// The common prefixes of a page as answers have them.
pub fn prefixes(page: &Page, texts: Texts) -> Vec<CommonPrefix> {
    page.prefixes.iter().map(|prefix| CommonPrefix { prefix: Some(texts.of(prefix)) }).collect()
}

/// A question of a listing.
pub fn question(bucket: &str, prefix: Option<&String>, delimiter: Option<&String>, after: String) -> Question {
    let delimiter = delimiter.filter(|text| !text.is_empty()).cloned();
    Question { bucket: bucket.into(), prefix: prefix.cloned().unwrap_or_default(), delimiter, after }
}
