//! Parts of uploads, and pages of both.

use crate::digest::{checksum, kind};
use crate::gateway::Gateway;
use crate::get::timestamp;
use crate::headers;
use crate::reading::{self, Texts, etag, limit};
use crate::whole::algorithm;
use objects::multipart::{self, ChecksumOfWhole, MAX_PARTS};
use objects::store::Target;
use s3s::dto::{
    ListMultipartUploadsInput, ListMultipartUploadsOutput, ListPartsInput, ListPartsOutput, MultipartUpload, Part,
};
use s3s::{S3Result, s3_error};

impl Gateway {
    /// Where a part of an upload goes, and the checksum that the whole object gets.
    ///
    /// # Errors
    /// `NoSuchUpload`, `InvalidArgument`.
    pub async fn part(
        &self,
        bucket: String,
        key: String,
        id: String,
        number: i32,
    ) -> S3Result<(Target, Option<ChecksumOfWhole>)> {
        if !(1..=MAX_PARTS).contains(&number) {
            return Err(s3_error!(InvalidArgument, "a part has a number from 1 to 10000"));
        }
        self.beside(move |objects| {
            let (parent, upload) = multipart::find(objects, &bucket, &key, &id)?;
            Ok((Target::File { parent, name: multipart::part_name(objects, number) }, upload.checksum))
        })
        .await
    }

    /// A page of the parts of an upload.
    ///
    /// # Errors
    /// `NoSuchUpload`, `InvalidArgument`.
    pub async fn parts_of(&self, input: ListPartsInput) -> S3Result<ListPartsOutput> {
        let (bucket, key, id) = (input.bucket.clone(), input.key.clone(), input.upload_id.clone());
        let (most, after) = (limit(input.max_parts)?, input.part_number_marker.unwrap_or(0));
        let listed = self.beside(move |objects| {
            let (directory, upload) = multipart::find(objects, &bucket, &key, &id)?;
            let there = multipart::parts(objects, directory)?;
            let behind = there.range(after.saturating_add(1)..);
            let parts: S3Result<Vec<Part>> = behind
                .take(most + 1)
                .map(|(number, part)| {
                    let about = objects.about(&part.file)?;
                    let sums = checksum(&about.checksums);
                    Ok(Part {
                        part_number: Some(*number),
                        e_tag: Some(etag(&about)),
                        size: Some(part.file.size.cast_signed()),
                        last_modified: Some(timestamp(part.file.modified)),
                        checksum_crc32: sums.checksum_crc32,
                        checksum_crc32c: sums.checksum_crc32c,
                        checksum_crc64nvme: sums.checksum_crc64nvme,
                        checksum_sha1: sums.checksum_sha1,
                        checksum_sha256: sums.checksum_sha256,
                    })
                })
                .collect();
            Ok((parts?, upload.checksum))
        });
        let (mut parts, asked) = listed.await?;
        let is_truncated = parts.len() > most;
        parts.truncate(most);
        Ok(ListPartsOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            upload_id: Some(input.upload_id),
            max_parts: Some(headers::signed(most)),
            part_number_marker: Some(after),
            next_part_number_marker: parts.last().and_then(|part| part.part_number).filter(|_| is_truncated),
            is_truncated: Some(is_truncated),
            parts: Some(parts),
            checksum_algorithm: asked.as_ref().map(algorithm),
            checksum_type: asked.map(|asked| kind(asked.composite)),
            owner: Some(reading::owner()),
            ..Default::default()
        })
    }

    /// A page of the uploads of a bucket.
    ///
    /// # Errors
    /// `NoSuchBucket`, `NotImplemented`.
    pub async fn uploads_of(&self, input: ListMultipartUploadsInput) -> S3Result<ListMultipartUploadsOutput> {
        if input.delimiter.as_ref().is_some_and(|text| !text.is_empty()) {
            return Err(s3_error!(NotImplemented, "a list of uploads takes no delimiter"));
        }
        let (most, texts) = (limit(input.max_uploads)?, Texts::new(input.encoding_type.as_ref())?);
        let bucket = input.bucket.clone();
        let mut all = self.beside(move |objects| Ok(multipart::uploads(objects, &bucket)?)).await?;
        let (prefix, after) = (input.prefix.unwrap_or_default(), input.key_marker.clone().unwrap_or_default());
        let id = input.upload_id_marker.clone().unwrap_or_default();
        all.retain(|(this, upload)| {
            let is_behind = upload.key > after || upload.key == after && !id.is_empty() && *this > id;
            upload.key.starts_with(&prefix) && (after.is_empty() || is_behind)
        });
        let is_truncated = all.len() > most;
        all.truncate(most);
        let last = all.last().filter(|_| is_truncated);
        let shown = |(id, upload): &(String, multipart::Upload)| MultipartUpload {
            key: Some(texts.of(&upload.key)),
            upload_id: Some(id.clone()),
            initiated: Some(timestamp(fs::Time { seconds: upload.begun, nanoseconds: 0 })),
            checksum_algorithm: upload.checksum.as_ref().map(algorithm),
            checksum_type: upload.checksum.as_ref().map(|asked| kind(asked.composite)),
            owner: Some(reading::owner()),
            ..Default::default()
        };
        Ok(ListMultipartUploadsOutput {
            next_key_marker: last.map(|(_, upload)| texts.of(&upload.key)),
            next_upload_id_marker: last.map(|(id, _)| id.clone()),
            uploads: Some(all.iter().map(shown).collect()),
            bucket: Some(input.bucket),
            encoding_type: input.encoding_type,
            is_truncated: Some(is_truncated),
            key_marker: input.key_marker,
            max_uploads: Some(headers::signed(most)),
            prefix: Some(texts.of(&prefix)),
            upload_id_marker: input.upload_id_marker,
            ..Default::default()
        })
    }
}
