//! What is set for a bucket, by the operations that set it.

use super::*;
use crate::lifecycle;
use crate::rights::{Asker, On, Rights};
use fs::{SetAttributes, SetTime, Time};

const DAY: i64 = 24 * 3600;

async fn put_policy(gateway: &Gateway, policy: &str) -> S3Result<()> {
    let input = PutBucketPolicyInput::builder().bucket("b".into()).policy(policy.into()).build().unwrap();
    gateway.put_bucket_policy(request(input)).await.map(drop)
}

fn rule(prefix: &str, days: Option<i32>, upload_days: Option<i32>) -> LifecycleRule {
    LifecycleRule {
        abort_incomplete_multipart_upload: upload_days
            .map(|days| AbortIncompleteMultipartUpload { days_after_initiation: Some(days) }),
        expiration: days.map(|days| LifecycleExpiration { days: Some(days), ..Default::default() }),
        filter: Some(LifecycleRuleFilter { prefix: Some(prefix.into()), ..Default::default() }),
        id: None,
        noncurrent_version_expiration: None,
        noncurrent_version_transitions: None,
        prefix: None,
        status: ExpirationStatus::from_static(ExpirationStatus::ENABLED),
        transitions: None,
    }
}

#[test]
fn a_policy_is_kept_with_its_bucket_and_counts_in_all_gateways() {
    let lab = Lab::new("policy");
    let gateways = [lab.gateway(), lab.gateway()];
    lab.run(async {
        bucket(&gateways[0]).await;
        let get = || GetBucketPolicyInput::builder().bucket("b".into()).build().unwrap();
        assert_eq!(code(gateways[0].get_bucket_policy(request(get())).await), S3ErrorCode::NoSuchBucketPolicy);
        assert_eq!(code(put_policy(&gateways[0], "{}").await), S3ErrorCode::MalformedPolicy);
        let policy = r#"{"Statement":{"Effect":"Allow","Principal":"*","Action":"s3:GetObject",
            "Resource":"arn:aws:s3:::b/open/*"}}"#;
        put_policy(&gateways[0], policy).await.unwrap();
        let mut asker = hyper::http::Extensions::new();
        asker.insert(Asker::default());
        for gateway in &gateways {
            let shown = gateway.get_bucket_policy(request(get())).await.unwrap().output.policy;
            assert_eq!(shown.as_deref(), Some(policy));
            gateway.permit(&asker, "GetObject", ("b", "open/a")).await.unwrap();
            assert_eq!(code(gateway.permit(&asker, "GetObject", ("b", "a")).await), S3ErrorCode::AccessDenied);
        }
        // It goes at once where it is removed.
        let delete = DeleteBucketPolicyInput::builder().bucket("b".into()).build().unwrap();
        gateways[0].delete_bucket_policy(request(delete)).await.unwrap();
        let denied = gateways[0].permit(&asker, "GetObject", ("b", "open/a")).await;
        assert_eq!(code(denied), S3ErrorCode::AccessDenied);
        // The source of a copy and each of many removed objects need the right, too.
        put(&gateways[0], "kept", b"").await.unwrap();
        let write = Rights { write: vec!["b/w".into()], ..Rights::default() };
        let delete = Delete { objects: ["kept", "w/gone"].map(identifier).to_vec(), quiet: None };
        let input = DeleteObjectsInput::builder().bucket("b".into()).delete(delete).build().unwrap();
        let mut asked = request(input);
        asked.extensions.insert(Asker { key: Some(("K".into(), write.clone())) });
        let answer = gateways[0].delete_objects(asked).await.unwrap().output;
        assert_eq!(answer.errors.unwrap()[0].code.as_deref(), Some("AccessDenied"));
        assert_eq!(answer.deleted.unwrap()[0].key.as_deref(), Some("w/gone"));
        let source = CopySource::Bucket { bucket: "b".into(), key: "kept".into(), version_id: None };
        let copy = CopyObjectInput::builder().bucket("b".into()).key("w/a".into()).copy_source(source).build().unwrap();
        let mut asked = request(copy);
        asked.headers.insert("x-amz-copy-source", "b/kept".parse().unwrap());
        asked.extensions.insert(Asker { key: Some(("K".into(), write)) });
        assert_eq!(code(gateways[0].copy_object(asked).await), S3ErrorCode::AccessDenied);
    });
}

fn identifier(key: &str) -> ObjectIdentifier {
    ObjectIdentifier { key: key.into(), ..Default::default() }
}

#[test]
fn objects_and_uploads_end_by_rules_and_one_gateway_does_it() {
    let lab = Lab::new("lifecycle");
    let gateway = lab.gateway();
    lab.run(async {
        bucket(&gateway).await;
        for key in ["logs/old", "logs/new", "logs/changed", "other/old"] {
            put(&gateway, key, b"x").await.unwrap();
        }
        let begin = || CreateMultipartUploadInput::builder().bucket("b".into()).key("logs/u".into()).build().unwrap();
        gateway.create_multipart_upload(request(begin())).await.unwrap();
        let input = PutBucketLifecycleConfigurationInput {
            lifecycle_configuration: Some(BucketLifecycleConfiguration {
                rules: vec![rule("logs/", Some(3), Some(5))],
            }),
            ..PutBucketLifecycleConfigurationInput::builder().bucket("b".into()).build().unwrap()
        };
        gateway.put_bucket_lifecycle_configuration(request(input)).await.unwrap();
        let get = GetBucketLifecycleConfigurationInput::builder().bucket("b".into()).build().unwrap();
        let shown = gateway.get_bucket_lifecycle_configuration(request(get)).await.unwrap().output.rules;
        assert_eq!(shown, Some(vec![rule("logs/", Some(3), Some(5))]));
    });
    let objects = &gateway.objects;
    let now = objects::now().seconds;
    let set_modified = |key: &str, seconds| {
        let file = objects.find("b", key).unwrap().unwrap().file.ino;
        let modified = Some(SetTime::To(Time { seconds, nanoseconds: 0 }));
        lab.fs().set_attributes(file, SetAttributes { modified, ..Default::default() }).unwrap();
        file
    };
    let set = |key: &str, seconds| {
        let created = Some(Time { seconds, nanoseconds: 0 });
        let file = set_modified(key, seconds);
        lab.fs().set_attributes(file, SetAttributes { created, ..Default::default() }).unwrap();
    };
    for key in ["logs/old", "other/old"] {
        set(key, now - 5 * DAY);
    }
    // As `rsync -a` copies an old file: it has come now.
    set_modified("logs/new", now - 100 * DAY);
    let run = |at: i64| {
        let done = lifecycle::run(objects, &gateway.listings, &|| at).unwrap();
        assert!(done.failed.is_none(), "{done:?}");
        done.ended
    };
    let keys = || lab.run(keys(&gateway, 100, None)).0;
    assert_eq!(run(now), 1);
    assert_eq!(keys(), ["logs/changed", "logs/new", "other/old"]);
    // Another gateway that is at it excludes this one, until it has not said so for a while.
    let file = objects::home::new(FileKind::File, 0o600);
    let other = lab.fs().make(objects.home.home, b"lifecycle", &file).unwrap();
    let later = now + 7 * DAY;
    let said = |file, seconds| {
        let modified = Some(SetTime::To(Time { seconds, nanoseconds: 0 }));
        lab.fs().set_attributes(file, SetAttributes { modified, ..Default::default() }).unwrap();
    };
    said(other.ino, later - 60);
    assert_eq!(run(later), 0);
    said(other.ino, later + 60);
    assert_eq!(run(later), 0);
    // One whose clock was wrong was killed: this one need not wait until then.
    said(other.ino, later + 3600);
    set("logs/changed", later);
    assert_eq!(run(later), 2, "an object and an upload");
    assert_eq!(keys(), ["logs/changed", "other/old"]);
    assert!(objects::multipart::uploads(objects, "b").unwrap().is_empty());
    assert!(is_missing(&lab.fs().lookup(objects.home.home, b"lifecycle").unwrap_err()));
    let other = lab.fs().make(objects.home.home, b"lifecycle", &file).unwrap();
    said(other.ino, later - 3600);
    assert_eq!(run(later), 0, "there is nothing left to end");
    assert!(is_missing(&lab.fs().lookup(objects.home.home, b"lifecycle").unwrap_err()), "it was taken");
    // Rules of a newer version are not carried out, and that is told.
    let directory = objects.bucket("b").unwrap().ino;
    let newer = br#"[{"enabled":true,"prefix":"","days":1,"larger_than":5}]"#;
    lab.fs().set_attribute(directory, crate::settings::LIFECYCLE, newer, None).unwrap();
    let done = lifecycle::run(objects, &gateway.listings, &|| later + 100 * DAY).unwrap();
    assert_eq!((done.ended, done.failed.unwrap().0.as_str()), (0, "b"));
}

/// Buckets `a` and `b` with an old object each, and a rule that ends it.
async fn two_buckets_with_rules(gateway: &Gateway) {
    let old = Time { seconds: 1000, nanoseconds: 0 };
    for bucket in ["a", "b"] {
        let directory = objects::home::new(FileKind::Directory, 0o755);
        gateway.objects.fs.make(ROOT, bucket.as_bytes(), &directory).unwrap();
        let input = PutObjectInput {
            bucket: bucket.into(),
            key: "k".into(),
            body: body(b"x"),
            content_length: Some(1),
            ..put_input()
        };
        gateway.put_object(request(input)).await.unwrap();
        let file = gateway.objects.find(bucket, "k").unwrap().unwrap().file.ino;
        let age = SetAttributes { modified: Some(SetTime::To(old)), created: Some(old), ..Default::default() };
        gateway.objects.fs.set_attributes(file, age).unwrap();
        gateway.set_lifecycle(bucket.into(), Some(vec![rule("", Some(1), Some(1))])).await.unwrap();
    }
}

#[test]
fn a_bucket_that_fails_stops_no_other_one() {
    let lab = Lab::new("lifecycle-fails");
    let gateway = lab.gateway();
    let objects = &gateway.objects;
    let id = lab.run(async {
        two_buckets_with_rules(&gateway).await;
        let begin = CreateMultipartUploadInput::builder().bucket("a".into()).key("u".into()).build().unwrap();
        gateway.create_multipart_upload(request(begin)).await.unwrap().output.upload_id.unwrap()
    });
    // The upload in `a` cannot be given up: its place is taken.
    let file = objects::home::new(FileKind::File, 0o600);
    lab.fs().make(objects.home.trash, id.as_bytes(), &file).unwrap();
    let now = objects::now().seconds + 7 * DAY;
    let done = lifecycle::run(objects, &gateway.listings, &|| now).unwrap();
    assert_eq!((done.ended, done.failed.unwrap().0.as_str()), (2, "a"));
    assert!(objects.find("a", "k").unwrap().is_none() && objects.find("b", "k").unwrap().is_none());
}

#[test]
fn a_bucket_that_goes_while_its_rules_are_carried_out_is_no_failure() {
    let lab = Lab::new("lifecycle-gone");
    let gateway = lab.gateway();
    let objects = &gateway.objects;
    lab.run(two_buckets_with_rules(&gateway));
    let now = objects::now().seconds;
    let looks = std::cell::Cell::new(0);
    let clock = || {
        looks.set(looks.get() + 1);
        // The first look is for the turn, the second one when the page of `a` was read.
        if looks.get() == 2 {
            lab.fs().rename((ROOT, b"a"), (ROOT, b".a"), fs::RenameMode::NoReplace).unwrap();
        }
        now
    };
    let done = lifecycle::run(objects, &gateway.listings, &clock).unwrap();
    assert!(done.failed.is_none() && looks.get() > 2, "{done:?}");
    assert_eq!(done.ended, 1);
    assert!(objects.find("b", "k").unwrap().is_none());
}

#[test]
fn rules_are_carried_out_until_the_gateway_ends() {
    let lab = Lab::new("lifecycle-ends");
    let gateway = lab.gateway();
    let objects = &gateway.objects;
    lab.run(two_buckets_with_rules(&gateway));
    let now = objects::now().seconds;
    let clock = || {
        objects.end();
        now
    };
    assert_eq!(lifecycle::run(objects, &gateway.listings, &clock).unwrap().ended, 0);
    assert!(objects.find("a", "k").unwrap().is_some() && objects.find("b", "k").unwrap().is_some());
    // Another one takes over at once.
    assert!(is_missing(&lab.fs().lookup(objects.home.home, b"lifecycle").unwrap_err()));
    let next = lab.gateway();
    assert_eq!(lifecycle::run(&next.objects, &next.listings, &|| now).unwrap().ended, 2);
}

fn with(asker: &Asker) -> hyper::http::Extensions {
    let mut extensions = hyper::http::Extensions::new();
    extensions.insert(asker.clone());
    extensions
}

fn key(rights: Rights) -> Asker {
    Asker { key: Some(("K".into(), rights)) }
}

#[test]
fn a_bucket_that_was_renamed_locks_nobody_out() {
    let lab = Lab::new("renamed");
    let gateway = lab.gateway();
    let (all, reader) = (key(Rights::default()), key(Rights { read_only: true, ..Rights::default() }));
    let statement = |effect: &str| {
        format!(
            r#"{{"Statement":{{"Effect":"{effect}","Principal":"*","Action":"s3:PutObject",
            "Resource":"arn:aws:s3:::b/*"}}}}"#
        )
    };
    let denied = S3ErrorCode::AccessDenied;
    lab.run(async {
        bucket(&gateway).await;
        put(&gateway, "k", b"").await.unwrap();
        put_policy(&gateway, &statement("Deny")).await.unwrap();
        lab.fs().rename((ROOT, b"b"), (ROOT, b"c"), fs::RenameMode::NoReplace).unwrap();
        // What was denied is not allowed by that.
        let on = On { bucket: "c", ..On::default() };
        for asker in [&all, &reader, &Asker::default()] {
            assert_eq!(code(gateway.permit(&with(asker), "GetObject", ("c", "k")).await), denied);
        }
        assert_eq!(code(gateway.allow(&reader, "GetBucketPolicy", &on).await), denied);
        for operation in ["GetBucketPolicy", "PutBucketPolicy", "DeleteBucketPolicy"] {
            gateway.allow(&all, operation, &on).await.unwrap();
        }
        gateway.set_policy("c".into(), None).await.unwrap();
        gateway.permit(&with(&reader), "GetObject", ("c", "k")).await.unwrap();
        // What was allowed is not any more, and nothing else.
        lab.fs().rename((ROOT, b"c"), (ROOT, b"b"), fs::RenameMode::NoReplace).unwrap();
        put_policy(&gateway, &statement("Allow")).await.unwrap();
        gateway.permit(&with(&Asker::default()), "PutObject", ("b", "k")).await.unwrap();
        lab.fs().rename((ROOT, b"b"), (ROOT, b"d"), fs::RenameMode::NoReplace).unwrap();
        gateway.permit(&with(&all), "PutObject", ("d", "k")).await.unwrap();
        assert_eq!(code(gateway.permit(&with(&Asker::default()), "PutObject", ("d", "k")).await), denied);
    });
}

#[test]
fn a_new_bucket_has_nothing_of_an_earlier_one() {
    let lab = Lab::new("earlier");
    let gateway = lab.gateway();
    lab.run(async {
        let create = || request(CreateBucketInput::builder().bucket("films".into()).build().unwrap());
        gateway.create_bucket(create()).await.unwrap();
        let policy = r#"{"Statement":{"Effect":"Allow","Principal":"*","Action":"s3:GetObject",
            "Resource":"arn:aws:s3:::films/*"}}"#;
        gateway.set_policy("films".into(), Some(policy.into())).await.unwrap();
        let nobody = with(&Asker::default());
        gateway.permit(&nobody, "GetObject", ("films", "k")).await.unwrap();
        let delete = DeleteBucketInput::builder().bucket("films".into()).build().unwrap();
        gateway.delete_bucket(request(delete)).await.unwrap();
        gateway.create_bucket(create()).await.unwrap();
        assert_eq!(code(gateway.permit(&nobody, "GetObject", ("films", "k")).await), S3ErrorCode::AccessDenied);
    });
}

#[test]
fn tags_need_their_own_right_in_all_operations() {
    let lab = Lab::new("tags");
    let gateway = lab.gateway();
    let asker = key(Rights::default());
    let denied = S3ErrorCode::AccessDenied;
    let tags = || "a=b".parse().unwrap();
    let deny = |action: &str| {
        format!(
            r#"{{"Statement":{{"Effect":"Deny","Principal":{{"AWS":"K"}},"Action":"{action}",
            "Resource":"arn:aws:s3:::b/*"}}}}"#
        )
    };
    let write = |has_tags: bool| {
        let input = PutObjectInput { body: body(b"x"), content_length: Some(1), ..put_input() };
        let mut asked = request(input);
        asked.extensions = with(&asker);
        if has_tags {
            asked.headers.insert("x-amz-tagging", tags());
        }
        gateway.put_object(asked)
    };
    let copy = |replaces: bool| {
        let source = CopySource::Bucket { bucket: "b".into(), key: "k".into(), version_id: None };
        let mut input = CopyObjectInput::builder().bucket("b".into()).key("copy".into()).copy_source(source);
        if replaces {
            input = input.tagging_directive(Some(TaggingDirective::from_static(TaggingDirective::REPLACE)));
        }
        let mut asked = request(input.build().unwrap());
        asked.extensions = with(&asker);
        asked.headers.insert("x-amz-copy-source", "b/k".parse().unwrap());
        if replaces {
            asked.headers.insert("x-amz-tagging", tags());
        }
        gateway.copy_object(asked)
    };
    let begin = |has_tags: bool| {
        let input = CreateMultipartUploadInput::builder().bucket("b".into()).key("u".into()).build().unwrap();
        let mut asked = request(input);
        asked.extensions = with(&asker);
        if has_tags {
            asked.headers.insert("x-amz-tagging", tags());
        }
        gateway.create_multipart_upload(asked)
    };
    lab.run(async {
        bucket(&gateway).await;
        write(true).await.unwrap();
        copy(true).await.unwrap();
        begin(true).await.unwrap();
        // The object has tags. Who may not read them, or write them, copies none.
        for action in ["s3:GetObjectTagging", "s3:PutObjectTagging"] {
            put_policy(&gateway, &deny(action)).await.unwrap();
            assert_eq!(code(copy(false).await), denied, "{action}");
        }
        assert_eq!(code(write(true).await), denied);
        assert_eq!(code(copy(true).await), denied);
        assert_eq!(code(begin(true).await), denied);
        begin(false).await.unwrap();
        write(false).await.unwrap();
        copy(false).await.unwrap();
    });
}

#[test]
fn who_has_no_key_learns_nothing_of_buckets_by_removing() {
    let lab = Lab::new("nobody");
    let gateway = lab.gateway();
    let key_file = crate::keys::KeyFile::make(&lab.place.join("key")).unwrap();
    let access = crate::access::Access::new(gateway.clone(), key_file);
    let denied = S3ErrorCode::AccessDenied;
    let asker = Asker::default();
    let remove = |bucket: &str, keys: &[&str]| {
        let objects = keys.iter().map(|key| identifier(key)).collect();
        let delete = Delete { objects, quiet: None };
        let input = DeleteObjectsInput::builder().bucket(bucket.into()).delete(delete).build().unwrap();
        let mut asked = request(input);
        asked.extensions = with(&asker);
        gateway.delete_objects(asked)
    };
    lab.run(async {
        bucket(&gateway).await;
        for key in ["kept", "open/gone"] {
            put(&gateway, key, b"").await.unwrap();
        }
        for bucket in ["b", "none"] {
            // Before the body is read, and when it is.
            let path = s3s::path::S3Path::bucket(bucket);
            assert_eq!(code(access.permit_path(&asker, "DeleteObjects", &path, &[]).await), denied);
            for keys in [&["kept"][..], &[]] {
                assert_eq!(code(remove(bucket, keys).await), denied);
            }
        }
        let policy = r#"{"Statement":{"Effect":"Allow","Principal":"*","Action":"s3:DeleteObject",
            "Resource":"arn:aws:s3:::b/open/*"}}"#;
        put_policy(&gateway, policy).await.unwrap();
        access.permit_path(&asker, "DeleteObjects", &s3s::path::S3Path::bucket("b"), &[]).await.unwrap();
        assert_eq!(code(remove("b", &["kept"]).await), denied);
        let answer = remove("b", &["kept", "open/gone"]).await.unwrap().output;
        assert_eq!(answer.deleted.unwrap()[0].key.as_deref(), Some("open/gone"));
        assert_eq!(answer.errors.unwrap()[0].key.as_deref(), Some("kept"));
        assert!(gateway.objects.find("b", "kept").unwrap().is_some());
    });
}
