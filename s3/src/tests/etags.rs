//! ETags that are no MD5.

use super::*;
use crate::digest::Claims;
use objects::etag::of_bytes;

async fn part(gateway: &Gateway, upload: &str, number: i32, bytes: &[u8]) -> ETag {
    let input = UploadPartInput::builder().bucket("b".into()).key("parts".into()).upload_id(upload.into());
    let mut input = input.part_number(number).build().unwrap();
    (input.body, input.content_length) = (body(bytes), Some(bytes.len() as i64));
    gateway.upload_part(request(input)).await.unwrap().output.e_tag.unwrap()
}

#[test]
fn a_tag_is_made_without_md5_where_the_client_says_none() {
    let lab = Lab::new("etags");
    let mut gateway = lab.gateway();
    gateway.etag = Kind::Blake3;
    lab.run(async {
        bucket(&gateway).await;
        for bytes in [noise(3000), noise(3 << 20)] {
            let tag = put(&gateway, "k", &bytes).await.unwrap();
            assert_eq!(tag, of_bytes(Kind::Blake3, &bytes));
            assert!(tag.ends_with("-0") && get(&gateway, "k").await.unwrap() == bytes);
            // It is one piece.
            let of_part = |number| {
                let input = HeadObjectInput::builder().bucket("b".into()).key("k".into());
                request(input.part_number(Some(number)).build().unwrap())
            };
            let head = gateway.head_object(of_part(1)).await.unwrap().output;
            assert_eq!(head.e_tag.unwrap().value(), tag);
            assert_eq!(code(gateway.head_object(of_part(2)).await), S3ErrorCode::InvalidPart);

            // What the client says is compared, and is the ETag then.
            let md5 = Claims::default().digest(Kind::Md5);
            let of = |mut digest: crate::digest::Digest, bytes: &[u8]| {
                digest.update(bytes);
                digest.finish().etag
            };
            let right = of(md5, &bytes);
            let says = |md5: &str| PutObjectInput {
                body: body(&bytes),
                content_length: Some(bytes.len() as i64),
                content_md5: Some(base64_simd::STANDARD.encode_to_string(objects::text::unhex(md5).unwrap())),
                ..put_input()
            };
            let answer = gateway.put_object(request(says(&right))).await.unwrap();
            assert_eq!(answer.output.e_tag.unwrap().value(), right);
            let wrong = "00".repeat(16);
            assert_eq!(code(gateway.put_object(request(says(&wrong))).await), S3ErrorCode::BadDigest);
            assert_eq!(gateway.objects.get("b", "k").unwrap().1.etag, right);
        }
    });
}

#[test]
fn an_upload_takes_tags_of_both_kinds() {
    let lab = Lab::new("etags-of-parts");
    let (md5, mut blake3) = (lab.gateway(), lab.gateway());
    blake3.etag = Kind::Blake3;
    lab.run(async {
        bucket(&md5).await;
        let input = CreateMultipartUploadInput::builder().bucket("b".into()).key("parts".into()).build().unwrap();
        let upload = md5.create_multipart_upload(request(input)).await.unwrap().output.upload_id.unwrap();
        let (first, second) = (noise(6 << 20), noise(100));
        let tags = [part(&blake3, &upload, 1, &first).await, part(&md5, &upload, 2, &second).await];
        assert!(tags[0].value().ends_with("-0") && !tags[1].value().contains('-'));
        let parts = tags.into_iter().zip(1..).map(|(tag, number)| CompletedPart {
            e_tag: Some(tag),
            part_number: Some(number),
            ..CompletedPart::default()
        });
        let listed = CompletedMultipartUpload { parts: Some(parts.collect()) };
        let input = CompleteMultipartUploadInput::builder().bucket("b".into()).key("parts".into()).upload_id(upload);
        let input = input.multipart_upload(Some(listed)).build().unwrap();
        let answer = md5.complete_multipart_upload(request(input)).await.unwrap();
        assert!(answer.output.e_tag.unwrap().value().ends_with("-2"));
        assert!(get(&blake3, "parts").await.unwrap() == [first, second].concat());
    });
}
