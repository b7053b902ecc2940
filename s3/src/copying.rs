//! Copies of objects, and of ranges of them as parts of uploads (`copy` makes the files).

use crate::asked::{self, unversioned};
use crate::digest::checksum;
use crate::gateway::Gateway;
use crate::get::{Conditions, timestamp};
use crate::headers::{about, supported};
use crate::reading::{etag, show};
use hyper::HeaderMap;
use objects::about::About;
use objects::copy::{Source, To, join};
use objects::etag::of_bytes;
use objects::now;
use objects::store::Target;
use s3s::dto::{
    CopyObjectInput, CopyObjectOutput, CopyObjectResult, CopyPartResult, MetadataDirective, TaggingDirective,
    UploadPartCopyInput, UploadPartCopyOutput,
};
use s3s::{S3Error, S3ErrorCode, S3Request, S3Result, s3_error};

/// A condition of the source that does not hold: there is nothing to answer without a change.
fn of_source(why: S3Error) -> S3Error {
    if matches!(why.code(), S3ErrorCode::NotModified) { s3_error!(PreconditionFailed) } else { why }
}

/// The object that a copy is made of.
fn source(headers: &HeaderMap) -> S3Result<(String, String)> {
    let (bucket, key, version) = asked::source(headers)?;
    unversioned(version.as_ref())?;
    Ok((bucket, key))
}

impl Gateway {
    /// Copies an object. Who asks may need rights for the source and for tags besides.
    ///
    /// # Errors
    /// Those of CopyObject.
    pub async fn copy(&self, req: S3Request<CopyObjectInput>) -> S3Result<CopyObjectOutput> {
        supported(&req.headers)?;
        let input = req.input;
        let replaces = input.metadata_directive.is_some_and(|word| word.as_str() == MetadataDirective::REPLACE);
        let replaces_tags = input.tagging_directive.is_some_and(|word| word.as_str() == TaggingDirective::REPLACE);
        let conditions = Conditions {
            matches: input.copy_source_if_match,
            differs: input.copy_source_if_none_match,
            modified_since: input.copy_source_if_modified_since,
            unmodified_since: input.copy_source_if_unmodified_since,
        };
        let (from, said) = (source(&req.headers)?, about(&req.headers, input.metadata)?);
        self.permit(&req.extensions, "GetObject", (&from.0, &from.1)).await?;
        let (bucket, key, condition) = (input.bucket, input.key, asked::condition(&req.headers)?);
        if from == (bucket.clone(), key.clone()) && !replaces {
            return Err(s3_error!(InvalidRequest, "a copy of an object to itself changes its metadata"));
        }
        let tagged = match replaces_tags {
            true => self.permit_tags(&req.extensions, &req.headers, (&bucket, &key)).await,
            // If the source has some, they are read and written.
            false => match self.permit(&req.extensions, "GetObjectTagging", (&from.0, &from.1)).await {
                Ok(()) => self.permit(&req.extensions, "PutObjectTagging", (&bucket, &key)).await,
                refused => refused,
            },
        };
        let copied = self.beside(move |objects| {
            let (shown, _opened) = show(objects, (&from.0, &from.1), &conditions, None, None).map_err(of_source)?;
            let mut about = shown.about;
            if replaces {
                (about.headers, about.metadata) = (said.headers, said.metadata);
            }
            if replaces_tags || !about.tags.is_empty() {
                tagged?;
            }
            if replaces_tags {
                about.tags = said.tags;
            }
            let to = To::Object { bucket: &bucket, key: &key, condition: &condition };
            let of = std::slice::from_ref(&shown.file);
            join(objects, &[(shown.file.ino, shown.range)], of, &about, to)?;
            Ok(about)
        });
        let about = copied.await?;
        let sums = checksum(&about.checksums);
        let result = CopyObjectResult {
            e_tag: Some(etag(&about)),
            last_modified: Some(timestamp(now())),
            checksum_crc32: sums.checksum_crc32,
            checksum_crc32c: sums.checksum_crc32c,
            checksum_crc64nvme: sums.checksum_crc64nvme,
            checksum_sha1: sums.checksum_sha1,
            checksum_sha256: sums.checksum_sha256,
            checksum_type: sums.checksum_type,
        };
        Ok(CopyObjectOutput { copy_object_result: Some(result), ..Default::default() })
    }

    /// Copies a range of an object as a part of an upload.
    ///
    /// # Errors
    /// Those of UploadPartCopy.
    pub async fn copy_part(&self, req: S3Request<UploadPartCopyInput>) -> S3Result<UploadPartCopyOutput> {
        let input = req.input;
        let from = source(&req.headers)?;
        self.permit(&req.extensions, "GetObject", (&from.0, &from.1)).await?;
        let range = match &input.copy_source_range {
            Some(text) => Some(asked::part_range(text)?),
            None => None,
        };
        let conditions = Conditions {
            matches: input.copy_source_if_match,
            differs: input.copy_source_if_none_match,
            modified_since: input.copy_source_if_modified_since,
            unmodified_since: input.copy_source_if_unmodified_since,
        };
        let (target, _) = self.part(input.bucket, input.key, input.upload_id, input.part_number).await?;
        let Target::File { parent, name } = target else { return Err(s3_error!(InternalError)) };
        let kind = self.etag;
        let copied = self.beside(move |objects| {
            let asked = range.map(|(range, _)| range);
            let (shown, _opened) = show(objects, (&from.0, &from.1), &conditions, asked, None).map_err(of_source)?;
            if range.is_some_and(|(_, last)| last != shown.range.end - 1) {
                return Err(s3_error!(InvalidRange, "the source ends before the range does"));
            }
            let sources: [Source; 1] = [(shown.file.ino, shown.range.clone())];
            // Its bytes are not read, so this is no hash of them. It is one of what they are of.
            let word = format!("{}:{}-{}", shown.about.etag, shown.range.start, shown.range.end);
            let mut about = About { etag: of_bytes(kind, word.as_bytes()), ..About::default() };
            if shown.range == (0..shown.file.size) {
                // Those of parts do not combine.
                about.checksums = shown.about.checksums;
                about.checksums.retain(|_, value| !value.contains('-'));
            }
            join(objects, &sources, std::slice::from_ref(&shown.file), &about, To::File(parent, name))?;
            Ok(about)
        });
        let about = copied.await?;
        let sums = checksum(&about.checksums);
        let result = CopyPartResult {
            e_tag: Some(etag(&about)),
            last_modified: Some(timestamp(now())),
            checksum_crc32: sums.checksum_crc32,
            checksum_crc32c: sums.checksum_crc32c,
            checksum_crc64nvme: sums.checksum_crc64nvme,
            checksum_sha1: sums.checksum_sha1,
            checksum_sha256: sums.checksum_sha256,
        };
        Ok(UploadPartCopyOutput { copy_part_result: Some(result), ..Default::default() })
    }
}
