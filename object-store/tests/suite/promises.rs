//! What the store promises besides what `object_store` tests.

use crate::lab::{Lab, count, find, read};
use futures::{StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, Error, GetOptions, MultipartUpload, ObjectStore, ObjectStoreExt, PutMode,
    PutMultipartOptions, PutOptions, TagSet,
};
use objects::about::{ATTRIBUTE, About};
use std::sync::Arc;
use weft_object_store::{Options, VolumeStore};

fn on<T>(work: impl Future<Output = T>) -> T {
    futures::executor::block_on(work)
}

#[test]
fn what_was_acknowledged_is_there_when_the_volume_is_opened_again() {
    let lab = Lab::new();
    let large = vec![7; 2 << 20];
    let (fs, store) = lab.open_with_mount();
    on(async {
        store.put(&Path::from("a/small"), "one".into()).await.unwrap();
        store.put(&Path::from("a/large"), large.clone().into()).await.unwrap();
        store.rename(&Path::from("a/small"), &Path::from("b/small")).await.unwrap();
        store.copy(&Path::from("a/large"), &Path::from("b/large")).await.unwrap();
        store.delete(&Path::from("a/large")).await.unwrap();
    });
    // As a process that is killed leaves it: nothing is committed that is not.
    fs.abandon();
    drop(store);
    // Files that were read are closed by other threads.
    while Arc::strong_count(&fs) > 1 {
        std::thread::yield_now();
    }
    drop(fs);
    let (fs, store) = lab.open_with_mount();
    assert!(find(&fs, "a").is_none());
    assert_eq!((read(&fs, "b/small"), read(&fs, "b/large")), (b"one".to_vec(), large));
    on(store.close()).unwrap();
}

#[test]
fn an_upload_that_ends_leaves_nothing() {
    let lab = Lab::new();
    let (fs, store) = lab.open_with_mount();
    let path = Path::from("a/film");
    on(async {
        for _ in 0..2 {
            let mut upload = store.put_multipart(&path).await.unwrap();
            upload.put_part(vec![1; 2 << 20].into()).await.unwrap();
            upload.put_part("end".into()).await.unwrap();
            assert!(find(&fs, ".weft-s3/uploads").is_some_and(|_| count(&fs, ".weft-s3/uploads") == 1));
            upload.abort().await.unwrap();
            assert!(upload.complete().await.is_err() && upload.abort().await.is_err());
            assert_eq!((count(&fs, ".weft-s3/uploads"), count(&fs, ".weft-s3/trash")), (0, 0));
        }
        // A part that is not stored is missing.
        let mut upload = store.put_multipart(&path).await.unwrap();
        drop(upload.put_part("part".into()));
        assert!(upload.complete().await.is_err());
        upload.abort().await.unwrap();
        assert!(matches!(store.head(&path).await, Err(Error::NotFound { .. })));
    });
    assert!(find(&fs, "a").is_none());
}

#[test]
fn what_is_kept_of_an_object_stays_with_copies_and_renames() {
    let lab = Lab::new();
    let (fs, store) = lab.open_with_mount();
    let mut tags = TagSet::default();
    tags.push("of & for", "all = some");
    let attributes =
        Attributes::from_iter([(Attribute::ContentType, "video/x"), (Attribute::Metadata("a".into()), "b")]);
    let options = || PutOptions { tags: tags.clone(), attributes: attributes.clone(), ..PutOptions::default() };
    let kept = |path: &str| -> About {
        let ino = find(&fs, path).unwrap();
        About::decode(Some(&fs.attribute(ino, ATTRIBUTE).unwrap()), &fs.attributes(ino).unwrap())
    };
    on(async {
        let put = store.put_opts(&Path::from("a"), "frames".into(), options()).await.unwrap();
        store.copy(&Path::from("a"), &Path::from("b")).await.unwrap();
        store.rename(&Path::from("a"), &Path::from("c")).await.unwrap();
        for path in ["b", "c"] {
            let got = store.get(&Path::from(path)).await.unwrap();
            assert_eq!((&got.attributes, &got.meta.e_tag), (&attributes, &put.e_tag));
            assert_eq!(kept(path).tags.get("of & for").map(String::as_str), Some("all = some"));
        }
        let options = PutMultipartOptions { tags: tags.clone(), attributes: attributes.clone(), ..Default::default() };
        let mut upload = store.put_multipart_opts(&Path::from("d"), options).await.unwrap();
        upload.put_part("frames".into()).await.unwrap();
        upload.complete().await.unwrap();
        assert_eq!((kept("d").tags.len(), &kept("d").headers["content-type"][..]), (1, "video/x"));
        // What S3 could not show is refused.
        for bad in [
            (Attribute::ContentType, "a\nb"),
            (Attribute::StorageClass, "GLACIER"),
            (Attribute::Metadata("a b".into()), "c"),
        ] {
            let options = PutOptions { attributes: Attributes::from_iter([bad]), ..PutOptions::default() };
            let refused = store.put_opts(&Path::from("e"), "x".into(), options).await;
            assert!(matches!(refused, Err(Error::NotSupported { .. })), "{refused:?}");
        }
        assert!(store.head(&Path::from("e")).await.is_err());
    });
}

#[test]
fn a_rename_takes_the_object_and_its_place_or_nothing() {
    let lab = Lab::new();
    let (_fs, store) = lab.open_with_mount();
    let [a, b, below] = ["a", "b", "a/b"].map(Path::from);
    on(async {
        store.put(&a, "a".into()).await.unwrap();
        store.put(&b, "b".into()).await.unwrap();
        let taken = store.rename_if_not_exists(&a, &b).await;
        assert!(matches!(taken, Err(Error::AlreadyExists { .. })), "{taken:?}");
        // To itself, and below itself.
        store.rename(&a, &a).await.unwrap();
        assert!(matches!(store.rename_if_not_exists(&a, &a).await, Err(Error::AlreadyExists { .. })));
        store.copy(&a, &a).await.unwrap();
        store.rename_if_not_exists(&a, &below).await.unwrap();
        assert!(matches!(store.head(&a).await, Err(Error::NotFound { .. })));
        assert_eq!(store.get(&below).await.unwrap().bytes().await.unwrap(), "a");
        store.rename(&below, &a).await.unwrap();
        assert_eq!(store.get(&a).await.unwrap().bytes().await.unwrap(), "a");
        assert_eq!(store.get(&b).await.unwrap().bytes().await.unwrap(), "b");
    });
}

#[test]
fn of_many_who_create_an_object_one_wins() {
    let lab = Lab::new();
    let (_fs, store) = lab.open_with_mount();
    on(async {
        for round in 0..8 {
            let path = Path::from(format!("log/{round}"));
            let create = |number: usize| {
                let (store, path) = (store.clone(), path.clone());
                async move {
                    if number.is_multiple_of(2) {
                        return store.put_opts(&path, "put".into(), PutMode::Create.into()).await.map(drop);
                    }
                    // As a commit that was prepared under another name.
                    let own = Path::from(format!("new/{number}"));
                    store.put(&own, "renamed".into()).await?;
                    store.rename_if_not_exists(&own, &path).await
                }
            };
            let done: Vec<_> = stream::iter(0..6).map(create).buffer_unordered(6).collect().await;
            let won = done.iter().filter(|done| done.is_ok()).count();
            let lost = done.iter().filter(|done| matches!(done, Err(Error::AlreadyExists { .. }))).count();
            assert_eq!((won, lost), (1, 5), "{done:?}");
        }
    });
}

#[test]
fn a_reader_goes_on_with_the_object_that_it_began() {
    let lab = Lab::new();
    let (_fs, store) = lab.open_with_mount();
    let path = Path::from("a");
    on(async {
        store.put(&path, vec![1; 5 << 20].into()).await.unwrap();
        let got = store.get(&path).await.unwrap();
        store.put(&path, vec![2; 5 << 20].into()).await.unwrap();
        assert!(got.bytes().await.unwrap().iter().all(|&byte| byte == 1));
        let ranges = [0..10, (5 << 20) - 1..5 << 20];
        assert_eq!(store.get_ranges(&path, &ranges).await.unwrap(), [vec![2; 10], vec![2]]);
        assert!(store.get_ranges(&path, &[0..1, 6 << 20..7 << 20]).await.is_err());
        let versions = GetOptions::new().with_version(Some("1"));
        assert!(matches!(store.get_opts(&path, versions).await, Err(Error::NotSupported { .. })));
    });
}

#[test]
fn a_listing_of_many_pages_is_in_order_and_removals_answer_in_order() {
    let lab = Lab::new();
    let (_fs, store) = lab.open_with_mount();
    on(async {
        let names: Vec<Path> = (0..2500).map(|number| Path::from(format!("a/{number:05}"))).collect();
        let put = |path: Path| {
            let store = store.clone();
            async move { store.put(&path, "x".into()).await.map(drop) }
        };
        stream::iter(names.clone()).map(put).buffer_unordered(64).try_collect::<Vec<_>>().await.unwrap();
        let listed: Vec<Path> = store.list(None).map_ok(|meta| meta.location).try_collect().await.unwrap();
        assert_eq!(listed, names);
        let level = store.list_with_delimiter(Some(&Path::from("a"))).await.unwrap();
        assert_eq!(level.objects.len(), 2500);
        let behind = store.list_with_offset(Some(&Path::from("a")), &names[1999]);
        assert_eq!(behind.try_collect::<Vec<_>>().await.unwrap().len(), 500);
        let wanted = stream::iter(names.clone()).map(Ok).boxed();
        let removed: Vec<Path> = store.delete_stream(wanted).try_collect().await.unwrap();
        assert_eq!(removed, names);
        assert!(store.list(None).next().await.is_none());
    });
}

#[test]
fn keys_that_are_no_paths_are_left_out_of_listings() {
    let lab = Lab::new();
    let (fs, store) = lab.open_with_mount();
    let objects = Arc::new(objects::Objects::with_whole(fs, "/").unwrap());
    for key in ["a//b", "a/", "a/../b", "a/c"] {
        // As an S3 client puts them.
        let about = About::default();
        let to = objects::copy::To::Object { bucket: "", key, condition: &objects::Condition::Always };
        objects::copy::join(&objects, &[], &[], &about, to).unwrap();
    }
    on(async {
        let listed: Vec<Path> = store.list(None).map_ok(|meta| meta.location).try_collect().await.unwrap();
        assert_eq!(listed, [Path::from("a/c")]);
        let level = store.list_with_delimiter(Some(&Path::from("a"))).await.unwrap();
        assert_eq!((level.objects.len(), level.common_prefixes.len()), (1, 0));
    });
}

#[test]
fn a_root_and_what_is_not_there() {
    let lab = Lab::new();
    on(async {
        let store = lab.open().await;
        store.put(&Path::from("below/a/b"), "x".into()).await.unwrap();
        assert!(store.put(&Path::ROOT, "x".into()).await.is_err());
        // It is open in this process already.
        assert!(VolumeStore::open(lab.volume()).await.is_err());
        store.close().await.unwrap();
        assert!(store.put(&Path::from("later"), "x".into()).await.is_err());
        drop(store);
        let options = || Options { root: "/below".into(), ..Options::default() };
        let store = loop {
            // What was left over is looked for by a thread that may not have let go of the volume.
            match VolumeStore::open_with(lab.volume(), options()).await {
                Err(why) if why.to_string().contains("is open") => std::thread::yield_now(),
                opened => break opened.unwrap(),
            }
        };
        assert_eq!(store.get(&Path::from("a/b")).await.unwrap().bytes().await.unwrap(), "x");
        store.close().await.unwrap();
        drop(store);
        let why = loop {
            let options = Options { root: "/none".into(), ..Options::default() };
            let why = VolumeStore::open_with(lab.volume(), options).await.unwrap_err().to_string();
            if !why.contains("is open") {
                break why;
            }
        };
        assert!(why.contains("no directory /none"), "{why}");
    });
}
