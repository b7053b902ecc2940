//! The operations of S3 that are there. The others answer `NotImplemented` (`docs/s3.md` has a
//! table of all).

use crate::about::About;
use crate::copy::{Source, To, join};
use crate::digest::{Claims, checksum};
use crate::gateway::Gateway;
use crate::get::{Conditions, timestamp};
use crate::headers::{self, about, supported};
use crate::keys::Rights;
use crate::listing::{from_token, token};
use crate::objects::{Condition, Objects, now};
use crate::put::{Put, Target};
use crate::reading::{self, Shown, Texts, etag, limit, show};
use crate::{asked, buckets, multipart};
use hyper::http::Extensions;
use hyper::{HeaderMap, StatusCode};
use s3s::dto::*;
use s3s::{S3, S3Request, S3Response, S3Result, s3_error};

type Answer<T> = S3Result<S3Response<T>>;

fn ok<T>(output: T) -> Answer<T> {
    Ok(S3Response::new(output))
}

/// Objects have no versions.
fn unversioned(version: Option<&String>) -> S3Result<()> {
    match version.map(String::as_str) {
        None | Some("null" | "") => Ok(()),
        Some(_) => Err(s3_error!(NoSuchVersion)),
    }
}

fn length(said: Option<i64>) -> Option<u64> {
    said.and_then(|said| u64::try_from(said).ok())
}

/// The object that a copy is made of.
fn source(headers: &HeaderMap) -> S3Result<(String, String)> {
    let (bucket, key, version) = asked::source(headers)?;
    unversioned(version.as_ref())?;
    Ok((bucket, key))
}

fn wants_checksums(mode: Option<&ChecksumMode>) -> bool {
    mode.is_some_and(|mode| mode.as_str() == ChecksumMode::ENABLED)
}

/// Whether the key of a request may use a bucket.
fn may(extensions: &Extensions, bucket: &str) -> S3Result<()> {
    match extensions.get::<Rights>() {
        Some(rights) if !rights.has(bucket) => Err(s3_error!(AccessDenied, "this key may not use this bucket")),
        _ => Ok(()),
    }
}

fn signed(value: usize) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

#[async_trait::async_trait]
impl S3 for Gateway {
    async fn list_buckets(&self, req: S3Request<ListBucketsInput>) -> Answer<ListBucketsOutput> {
        let mut buckets = self.beside(reading::buckets).await?;
        buckets.retain(|bucket| may(&req.extensions, bucket.name.as_deref().unwrap_or_default()).is_ok());
        ok(ListBucketsOutput { buckets: Some(buckets), owner: Some(reading::owner()), ..Default::default() })
    }

    async fn create_bucket(&self, req: S3Request<CreateBucketInput>) -> Answer<CreateBucketOutput> {
        if req.input.object_lock_enabled_for_bucket == Some(true) {
            return Err(s3_error!(NotImplemented, "there is no object lock"));
        }
        let bucket = req.input.bucket;
        let location = Some(format!("/{bucket}"));
        self.beside(move |objects| buckets::create(objects, &bucket)).await?;
        ok(CreateBucketOutput { location })
    }

    async fn delete_bucket(&self, req: S3Request<DeleteBucketInput>) -> Answer<DeleteBucketOutput> {
        self.beside(move |objects| buckets::delete(objects, &req.input.bucket)).await?;
        Ok(S3Response::with_status(DeleteBucketOutput::default(), StatusCode::NO_CONTENT))
    }

    async fn head_bucket(&self, req: S3Request<HeadBucketInput>) -> Answer<HeadBucketOutput> {
        self.beside(move |objects| objects.bucket(&req.input.bucket)).await?;
        ok(HeadBucketOutput::default())
    }

    async fn get_bucket_location(&self, req: S3Request<GetBucketLocationInput>) -> Answer<GetBucketLocationOutput> {
        self.beside(move |objects| objects.bucket(&req.input.bucket)).await?;
        ok(GetBucketLocationOutput::default())
    }

    async fn get_bucket_versioning(
        &self,
        req: S3Request<GetBucketVersioningInput>,
    ) -> Answer<GetBucketVersioningOutput> {
        self.beside(move |objects| objects.bucket(&req.input.bucket)).await?;
        ok(GetBucketVersioningOutput::default())
    }

    async fn put_object(&self, req: S3Request<PutObjectInput>) -> Answer<PutObjectOutput> {
        supported(&req.headers)?;
        let input = req.input;
        let condition = Condition::of_write(input.if_match.as_ref(), input.if_none_match.as_ref())?;
        let declared = input.checksum_algorithm.as_ref().map(ChecksumAlgorithm::as_str);
        let claims = Claims::new(&req.headers, declared, input.content_md5, req.trailing_headers);
        let target = Target::Object { bucket: input.bucket, key: input.key, condition };
        let about = about(&req.headers, input.metadata)?;
        let put = Put { target, about, claims, length: length(input.content_length) };
        let (about, size) = self.store(put, input.body).await?;
        let sums = checksum(&about.checksums);
        ok(PutObjectOutput {
            e_tag: Some(etag(&about)),
            size: Some(size.cast_signed()),
            checksum_crc32: sums.checksum_crc32,
            checksum_crc32c: sums.checksum_crc32c,
            checksum_crc64nvme: sums.checksum_crc64nvme,
            checksum_sha1: sums.checksum_sha1,
            checksum_sha256: sums.checksum_sha256,
            ..Default::default()
        })
    }

    async fn get_object(&self, req: S3Request<GetObjectInput>) -> Answer<GetObjectOutput> {
        let input = req.input;
        unversioned(input.version_id.as_ref())?;
        let conditions = Conditions {
            matches: input.if_match,
            differs: input.if_none_match,
            modified_since: input.if_modified_since,
            unmodified_since: input.if_unmodified_since,
        };
        let (bucket, key, part) = (input.bucket, input.key, input.part_number);
        let asked = move |objects: &Objects| show(objects, (&bucket, &key), &conditions, input.range, part);
        let Shown { file, about, range, opened, content_range } = self.beside(asked).await?;
        let content_length = Some((range.end - range.start).cast_signed());
        let is_whole = content_range.is_none();
        let body = self.bytes(opened, range).await?;
        let sums = if is_whole && wants_checksums(input.checksum_mode.as_ref()) {
            checksum(&about.checksums)
        } else {
            Checksum::default()
        };
        let output = GetObjectOutput {
            accept_ranges: Some("bytes".into()),
            body: Some(body),
            content_length,
            content_range,
            e_tag: Some(etag(&about)),
            last_modified: Some(timestamp(file.modified)),
            metadata: Some(about.metadata.clone().into_iter().collect()),
            tag_count: Some(signed(about.tags.len())).filter(|&count| count > 0),
            checksum_crc32: sums.checksum_crc32,
            checksum_crc32c: sums.checksum_crc32c,
            checksum_crc64nvme: sums.checksum_crc64nvme,
            checksum_sha1: sums.checksum_sha1,
            checksum_sha256: sums.checksum_sha256,
            ..Default::default()
        };
        Ok(S3Response::with_headers(output, headers::of_object(&about, &req.uri)))
    }

    async fn head_object(&self, req: S3Request<HeadObjectInput>) -> Answer<HeadObjectOutput> {
        let input = req.input;
        unversioned(input.version_id.as_ref())?;
        let conditions = Conditions {
            matches: input.if_match,
            differs: input.if_none_match,
            modified_since: input.if_modified_since,
            unmodified_since: input.if_unmodified_since,
        };
        let (bucket, key, part) = (input.bucket, input.key, input.part_number);
        let asked = move |objects: &Objects| show(objects, (&bucket, &key), &conditions, input.range, part);
        let Shown { file, about, range, content_range, .. } = self.beside(asked).await?;
        let status = content_range.as_ref().map(|_| StatusCode::PARTIAL_CONTENT);
        let sums = match wants_checksums(input.checksum_mode.as_ref()) && content_range.is_none() {
            true => checksum(&about.checksums),
            false => Checksum::default(),
        };
        let output = HeadObjectOutput {
            accept_ranges: Some("bytes".into()),
            content_length: Some((range.end - range.start).cast_signed()),
            content_range,
            e_tag: Some(etag(&about)),
            last_modified: Some(timestamp(file.modified)),
            metadata: Some(about.metadata.clone().into_iter().collect()),
            checksum_crc32: sums.checksum_crc32,
            checksum_crc32c: sums.checksum_crc32c,
            checksum_crc64nvme: sums.checksum_crc64nvme,
            checksum_sha1: sums.checksum_sha1,
            checksum_sha256: sums.checksum_sha256,
            ..Default::default()
        };
        let mut shown = S3Response::with_headers(output, headers::of_object(&about, &req.uri));
        shown.status = status;
        Ok(shown)
    }

    async fn delete_object(&self, req: S3Request<DeleteObjectInput>) -> Answer<DeleteObjectOutput> {
        let input = req.input;
        unversioned(input.version_id.as_ref())?;
        let condition = Condition::of_write(input.if_match.as_ref(), None)?;
        self.beside(move |objects| {
            let bucket = objects.bucket(&input.bucket)?.ino;
            objects.remove(&input.bucket, &input.key, &condition)?;
            objects.settle(bucket)
        })
        .await?;
        Ok(S3Response::with_status(DeleteObjectOutput::default(), StatusCode::NO_CONTENT))
    }

    async fn delete_objects(&self, req: S3Request<DeleteObjectsInput>) -> Answer<DeleteObjectsOutput> {
        let DeleteObjectsInput { bucket, delete: Delete { objects: wanted, quiet }, .. } = req.input;
        if wanted.len() > reading::MAX_KEYS as usize {
            return Err(s3_error!(MalformedXML, "a request removes 1000 keys at most"));
        }
        let removed = self.beside(move |objects| {
            let directory = objects.bucket(&bucket)?.ino;
            let (mut deleted, mut errors) = (Vec::new(), Vec::new());
            for wanted in wanted {
                let condition = match &wanted.e_tag {
                    Some(tag) => Condition::Matches(tag.value().to_owned()),
                    None => Condition::Always,
                };
                let done = unversioned(wanted.version_id.as_ref())
                    .and_then(|()| objects.remove(&bucket, &wanted.key, &condition));
                let key = Some(wanted.key);
                match done {
                    Ok(()) => deleted.push(DeletedObject { key, ..Default::default() }),
                    Err(why) => errors.push(Error {
                        code: Some(why.code().as_str().to_owned()),
                        message: why.message().map(str::to_owned),
                        key,
                        version_id: None,
                    }),
                }
            }
            objects.settle(directory)?;
            Ok((deleted, errors))
        });
        let (deleted, errors) = removed.await?;
        let deleted = (quiet != Some(true)).then_some(deleted);
        ok(DeleteObjectsOutput { deleted, errors: Some(errors), ..Default::default() })
    }

    async fn list_objects(&self, req: S3Request<ListObjectsInput>) -> Answer<ListObjectsOutput> {
        let input = req.input;
        let (texts, limit) = (Texts::new(input.encoding_type.as_ref())?, limit(input.max_keys)?);
        let after = input.marker.clone().unwrap_or_default();
        let question = reading::question(&input.bucket, input.prefix.as_ref(), input.delimiter.as_ref(), after);
        let listings = self.listings.clone();
        let (page, contents) = self
            .beside(move |objects| {
                let page = listings.page(objects, &question, limit)?;
                let contents = reading::contents(objects, &question.bucket, &page, &texts, true)?;
                Ok((page, contents))
            })
            .await?;
        let texts = Texts::new(input.encoding_type.as_ref())?;
        ok(ListObjectsOutput {
            common_prefixes: Some(reading::prefixes(&page, &texts)),
            contents: Some(contents),
            delimiter: input.delimiter.map(|text| texts.of(&text)),
            encoding_type: input.encoding_type,
            is_truncated: Some(page.last.is_some()),
            marker: Some(input.marker.map(|text| texts.of(&text)).unwrap_or_default()),
            max_keys: Some(signed(limit)),
            name: Some(input.bucket),
            next_marker: page.last.map(|text| texts.of(&text)),
            prefix: Some(input.prefix.map(|text| texts.of(&text)).unwrap_or_default()),
            ..Default::default()
        })
    }

    async fn list_objects_v2(&self, req: S3Request<ListObjectsV2Input>) -> Answer<ListObjectsV2Output> {
        let input = req.input;
        let (texts, limit) = (Texts::new(input.encoding_type.as_ref())?, limit(input.max_keys)?);
        let after = match &input.continuation_token {
            Some(token) => from_token(token)?,
            None => input.start_after.clone().unwrap_or_default(),
        };
        let question = reading::question(&input.bucket, input.prefix.as_ref(), input.delimiter.as_ref(), after);
        let (listings, with_owner) = (self.listings.clone(), input.fetch_owner == Some(true));
        let (page, contents) = self
            .beside(move |objects| {
                let page = listings.page(objects, &question, limit)?;
                let contents = reading::contents(objects, &question.bucket, &page, &texts, with_owner)?;
                Ok((page, contents))
            })
            .await?;
        let texts = Texts::new(input.encoding_type.as_ref())?;
        ok(ListObjectsV2Output {
            common_prefixes: Some(reading::prefixes(&page, &texts)),
            key_count: Some(signed(contents.len() + page.prefixes.len())),
            contents: Some(contents),
            continuation_token: input.continuation_token,
            delimiter: input.delimiter.map(|text| texts.of(&text)),
            encoding_type: input.encoding_type,
            is_truncated: Some(page.last.is_some()),
            max_keys: Some(signed(limit)),
            name: Some(input.bucket),
            next_continuation_token: page.last.as_deref().map(token),
            prefix: Some(input.prefix.map(|text| texts.of(&text)).unwrap_or_default()),
            start_after: input.start_after.map(|text| texts.of(&text)),
            ..Default::default()
        })
    }

    async fn copy_object(&self, req: S3Request<CopyObjectInput>) -> Answer<CopyObjectOutput> {
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
        may(&req.extensions, &from.0)?;
        let (bucket, key, condition) = (input.bucket, input.key, asked::condition(&req.headers)?);
        if from == (bucket.clone(), key.clone()) && !replaces {
            return Err(s3_error!(InvalidRequest, "a copy of an object to itself changes its metadata"));
        }
        let copied = self.beside(move |objects| {
            let shown = show(objects, (&from.0, &from.1), &conditions, None, None).map_err(|why| {
                let is_unmet = matches!(why.code(), s3s::S3ErrorCode::NotModified);
                if is_unmet { s3_error!(PreconditionFailed) } else { why }
            })?;
            let mut about = shown.about;
            if replaces {
                (about.headers, about.metadata) = (said.headers, said.metadata);
            }
            if replaces_tags {
                about.tags = said.tags;
            }
            let to = To::Object { bucket: &bucket, key: &key, condition: &condition };
            join(objects, &[(shown.file.ino, shown.range)], &about, to)?;
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
            checksum_type: None,
        };
        ok(CopyObjectOutput { copy_object_result: Some(result), ..Default::default() })
    }

    async fn create_multipart_upload(
        &self,
        req: S3Request<CreateMultipartUploadInput>,
    ) -> Answer<CreateMultipartUploadOutput> {
        supported(&req.headers)?;
        let input = req.input;
        let about = about(&req.headers, input.metadata)?;
        let (bucket, key) = (input.bucket.clone(), input.key.clone());
        let id = self.beside(move |objects| multipart::begin(objects, &bucket, &key, about)).await?;
        ok(CreateMultipartUploadOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            upload_id: Some(id),
            checksum_algorithm: input.checksum_algorithm,
            checksum_type: input.checksum_type,
            ..Default::default()
        })
    }

    async fn upload_part(&self, req: S3Request<UploadPartInput>) -> Answer<UploadPartOutput> {
        let input = req.input;
        let target = self.part(input.bucket, input.key, input.upload_id, input.part_number).await?;
        let declared = input.checksum_algorithm.as_ref().map(ChecksumAlgorithm::as_str);
        let claims = Claims::new(&req.headers, declared, input.content_md5, req.trailing_headers);
        let put = Put { target, about: About::default(), claims, length: length(input.content_length) };
        let (about, _) = self.store(put, input.body).await?;
        let sums = checksum(&about.checksums);
        ok(UploadPartOutput {
            e_tag: Some(etag(&about)),
            checksum_crc32: sums.checksum_crc32,
            checksum_crc32c: sums.checksum_crc32c,
            checksum_crc64nvme: sums.checksum_crc64nvme,
            checksum_sha1: sums.checksum_sha1,
            checksum_sha256: sums.checksum_sha256,
            ..Default::default()
        })
    }

    async fn upload_part_copy(&self, req: S3Request<UploadPartCopyInput>) -> Answer<UploadPartCopyOutput> {
        let input = req.input;
        let from = source(&req.headers)?;
        may(&req.extensions, &from.0)?;
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
        let target = self.part(input.bucket, input.key, input.upload_id, input.part_number).await?;
        let Target::File { parent, name } = target else { return Err(s3_error!(InternalError)) };
        let tag = self.beside(move |objects| {
            let shown = show(objects, (&from.0, &from.1), &conditions, range.map(|(range, _)| range), None)?;
            if range.is_some_and(|(_, last)| last != shown.range.end - 1) {
                return Err(s3_error!(InvalidRange, "the source ends before the range does"));
            }
            let sources: [Source; 1] = [(shown.file.ino, shown.range.clone())];
            // Its bytes are not read, so this is no MD5 of them. It is one of what they are of.
            let word = format!("{}:{}-{}", shown.about.etag, shown.range.start, shown.range.end);
            let md5 = <s3s::crypto::Md5 as s3s::crypto::Checksum>::checksum(word.as_bytes());
            let about = About { etag: crate::about::hex(&md5), ..About::default() };
            join(objects, &sources, &about, To::File(parent, name))?;
            Ok(etag(&about))
        });
        let result =
            CopyPartResult { e_tag: Some(tag.await?), last_modified: Some(timestamp(now())), ..Default::default() };
        ok(UploadPartCopyOutput { copy_part_result: Some(result), ..Default::default() })
    }

    async fn complete_multipart_upload(
        &self,
        req: S3Request<CompleteMultipartUploadInput>,
    ) -> Answer<CompleteMultipartUploadOutput> {
        let input = req.input;
        let condition = Condition::of_write(input.if_match.as_ref(), input.if_none_match.as_ref())?;
        let listed = input.multipart_upload.and_then(|upload| upload.parts).unwrap_or_default();
        let wanted = listed.into_iter().map(|part| Some((part.part_number?, part.e_tag?.into_value())));
        let wanted: Option<Vec<(i32, String)>> = wanted.collect();
        let wanted = wanted.ok_or_else(|| s3_error!(MalformedXML, "each part has a number and an ETag"))?;
        let (bucket, key, id) = (input.bucket.clone(), input.key.clone(), input.upload_id);
        let completed =
            self.beside(move |objects| multipart::complete(objects, (&bucket, &key, &id), &wanted, &condition));
        let about = completed.await?;
        self.sweep_soon();
        ok(CompleteMultipartUploadOutput {
            location: Some(format!("/{}/{}", input.bucket, crate::text::encode(&input.key))),
            bucket: Some(input.bucket),
            key: Some(input.key),
            e_tag: Some(etag(&about)),
            ..Default::default()
        })
    }

    async fn abort_multipart_upload(
        &self,
        req: S3Request<AbortMultipartUploadInput>,
    ) -> Answer<AbortMultipartUploadOutput> {
        let input = req.input;
        self.beside(move |objects| {
            multipart::find(objects, &input.bucket, &input.key, &input.upload_id)?;
            multipart::drop_upload(objects, &input.upload_id)
        })
        .await?;
        self.sweep_soon();
        Ok(S3Response::with_status(AbortMultipartUploadOutput::default(), StatusCode::NO_CONTENT))
    }

    async fn list_parts(&self, req: S3Request<ListPartsInput>) -> Answer<ListPartsOutput> {
        let input = req.input;
        let (bucket, key, id) = (input.bucket.clone(), input.key.clone(), input.upload_id.clone());
        let (most, after) = (limit(input.max_parts)?, input.part_number_marker.unwrap_or(0));
        let listed = self.beside(move |objects| {
            let (directory, _) = multipart::find(objects, &bucket, &key, &id)?;
            let there = multipart::parts(objects, directory)?;
            let behind = there.range(after.saturating_add(1)..);
            let parts: S3Result<Vec<Part>> = behind
                .take(most + 1)
                .map(|(number, part)| {
                    let about = objects.about(&part.file)?;
                    Ok(Part {
                        part_number: Some(*number),
                        e_tag: Some(etag(&about)),
                        size: Some(part.file.size.cast_signed()),
                        last_modified: Some(timestamp(part.file.modified)),
                        ..Default::default()
                    })
                })
                .collect();
            parts
        });
        let mut parts = listed.await?;
        let is_truncated = parts.len() > most;
        parts.truncate(most);
        ok(ListPartsOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            upload_id: Some(input.upload_id),
            max_parts: Some(signed(most)),
            part_number_marker: Some(after),
            next_part_number_marker: parts.last().and_then(|part| part.part_number).filter(|_| is_truncated),
            is_truncated: Some(is_truncated),
            parts: Some(parts),
            owner: Some(reading::owner()),
            ..Default::default()
        })
    }

    async fn list_multipart_uploads(
        &self,
        req: S3Request<ListMultipartUploadsInput>,
    ) -> Answer<ListMultipartUploadsOutput> {
        let input = req.input;
        if input.delimiter.as_ref().is_some_and(|text| !text.is_empty()) {
            return Err(s3_error!(NotImplemented, "a list of uploads takes no delimiter"));
        }
        let (most, texts) = (limit(input.max_uploads)?, Texts::new(input.encoding_type.as_ref())?);
        let bucket = input.bucket.clone();
        let mut all = self.beside(move |objects| multipart::uploads(objects, &bucket)).await?;
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
            owner: Some(reading::owner()),
            ..Default::default()
        };
        ok(ListMultipartUploadsOutput {
            next_key_marker: last.map(|(_, upload)| texts.of(&upload.key)),
            next_upload_id_marker: last.map(|(id, _)| id.clone()),
            uploads: Some(all.iter().map(shown).collect()),
            bucket: Some(input.bucket),
            encoding_type: input.encoding_type,
            is_truncated: Some(is_truncated),
            key_marker: input.key_marker,
            max_uploads: Some(signed(most)),
            prefix: Some(texts.of(&prefix)),
            upload_id_marker: input.upload_id_marker,
            ..Default::default()
        })
    }

    async fn get_object_tagging(&self, req: S3Request<GetObjectTaggingInput>) -> Answer<GetObjectTaggingOutput> {
        unversioned(req.input.version_id.as_ref())?;
        let (_, about) = self.beside(move |objects| objects.get(&req.input.bucket, &req.input.key)).await?;
        let tag = |(key, value)| Tag { key: Some(key), value: Some(value) };
        ok(GetObjectTaggingOutput { tag_set: about.tags.into_iter().map(tag).collect(), version_id: None })
    }

    async fn put_object_tagging(&self, req: S3Request<PutObjectTaggingInput>) -> Answer<PutObjectTaggingOutput> {
        let input = req.input;
        unversioned(input.version_id.as_ref())?;
        let given = input.tagging.tag_set.into_iter();
        let given = given.map(|tag| (tag.key.unwrap_or_default(), tag.value.unwrap_or_default())).collect();
        self.set_tags(input.bucket, input.key, given).await?;
        ok(PutObjectTaggingOutput::default())
    }

    async fn delete_object_tagging(
        &self,
        req: S3Request<DeleteObjectTaggingInput>,
    ) -> Answer<DeleteObjectTaggingOutput> {
        unversioned(req.input.version_id.as_ref())?;
        self.set_tags(req.input.bucket, req.input.key, Vec::new()).await?;
        Ok(S3Response::with_status(DeleteObjectTaggingOutput::default(), StatusCode::NO_CONTENT))
    }
}
