//! A mount and a store have the same bytes. The gateway's part of this is in the crate `s3`.

use crate::lab::{Lab, count, find, read, write};
use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

#[test]
fn what_comes_through_one_door_is_read_through_the_other() {
    let lab = Lab::new();
    let (fs, store) = lab.open_with_mount();
    let large: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
    let payload = large.clone();
    futures::executor::block_on(async {
        store.put(&Path::from("films/small"), "frames".into()).await.unwrap();
        store.put(&Path::from("films/large"), payload.into()).await.unwrap();
        // A key below another one: the file of that moves beside the directory.
        store.put(&Path::from("films/small/part"), "part".into()).await.unwrap();
    });
    assert_eq!(read(&fs, "films/.s3@small"), b"frames");
    assert_eq!(read(&fs, "films/small/part"), b"part");
    assert_eq!(read(&fs, "films/large"), large);
    write(&fs, find(&fs, "films").unwrap(), "mounted", &large);
    futures::executor::block_on(async {
        let bucket = store.bucket("films").await.unwrap();
        let got = bucket.get(&Path::from("mounted")).await.unwrap();
        // It is no MD5: the file was not read for it.
        assert!(got.meta.e_tag.as_ref().unwrap().ends_with("-0\""), "{:?}", got.meta);
        assert_eq!(got.bytes().await.unwrap(), large);
        let keys: Vec<_> = bucket.list(None).map_ok(|meta| meta.location.to_string()).try_collect().await.unwrap();
        assert_eq!(keys, ["large", "mounted", "small", "small/part"]);
        assert_eq!(bucket.get_range(&Path::from("mounted"), 2_999_998..5_000_000).await.unwrap(), large[2_999_998..]);
        // What the gateways keep is no object.
        let level = store.list_with_delimiter(None).await.unwrap();
        assert_eq!((level.common_prefixes, level.objects.len()), (vec![Path::from("films")], 0));
        store.delete(&Path::from("films/small/part")).await.unwrap();
        assert!(store.bucket("none").await.is_err());
    });
    assert!(find(&fs, "films/small").is_none());
    assert_eq!(count(&fs, ".weft-s3/new"), 0);
}
