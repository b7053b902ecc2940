//! Multipart uploads: requests that are repeated, and parts that were sent more than once.

use super::*;
use fs::{SetAttributes, SetTime, Time};
use objects::multipart::{entries, find};

async fn begin(gateway: &Gateway) -> String {
    let begin = CreateMultipartUploadInput::builder().bucket("b".into()).key("k".into()).build().unwrap();
    gateway.create_multipart_upload(request(begin)).await.unwrap().output.upload_id.unwrap()
}

async fn part(gateway: &Gateway, id: &str, bytes: &'static [u8]) -> ETag {
    let part = UploadPartInput::builder().bucket("b".into()).key("k".into()).part_number(1).upload_id(id.into());
    let length = Some(bytes.len() as i64);
    let part = UploadPartInput { body: body(bytes), content_length: length, ..part.build().unwrap() };
    gateway.upload_part(request(part)).await.unwrap().output.e_tag.unwrap()
}

async fn complete(gateway: &Gateway, id: &str, tag: &ETag, is_new: bool) -> Result<ETag, S3ErrorCode> {
    let listed = CompletedPart { e_tag: Some(tag.clone()), part_number: Some(1), ..CompletedPart::default() };
    let upload = CompletedMultipartUpload { parts: Some(vec![listed]) };
    let input = CompleteMultipartUploadInput::builder().bucket("b".into()).key("k".into()).upload_id(id.into());
    let if_none_match = is_new.then_some(ETagCondition::Any);
    let input =
        CompleteMultipartUploadInput { multipart_upload: Some(upload), if_none_match, ..input.build().unwrap() };
    let done = gateway.complete_multipart_upload(request(input)).await;
    done.map(|done| done.output.e_tag.unwrap()).map_err(|why| why.code().clone())
}

/// A client repeats a request whose answer was lost.
#[test]
fn a_completion_that_is_repeated_has_the_answer_of_the_first() {
    let lab = Lab::new("repeated");
    let gateway = lab.gateway();
    lab.run(async {
        bucket(&gateway).await;
        let id = begin(&gateway).await;
        let tag = part(&gateway, &id, b"part").await;
        let first = complete(&gateway, &id, &tag, true).await.unwrap();
        for is_new in [true, false] {
            assert_eq!(complete(&gateway, &id, &tag, is_new).await, Ok(first.clone()));
        }
        // Others than its own are as before.
        put(&gateway, "k", b"other").await.unwrap();
        assert_eq!(complete(&gateway, &id, &tag, false).await, Err(S3ErrorCode::NoSuchUpload));
        let other = begin(&gateway).await;
        let tag = part(&gateway, &other, b"part").await;
        assert_eq!(complete(&gateway, &other, &tag, true).await, Err(S3ErrorCode::PreconditionFailed));
        assert!(get(&gateway, "k").await.unwrap() == b"other");
        // Of two clients that upload the same, one wins.
        let [one, two] = [begin(&gateway).await, begin(&gateway).await];
        let tag = part(&gateway, &one, b"part").await;
        assert_eq!(part(&gateway, &two, b"part").await, tag);
        complete(&gateway, &one, &tag, false).await.unwrap();
        assert_eq!(complete(&gateway, &two, &tag, true).await, Err(S3ErrorCode::PreconditionFailed));
    });
}

/// The clock of the gateway that got the first one was ahead.
#[test]
fn of_several_uploads_of_a_part_the_one_with_the_etag_counts() {
    let lab = Lab::new("resent");
    let gateway = lab.gateway();
    lab.run(async {
        bucket(&gateway).await;
        let id = begin(&gateway).await;
        let old = part(&gateway, &id, b"old").await;
        let (directory, _) = find(&gateway.objects, "b", "k", &id).unwrap();
        let ahead = entries(&gateway.objects, directory).unwrap()[0].1;
        let modified = Some(SetTime::To(Time { seconds: ahead.modified.seconds + 100, nanoseconds: 0 }));
        let change = SetAttributes { modified, ..SetAttributes::default() };
        lab.fs().set_attributes(ahead.ino, change).unwrap();
        let new = part(&gateway, &id, b"new").await;
        assert_ne!(old, new);
        complete(&gateway, &id, &new, false).await.unwrap();
        assert!(get(&gateway, "k").await.unwrap() == b"new");
    });
}

/// A mount can make them. No key of a request is as long.
#[test]
fn directories_of_any_depth_are_listed() {
    let lab = Lab::new("deep");
    let gateway = lab.gateway();
    lab.run(async {
        bucket(&gateway).await;
        put(&gateway, "z", b"").await.unwrap();
        let mut at = gateway.objects.bucket("b").unwrap().ino;
        for depth in 0..3000 {
            if depth == 100 {
                lab.fs().make(at, b"file", &objects::home::new(FileKind::File, 0o644)).unwrap();
            }
            at = lab.fs().make(at, b"d", &objects::home::new(FileKind::Directory, 0o755)).unwrap().ino;
        }
        let (listed, next) = keys(&gateway, 1000, None).await;
        assert_eq!((listed, next), (vec![format!("{}file", "d/".repeat(100)), "z".into()], None));
    });
}

#[test]
fn a_key_that_is_refused_leaves_no_directories() {
    let lab = Lab::new("refused");
    let gateway = lab.gateway();
    lab.run(async {
        bucket(&gateway).await;
        let key = format!("x/y/{}", "z".repeat(256));
        assert!(put(&gateway, &key, b"").await.is_err());
        let directory = gateway.objects.bucket("b").unwrap().ino;
        assert!(lab.fs().list(directory, 0, 10).unwrap().is_empty());
    });
}

#[test]
fn times_have_years_of_four_digits() {
    let shown = |seconds| {
        let mut text = Vec::new();
        let time = crate::get::timestamp(Time { seconds, nanoseconds: 999_999_999 });
        time.format(TimestampFormat::DateTime, &mut text).unwrap();
        String::from_utf8(text).unwrap()[..10].to_owned()
    };
    let times = [i64::MIN, -62_135_596_801, 0, 253_402_300_800, i64::MAX];
    assert_eq!(times.map(shown), ["0001-01-01", "0001-01-01", "1970-01-01", "9999-12-31", "9999-12-31"]);
}
