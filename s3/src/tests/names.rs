//! Keys with two names, refusals, and what reads see while others write.

use super::*;
use crate::get::Content;
use objects::about::About;
use objects::copy::{To, join};
use objects::{Condition, now, whole};

/// A file of its own under a name, past all checks.
fn place(gateway: &Gateway, parent: fs::Ino, name: &[u8]) -> fs::Ino {
    let fs = &gateway.objects.fs;
    let ino = fs.new_inos(1).unwrap();
    assert!(fs.put_files(&[whole(ino, parent, name.to_vec(), About::default(), 0, now())]).unwrap().is_empty());
    ino
}

async fn copy(gateway: &Gateway, from: &str, header: (&'static str, &str)) -> S3Result<()> {
    let parsed = CopySource::Bucket { bucket: "b".into(), key: "none".into(), version_id: None };
    let input = CopyObjectInput::builder().bucket("b".into()).key("to".into()).copy_source(parsed).build().unwrap();
    let mut asked = request(input);
    asked.headers.insert("x-amz-copy-source", from.parse().unwrap());
    asked.headers.insert(header.0, header.1.parse().unwrap());
    gateway.copy_object(asked).await.map(drop)
}

#[test]
fn a_copy_is_of_the_key_that_is_said_and_has_conditions() {
    let lab = Lab::new("copy");
    let gateway = lab.gateway();
    lab.run(async {
        bucket(&gateway).await;
        put(&gateway, "a", b"wrong").await.unwrap();
        let tag = put(&gateway, "a?b", b"right").await.unwrap();
        copy(&gateway, "b/a%3Fb", ("if-none-match", "*")).await.unwrap();
        assert_eq!(get(&gateway, "to").await.unwrap(), b"right");
        assert_eq!(code(copy(&gateway, "b/a", ("if-none-match", "*")).await), S3ErrorCode::PreconditionFailed);
        assert_eq!(code(copy(&gateway, "b/a", ("if-match", "\"0\"")).await), S3ErrorCode::PreconditionFailed);
        copy(&gateway, "b/a", ("if-match", &format!("\"{tag}\""))).await.unwrap();
        assert_eq!(get(&gateway, "to").await.unwrap(), b"wrong");
    });
}

#[test]
fn a_key_with_two_files_loses_both_and_gets_one() {
    let lab = Lab::new("two");
    let gateway = lab.gateway();
    lab.run(async {
        bucket(&gateway).await;
        let (objects, fs) = (&gateway.objects, lab.fs());
        let parent = objects.bucket("b").unwrap().ino;
        put(&gateway, "a", b"first").await.unwrap();
        // A writer that saw a directory `a`, which went since.
        let own = place(&gateway, parent, b".s3@a");
        assert!(!objects.alone(parent, "a", own, Some(b"kept")).unwrap());
        assert!(is_missing(&fs.lookup(parent, b".s3@a").unwrap_err()));
        assert_eq!(fs.lookup(objects.home.temporary, b"kept").unwrap().ino, own);
        assert_eq!(objects.find("b", "a").unwrap().unwrap().name, b"a");
        // One who has been replaced meanwhile has won all the same.
        let other = place(&gateway, parent, b".s3@a");
        assert!(objects.alone(parent, "a", own, None).unwrap());
        // The one that stays behind does not come back when the other goes.
        objects.remove("b", "a", &Condition::Always).unwrap();
        assert_eq!(code(get(&gateway, "a").await), S3ErrorCode::NoSuchKey);
        assert!(fs.attributes(other).is_err() && fs.list(parent, 0, 10).unwrap().is_empty());
        // A new key below one with two files: the plain one counts.
        let (plain, _) = (place(&gateway, parent, b"a"), place(&gateway, parent, b".s3@a"));
        put(&gateway, "a/b", b"").await.unwrap();
        assert_eq!(objects.find("b", "a").unwrap().unwrap().file.ino, plain);
        assert_eq!(keys(&gateway, 10, None).await.0, ["a", "a/b"]);
    });
}

#[test]
fn directories_come_and_go_under_writers() {
    let lab = Lab::new("pruned");
    let gateways = [lab.gateway(), lab.gateway()];
    lab.run(async {
        bucket(&gateways[0]).await;
        let workers = (0..6usize).map(|number| {
            let gateway = gateways[number % 2].clone();
            tokio::spawn(async move {
                let key = ["x/a/b", "x/a", "x/a/b/c"][number % 3];
                for _ in 0..12 {
                    put(&gateway, key, b"1").await.unwrap();
                    gateway.objects.remove("b", key, &Condition::Always).unwrap();
                }
            })
        });
        for worker in workers.collect::<Vec<_>>() {
            worker.await.unwrap();
        }
        let parent = gateways[0].objects.bucket("b").unwrap().ino;
        assert!(keys(&gateways[0], 10, None).await.0.is_empty());
        assert!(lab.fs().list(parent, 0, 10).unwrap().is_empty());
    });
}

#[test]
fn an_object_that_is_replaced_is_there_all_the_time() {
    let lab = Lab::new("replaced");
    let gateway = lab.gateway();
    lab.run(async {
        bucket(&gateway).await;
        put(&gateway, "k", b"old").await.unwrap();
        let (found, about, opened) = gateway.objects.open("b", "k").unwrap();
        put(&gateway, "k", b"new").await.unwrap();
        // What was opened goes on: for a reader, and for a copy.
        let mut bytes = gateway.bytes(Content::Open(opened), 0..3).await.unwrap();
        assert_eq!(bytes.next().await.unwrap().unwrap(), &b"old"[..]);
        let to = To::Object { bucket: "b", key: "copy", condition: &Condition::Always };
        let (source, of) = ([(found.file.ino, 0..3)], [found.file]);
        assert_eq!(join(&gateway.objects, &source, &of, &about, to).unwrap(), 3);
        // It is not what the checksums are of any more.
        gateway.objects.fs.write(source[0].0, 0, b"now").unwrap();
        let to = To::Object { bucket: "b", key: "changed", condition: &Condition::Always };
        let refused = join(&gateway.objects, &source, &of, &about, to).unwrap_err();
        assert_eq!(refused.code(), objects::Code::OperationAborted);
        drop(bytes);
        assert_eq!(get(&gateway, "copy").await.unwrap(), b"old");
        let writer = gateway.clone();
        let writing = tokio::spawn(async move {
            for number in 0..60u8 {
                put(&writer, "k", &[number; 100]).await.unwrap();
            }
        });
        while !writing.is_finished() {
            let input = GetObjectInput::builder().bucket("b".into()).key("k".into()).build().unwrap();
            let found = gateway.get_object(request(input)).await.unwrap().output;
            assert!(!found.e_tag.unwrap().value().ends_with("-0"), "it has the ETag that it was put with");
        }
        writing.await.unwrap();
    });
}

#[test]
fn what_cannot_be_is_refused_alone() {
    let lab = Lab::new("refused");
    let gateway = lab.gateway();
    lab.run(async {
        bucket(&gateway).await;
        // Headers without end would fail the batch of others.
        let mut asked = request(PutObjectInput { body: body(b"x"), content_length: Some(1), ..put_input() });
        asked.headers.insert("content-disposition", "x".repeat(9000).parse().unwrap());
        assert_eq!(code(gateway.put_object(asked).await), S3ErrorCode::MetadataTooLarge);
        // Of nothing there is no range.
        put(&gateway, "empty", b"").await.unwrap();
        let ranges = [Range::Suffix { length: 5 }, Range::Int { first: 0, last: None }];
        for range in ranges {
            let input = GetObjectInput::builder().bucket("b".into()).key("empty".into()).range(Some(range));
            let asked = request(input.build().unwrap());
            assert_eq!(code(gateway.get_object(asked).await), S3ErrorCode::InvalidRange);
        }
        // An upload that is given up while one of its parts is on the way.
        let begin = CreateMultipartUploadInput::builder().bucket("b".into()).key("k".into()).build().unwrap();
        let id = gateway.create_multipart_upload(request(begin)).await.unwrap().output.upload_id.unwrap();
        put(&gateway, "ten", b"0123456789").await.unwrap();
        for (range, expected) in [("bytes=5-99999", Some(S3ErrorCode::InvalidRange)), ("bytes=5-9", None)] {
            let parsed = CopySource::Bucket { bucket: "b".into(), key: "ten".into(), version_id: None };
            let input = UploadPartCopyInput::builder().bucket("b".into()).key("k".into()).copy_source(parsed);
            let input = input.upload_id(id.clone()).part_number(1).copy_source_range(Some(range.into()));
            let mut asked = request(input.build().unwrap());
            asked.headers.insert("x-amz-copy-source", "b/ten".parse().unwrap());
            let copied = gateway.upload_part_copy(asked).await;
            assert_eq!(copied.err().map(|why| why.code().clone()), expected);
        }
        let (target, _) = gateway.part("b".into(), "k".into(), id.clone(), 1).await.unwrap();
        objects::multipart::drop_upload(&gateway.objects, &id).unwrap();
        sweep(&gateway.objects, false, None).unwrap();
        let claims = crate::digest::Claims::new(&HeaderMap::new(), None, None, None);
        let part = crate::put::Put { target, about: About::default(), claims, length: Some(4) };
        assert_eq!(code(gateway.store(part, body(b"part")).await), S3ErrorCode::NoSuchUpload);
    });
}

#[test]
fn a_listing_that_does_not_fit_leaves_out_no_short_key() {
    let lab = Lab::new("short");
    let gateway = lab.gateway();
    lab.run(async {
        bucket(&gateway).await;
        // An entry that is small enough for the room of one that was left out, and behind it.
        let long = |n: usize| "y".repeat(if n.is_multiple_of(3) { 200 } else { 0 });
        let all: Vec<String> = (0..300).map(|n| format!("{n:03}{}", long(n))).collect();
        futures::stream::iter(&all)
            .for_each_concurrent(16, |key| async { drop(put(&gateway, key, b"").await.unwrap()) })
            .await;
        let directory = gateway.objects.bucket("b").unwrap().ino;
        // Seen from each entry: what is kept has no gap.
        let (mut seen, mut next) = (Vec::new(), Some(Vec::new()));
        while let Some(from) = next {
            let level = objects::level::read_whole(&gateway.objects, directory, &from, 2, 3000).unwrap();
            seen.extend(level.entries.into_iter().map(|entry| entry.part));
            next = level.next;
        }
        assert!(seen == all, "{} of {}", seen.len(), all.len());
        // Nor is a directory shown that has the name of an object beside one.
        lab.fs().make(directory, b".s3@d", &objects::home::new(FileKind::Directory, 0o755)).unwrap();
        lab.fs().make(directory, b".weft-s3", &objects::home::new(FileKind::Directory, 0o755)).unwrap();
        put(&gateway, ".weft-s3/x", b"").await.unwrap();
        let whole = objects::level::read_whole(&gateway.objects, directory, b"", 2, u64::MAX).unwrap();
        for level in [objects::level::read(&gateway.objects, directory, b"", 1000).unwrap().unwrap(), whole] {
            let shown: Vec<&str> = level.entries.iter().map(|entry| &*entry.part).collect();
            assert!(shown.contains(&".weft-s3/") && !shown.contains(&"d/"));
        }
        assert!(lab.fs().lookup(directory, b".s3=.weft-s3").is_ok());
    });
}

#[test]
fn a_request_says_its_headers_before_the_object_does() {
    let about = About { headers: [("content-type".to_owned(), "text/x".to_owned())].into(), ..About::default() };
    let of = |uri: &str| crate::headers::of_object(&about, &uri.parse().unwrap())["content-type"].clone();
    assert_eq!(of("/b/k"), "text/x");
    assert_eq!(of("/b/k?response-content-type=text%2Fy"), "text/y");
}
