//! The library for programs in Rust, and this gateway, have the same objects.

use super::*;
use object_store::path::Path;
use object_store::{Attribute, Attributes, ObjectStore, ObjectStoreExt, PutOptions, TagSet};
use s3s::S3Response;
use weft_object_store::VolumeStore;

async fn fetched(gateway: &Gateway, key: &str) -> (S3Response<GetObjectOutput>, Vec<u8>) {
    let input = GetObjectInput::builder().bucket("b".into()).key(key.into()).build().unwrap();
    let mut shown = gateway.get_object(request(input)).await.unwrap();
    let mut bytes = Vec::new();
    let mut body = shown.output.body.take().unwrap();
    while let Some(piece) = body.next().await {
        bytes.extend_from_slice(&piece.unwrap());
    }
    (shown, bytes)
}

#[test]
fn a_store_of_rust_has_the_same_objects() {
    let lab = Lab::new("doors");
    let gateway = lab.gateway();
    let store = VolumeStore::of_volume(lab.fs().clone(), "/").unwrap();
    let (small, large) = (noise(3000), noise(3 << 20));
    lab.run(async {
        bucket(&gateway).await;
        let store = store.bucket("b").await.unwrap();
        let mut tags = TagSet::default();
        tags.push("of", "both");
        let attributes =
            Attributes::from_iter([(Attribute::ContentType, "video/x"), (Attribute::Metadata("by".into()), "rust")]);
        for bytes in [&small, &large] {
            let path = Path::from("a/rust");
            let options = PutOptions { tags: tags.clone(), attributes: attributes.clone(), ..PutOptions::default() };
            let put = store.put_opts(&path, bytes.clone().into(), options).await.unwrap();
            let (shown, got) = fetched(&gateway, "a/rust").await;
            assert!(got == *bytes);
            assert_eq!(shown.output.e_tag.as_ref().map(|tag| format!("\"{}\"", tag.value())), put.e_tag);
            assert_eq!(shown.headers["content-type"], "video/x");
            assert_eq!(shown.output.metadata.unwrap()["by"], "rust");
            assert_eq!(shown.output.tag_count, Some(1));
        }
        // In parts: the ETag is that of parts.
        let mut upload = store.put_multipart(&Path::from("parts")).await.unwrap();
        upload.put_part(large.clone().into()).await.unwrap();
        upload.put_part(small.clone().into()).await.unwrap();
        let put = upload.complete().await.unwrap();
        let (shown, got) = fetched(&gateway, "parts").await;
        assert!(got == [&large[..], &small].concat() && put.e_tag.as_ref().unwrap().ends_with("-2\""));
        assert_eq!(shown.output.e_tag.map(|tag| format!("\"{}\"", tag.value())), put.e_tag);

        for bytes in [&small, &large] {
            super::put(&gateway, "a/gateway", bytes).await.unwrap();
            let got = store.get(&Path::from("a/gateway")).await.unwrap();
            let head = HeadObjectInput::builder().bucket("b".into()).key("a/gateway".into()).build().unwrap();
            let head = gateway.head_object(request(head)).await.unwrap().output;
            assert_eq!(head.e_tag.map(|tag| format!("\"{}\"", tag.value())), got.meta.e_tag);
            assert!(got.bytes().await.unwrap() == *bytes);
        }
        // One of both creates a key.
        let created = store.put_opts(&Path::from("a/gateway"), "x".into(), object_store::PutMode::Create.into()).await;
        assert!(matches!(created, Err(object_store::Error::AlreadyExists { .. })));
    });
}
