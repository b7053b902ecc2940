//! The operations of S3 that are there. The others answer `NotImplemented` (`docs/s3.md` has a
//! table of all).

use crate::asked::{self, unversioned};
use crate::buckets;
use crate::digest::{ALGORITHMS, Claims, checksum, kind};
use crate::gateway::Gateway;
use crate::get::{AT_ONCE, Conditions, Content, timestamp};
use crate::headers::{self, about, signed, supported};
use crate::policy::Policy;
use crate::put::Put;
use crate::reading::{self, Shown, Texts, etag, limit, show};
use crate::rights::Asker;
use crate::token::{from_token, token};
use crate::whole::{self, Said, of_listed};
use hyper::http::Extensions;
use hyper::{HeaderMap, StatusCode};
use objects::Objects;
use objects::about::About;
use objects::multipart::{self, Upload};
use objects::store::Target;
use s3s::dto::*;
use s3s::{S3, S3Request, S3Response, S3Result, s3_error};

type Answer<T> = S3Result<S3Response<T>>;

fn ok<T>(output: T) -> Answer<T> {
    Ok(S3Response::new(output))
}

/// The length of a body, without the framing of aws-chunked. The end of such a body says nothing of
/// whether it is whole.
fn body_length(headers: &HeaderMap, said: Option<i64>) -> Option<u64> {
    let decoded = headers.get("x-amz-decoded-content-length").and_then(|value| value.to_str().ok()?.parse().ok());
    decoded.or_else(|| said.and_then(|said| u64::try_from(said).ok()))
}

fn wants_checksums(mode: Option<&ChecksumMode>) -> bool {
    mode.is_some_and(|mode| mode.as_str() == ChecksumMode::ENABLED)
}

/// Whether the key of a request may see a bucket.
fn sees(extensions: &Extensions, bucket: &str) -> bool {
    let key = extensions.get::<Asker>().and_then(|asker| asker.key.as_ref());
    key.is_none_or(|(_, rights)| rights.sees(bucket))
}

#[async_trait::async_trait]
impl S3 for Gateway {
    async fn list_buckets(&self, req: S3Request<ListBucketsInput>) -> Answer<ListBucketsOutput> {
        let mut buckets = self.beside(reading::buckets).await?;
        buckets.retain(|bucket| sees(&req.extensions, bucket.name.as_deref().unwrap_or_default()));
        ok(ListBucketsOutput { buckets: Some(buckets), owner: Some(reading::owner()), ..Default::default() })
    }

    async fn create_bucket(&self, req: S3Request<CreateBucketInput>) -> Answer<CreateBucketOutput> {
        if req.input.object_lock_enabled_for_bucket == Some(true) {
            return Err(s3_error!(NotImplemented, "there is no object lock"));
        }
        let bucket = req.input.bucket;
        let location = Some(format!("/{bucket}"));
        let made = bucket.clone();
        self.beside(move |objects| buckets::create(objects, &made)).await?;
        self.known.forget(&bucket);
        ok(CreateBucketOutput { location })
    }

    async fn delete_bucket(&self, req: S3Request<DeleteBucketInput>) -> Answer<DeleteBucketOutput> {
        let known = self.known.clone();
        self.beside(move |objects| {
            let deleted = buckets::delete(objects, &req.input.bucket);
            known.forget(&req.input.bucket);
            deleted
        })
        .await?;
        Ok(S3Response::with_status(DeleteBucketOutput::default(), StatusCode::NO_CONTENT))
    }

    async fn head_bucket(&self, req: S3Request<HeadBucketInput>) -> Answer<HeadBucketOutput> {
        self.beside(move |objects| Ok(objects.bucket(&req.input.bucket)?)).await?;
        ok(HeadBucketOutput::default())
    }

    async fn get_bucket_location(&self, req: S3Request<GetBucketLocationInput>) -> Answer<GetBucketLocationOutput> {
        self.beside(move |objects| Ok(objects.bucket(&req.input.bucket)?)).await?;
        ok(GetBucketLocationOutput::default())
    }

    async fn get_bucket_versioning(
        &self,
        req: S3Request<GetBucketVersioningInput>,
    ) -> Answer<GetBucketVersioningOutput> {
        self.beside(move |objects| Ok(objects.bucket(&req.input.bucket)?)).await?;
        ok(GetBucketVersioningOutput::default())
    }

    async fn put_object(&self, req: S3Request<PutObjectInput>) -> Answer<PutObjectOutput> {
        supported(&req.headers)?;
        let input = req.input;
        let condition = asked::of_write(input.if_match.as_ref(), input.if_none_match.as_ref())?;
        let declared = input.checksum_algorithm.as_ref().map(ChecksumAlgorithm::as_str);
        let claims = Claims::new(&req.headers, declared, input.content_md5, req.trailing_headers);
        self.permit_tags(&req.extensions, &req.headers, (&input.bucket, &input.key)).await?;
        let target = Target::Object { bucket: input.bucket, key: input.key, condition };
        let about = about(&req.headers, input.metadata)?;
        let put = Put { target, about, claims, length: body_length(&req.headers, input.content_length) };
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
            checksum_type: sums.checksum_type,
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
        let memory = self.take(AT_ONCE).await?;
        let asked = move |objects: &Objects| {
            let (shown, opened) = show(objects, (&bucket, &key), &conditions, input.range, part)?;
            let content = Content::new(opened, &shown.range, memory)?;
            Ok((shown, content))
        };
        let (Shown { file, about, range, content_range }, content) = self.beside(asked).await?;
        let content_length = Some((range.end - range.start).cast_signed());
        let is_whole = content_range.is_none();
        let body = self.bytes(content, range).await?;
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
            checksum_type: sums.checksum_type,
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
        let asked = move |objects: &Objects| {
            let (shown, opened) = show(objects, (&bucket, &key), &conditions, input.range, part)?;
            opened.close();
            Ok(shown)
        };
        let Shown { file, about, range, content_range } = self.beside(asked).await?;
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
            checksum_type: sums.checksum_type,
            ..Default::default()
        };
        let mut shown = S3Response::with_headers(output, headers::of_object(&about, &req.uri));
        shown.status = status;
        Ok(shown)
    }

    async fn delete_object(&self, req: S3Request<DeleteObjectInput>) -> Answer<DeleteObjectOutput> {
        let input = req.input;
        unversioned(input.version_id.as_ref())?;
        let condition = asked::of_write(input.if_match.as_ref(), None)?;
        self.beside(move |objects| {
            let bucket = objects.bucket(&input.bucket)?.ino;
            objects.remove(&input.bucket, &input.key, &condition)?;
            Ok(objects.settle(bucket)?)
        })
        .await?;
        Ok(S3Response::with_status(DeleteObjectOutput::default(), StatusCode::NO_CONTENT))
    }

    async fn delete_objects(&self, req: S3Request<DeleteObjectsInput>) -> Answer<DeleteObjectsOutput> {
        ok(self.remove_many(req.input, &req.extensions).await?)
    }

    async fn list_objects(&self, req: S3Request<ListObjectsInput>) -> Answer<ListObjectsOutput> {
        let input = req.input;
        let (texts, limit) = (Texts::new(input.encoding_type.as_ref())?, limit(input.max_keys)?);
        let after = input.marker.clone().unwrap_or_default();
        let question = reading::question(&input.bucket, input.prefix.as_ref(), input.delimiter.as_ref(), after);
        let (page, contents) = self.page_of(question, texts, limit, true).await?;
        ok(ListObjectsOutput {
            common_prefixes: Some(reading::prefixes(&page, texts)),
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
        let (page, contents) = self.page_of(question, texts, limit, input.fetch_owner == Some(true)).await?;
        ok(ListObjectsV2Output {
            common_prefixes: Some(reading::prefixes(&page, texts)),
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
        ok(self.copy(req).await?)
    }

    async fn create_multipart_upload(
        &self,
        req: S3Request<CreateMultipartUploadInput>,
    ) -> Answer<CreateMultipartUploadOutput> {
        supported(&req.headers)?;
        let input = req.input;
        let about = about(&req.headers, input.metadata)?;
        self.permit_tags(&req.extensions, &req.headers, (&input.bucket, &input.key)).await?;
        let asked = whole::asked(input.checksum_algorithm.as_ref(), input.checksum_type.as_ref())?;
        let (bucket, key, checksum) = (input.bucket.clone(), input.key.clone(), asked.clone());
        let begin = move |objects: &Objects| Ok(multipart::begin(objects, &bucket, &key, about, checksum)?);
        let id = self.beside(begin).await?;
        ok(CreateMultipartUploadOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            upload_id: Some(id),
            checksum_algorithm: input.checksum_algorithm,
            checksum_type: asked.map(|asked| kind(asked.composite)),
            ..Default::default()
        })
    }

    async fn upload_part(&self, req: S3Request<UploadPartInput>) -> Answer<UploadPartOutput> {
        let input = req.input;
        let (target, asked) = self.part(input.bucket, input.key, input.upload_id, input.part_number).await?;
        let declared = input.checksum_algorithm.as_ref().map(ChecksumAlgorithm::as_str);
        let mut claims = Claims::new(&req.headers, declared, input.content_md5, req.trailing_headers);
        // That of the object is made of those of the parts.
        let of_part = ALGORITHMS.into_iter().find(|name| asked.as_ref().is_some_and(|asked| asked.algorithm == *name));
        claims.wanted.extend(of_part);
        let length = body_length(&req.headers, input.content_length);
        let put = Put { target, about: About::default(), claims, length };
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
        ok(self.copy_part(req).await?)
    }

    async fn complete_multipart_upload(
        &self,
        req: S3Request<CompleteMultipartUploadInput>,
    ) -> Answer<CompleteMultipartUploadOutput> {
        let input = req.input;
        let condition = asked::of_write(input.if_match.as_ref(), input.if_none_match.as_ref())?;
        let listed = input.multipart_upload.and_then(|upload| upload.parts).unwrap_or_default();
        let said = Said {
            whole: Claims::new(&req.headers, None, None, None).checksums,
            parts: listed.iter().map(of_listed).collect(),
            kind: input.checksum_type,
            size: input.mpu_object_size,
        };
        let wanted = listed.into_iter().map(|part| Some((part.part_number?, part.e_tag?.into_value())));
        let wanted: Option<Vec<(i32, String)>> = wanted.collect();
        let wanted = wanted.ok_or_else(|| s3_error!(MalformedXML, "each part has a number and an ETag"))?;
        let (bucket, key, id) = (input.bucket.clone(), input.key.clone(), input.upload_id);
        let completed = self.beside(move |objects| {
            let compare = |upload: &Upload, parts: &[About]| said.compare(upload, parts);
            let about = multipart::complete(objects, (&bucket, &key, &id), &wanted, &condition, compare)?;
            // Another request completed it before.
            said.fits(&about)?;
            Ok(about)
        });
        let about = completed.await?;
        let sums = checksum(&about.checksums);
        self.sweep_soon();
        ok(CompleteMultipartUploadOutput {
            location: Some(format!("/{}/{}", input.bucket, objects::text::encode(&input.key))),
            bucket: Some(input.bucket),
            key: Some(input.key),
            e_tag: Some(etag(&about)),
            checksum_crc32: sums.checksum_crc32,
            checksum_crc32c: sums.checksum_crc32c,
            checksum_crc64nvme: sums.checksum_crc64nvme,
            checksum_sha1: sums.checksum_sha1,
            checksum_sha256: sums.checksum_sha256,
            checksum_type: sums.checksum_type,
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
            Ok(multipart::drop_upload(objects, &input.upload_id)?)
        })
        .await?;
        self.sweep_soon();
        Ok(S3Response::with_status(AbortMultipartUploadOutput::default(), StatusCode::NO_CONTENT))
    }

    async fn list_parts(&self, req: S3Request<ListPartsInput>) -> Answer<ListPartsOutput> {
        ok(self.parts_of(req.input).await?)
    }

    async fn list_multipart_uploads(
        &self,
        req: S3Request<ListMultipartUploadsInput>,
    ) -> Answer<ListMultipartUploadsOutput> {
        ok(self.uploads_of(req.input).await?)
    }

    async fn get_object_tagging(&self, req: S3Request<GetObjectTaggingInput>) -> Answer<GetObjectTaggingOutput> {
        unversioned(req.input.version_id.as_ref())?;
        let (_, about) = self.beside(move |objects| Ok(objects.get(&req.input.bucket, &req.input.key)?)).await?;
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

    async fn get_bucket_policy(&self, req: S3Request<GetBucketPolicyInput>) -> Answer<GetBucketPolicyOutput> {
        ok(GetBucketPolicyOutput { policy: Some(self.policy(req.input.bucket).await?) })
    }

    async fn get_bucket_policy_status(
        &self,
        req: S3Request<GetBucketPolicyStatusInput>,
    ) -> Answer<GetBucketPolicyStatusOutput> {
        let bucket = req.input.bucket;
        let policy = Policy::stored(&self.policy(bucket.clone()).await?, &bucket);
        let is_public = Some(policy.is_ok_and(|policy| policy.is_public()));
        ok(GetBucketPolicyStatusOutput { policy_status: Some(PolicyStatus { is_public }) })
    }

    async fn put_bucket_policy(&self, req: S3Request<PutBucketPolicyInput>) -> Answer<PutBucketPolicyOutput> {
        self.set_policy(req.input.bucket, Some(req.input.policy)).await?;
        Ok(S3Response::with_status(PutBucketPolicyOutput::default(), StatusCode::NO_CONTENT))
    }

    async fn delete_bucket_policy(&self, req: S3Request<DeleteBucketPolicyInput>) -> Answer<DeleteBucketPolicyOutput> {
        self.set_policy(req.input.bucket, None).await?;
        Ok(S3Response::with_status(DeleteBucketPolicyOutput::default(), StatusCode::NO_CONTENT))
    }

    async fn get_bucket_cors(&self, req: S3Request<GetBucketCorsInput>) -> Answer<GetBucketCorsOutput> {
        ok(GetBucketCorsOutput { cors_rules: Some(self.cors(req.input.bucket).await?) })
    }

    async fn put_bucket_cors(&self, req: S3Request<PutBucketCorsInput>) -> Answer<PutBucketCorsOutput> {
        self.set_cors(req.input.bucket, Some(req.input.cors_configuration.cors_rules)).await?;
        ok(PutBucketCorsOutput::default())
    }

    async fn delete_bucket_cors(&self, req: S3Request<DeleteBucketCorsInput>) -> Answer<DeleteBucketCorsOutput> {
        self.set_cors(req.input.bucket, None).await?;
        Ok(S3Response::with_status(DeleteBucketCorsOutput::default(), StatusCode::NO_CONTENT))
    }

    async fn get_bucket_lifecycle_configuration(
        &self,
        req: S3Request<GetBucketLifecycleConfigurationInput>,
    ) -> Answer<GetBucketLifecycleConfigurationOutput> {
        let rules = Some(self.lifecycle(req.input.bucket).await?);
        ok(GetBucketLifecycleConfigurationOutput { rules, ..Default::default() })
    }

    async fn put_bucket_lifecycle_configuration(
        &self,
        req: S3Request<PutBucketLifecycleConfigurationInput>,
    ) -> Answer<PutBucketLifecycleConfigurationOutput> {
        let rules = req.input.lifecycle_configuration.map(|given| given.rules).unwrap_or_default();
        self.set_lifecycle(req.input.bucket, Some(rules)).await?;
        ok(PutBucketLifecycleConfigurationOutput::default())
    }

    async fn delete_bucket_lifecycle(
        &self,
        req: S3Request<DeleteBucketLifecycleInput>,
    ) -> Answer<DeleteBucketLifecycleOutput> {
        self.set_lifecycle(req.input.bucket, None).await?;
        Ok(S3Response::with_status(DeleteBucketLifecycleOutput::default(), StatusCode::NO_CONTENT))
    }
}
