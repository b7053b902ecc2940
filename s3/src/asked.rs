//! What requests say in their headers, where the library reads them otherwise than S3 does.

use hyper::HeaderMap;
use hyper::header::{HeaderName, IF_MATCH, IF_NONE_MATCH};
use objects::Condition;
use objects::text::decode;
use s3s::dto::{ETagCondition, Range};
use s3s::{S3Result, s3_error};

const SOURCE: &str = "x-amz-copy-source";
const VERSION: &str = "?versionId=";

/// The bucket and the key that a copy is made of, and the version. The header is cut while it is
/// encoded: a question mark of the key comes as `%3F`.
///
/// # Errors
/// `InvalidArgument`.
pub fn source(headers: &HeaderMap) -> S3Result<(String, String, Option<String>)> {
    let wrong = || s3_error!(InvalidArgument, "x-amz-copy-source: BUCKET/KEY, percent-encoded");
    let given = headers.get(SOURCE).and_then(|value| value.to_str().ok()).ok_or_else(wrong)?;
    let (path, version) = given.rsplit_once(VERSION).map_or((given, None), |(path, version)| (path, Some(version)));
    // A plus is a plus in here.
    let text = |encoded: &str| decode(&encoded.replace('+', "%2B")).ok_or_else(wrong);
    let path = text(path)?;
    let (bucket, key) = path.strip_prefix('/').unwrap_or(&path).split_once('/').ok_or_else(wrong)?;
    if key.is_empty() {
        return Err(wrong());
    }
    Ok((bucket.to_owned(), key.to_owned(), version.map(text).transpose()?))
}

/// Refuses what is asked of a version: objects have none.
///
/// # Errors
/// `NoSuchVersion`.
pub fn unversioned(version: Option<&String>) -> S3Result<()> {
    match version.map(String::as_str) {
        None | Some("null" | "") => Ok(()),
        Some(_) => Err(s3_error!(NoSuchVersion)),
    }
}

/// The condition of a write whose input has none in the library.
///
/// # Errors
/// `InvalidArgument`, `NotImplemented`.
pub fn condition(headers: &HeaderMap) -> S3Result<Condition> {
    let parsed = |name: HeaderName| {
        let value = headers.get(&name).map(|value| ETagCondition::parse_http_header(value.as_bytes()));
        value.transpose().map_err(|_| s3_error!(InvalidArgument, "{name} is \"ETAG\" or *"))
    };
    of_write(parsed(IF_MATCH)?.as_ref(), parsed(IF_NONE_MATCH)?.as_ref())
}

/// The condition of the headers `If-Match` and `If-None-Match` of a write.
///
/// # Errors
/// `NotImplemented`.
pub fn of_write(matches: Option<&ETagCondition>, differs: Option<&ETagCondition>) -> S3Result<Condition> {
    match (matches, differs) {
        (None, None) => Ok(Condition::Always),
        (None, Some(ETagCondition::Any)) => Ok(Condition::Absent),
        (Some(ETagCondition::Any), None) => Ok(Condition::Present),
        (Some(ETagCondition::ETag(tag)), None) => Ok(Condition::Matches(tag.value().to_owned())),
        _ => Err(s3_error!(NotImplemented, "a write takes If-None-Match: * or If-Match, and not both")),
    }
}

/// The range of a copied part: it has both ends.
///
/// # Errors
/// `InvalidArgument`.
pub fn part_range(text: &str) -> S3Result<(Range, u64)> {
    match Range::parse(text) {
        Ok(range @ Range::Int { last: Some(last), .. }) => Ok((range, last)),
        _ => Err(s3_error!(InvalidArgument, "x-amz-copy-source-range: bytes=FIRST-LAST")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(header: &str) -> S3Result<(String, String, Option<String>)> {
        let mut headers = HeaderMap::new();
        headers.insert(SOURCE, header.parse().unwrap());
        source(&headers)
    }

    #[test]
    fn a_question_mark_of_a_key_is_no_version() {
        for (header, key, version) in [
            ("b/a", "a", None),
            ("/b/a/b", "a/b", None),
            ("b/a%3Fb", "a?b", None),
            ("b%2Fa%3FversionId=1", "a?versionId=1", None),
            ("b/a%3Fb?versionId=null", "a?b", Some("null")),
            ("b/a+b%20c", "a+b c", None),
        ] {
            assert_eq!(of(header).unwrap(), ("b".to_owned(), key.to_owned(), version.map(str::to_owned)), "{header}");
        }
        for header in ["", "b", "b/", "b/%zz"] {
            assert!(of(header).is_err(), "{header}");
        }
    }

    #[test]
    fn a_part_is_copied_from_first_to_last() {
        assert_eq!(part_range("bytes=5-9").unwrap().1, 9);
        for text in ["bytes=5-", "bytes=-5", "5-9"] {
            assert!(part_range(text).is_err(), "{text}");
        }
    }
}
