//! Operations on a volume in a directory, without connections.

mod bodies;
mod doors;
mod etags;
mod listing;
mod names;
mod settings;
mod uploads;

use crate::gateway::Gateway;
use fs::{Create, FileKind, FileSystem, OpenOptions, ROOT};
use futures::StreamExt;
use hyper::{HeaderMap, Method};
use objects::Objects;
use objects::etag::Kind;
use objects::home::is_missing;
use objects::sweep::sweep;
use s3s::dto::*;
use s3s::{Body, S3, S3ErrorCode, S3Request, S3Result};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::runtime::Runtime;

const MEMORY: u64 = 64 << 20;

/// A volume, which is removed at the end.
struct Lab {
    place: PathBuf,
    fs: Option<Arc<FileSystem>>,
    runtime: Runtime,
}

impl Lab {
    fn new(name: &str) -> Self {
        let place = std::env::temp_dir().join(format!("weft-s3-{name}-{}", std::process::id()));
        let targets: Vec<PathBuf> = (0..4).map(|number| place.join(format!("disk{number}"))).collect();
        targets.iter().for_each(|target| std::fs::create_dir_all(target).unwrap());
        let create = Create { stripe_bytes: Some(256 << 10), ..Create::new(name, "rs:2+1", targets) };
        create.run(&place.join("volume")).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let mut lab = Self { place, fs: None, runtime };
        lab.open();
        lab
    }

    fn open(&mut self) {
        self.fs = Some(FileSystem::open_volume(&self.place.join("volume"), OpenOptions::default()).unwrap());
    }

    fn fs(&self) -> &Arc<FileSystem> {
        self.fs.as_ref().unwrap()
    }

    fn gateway(&self) -> Gateway {
        Gateway::new(Objects::new(self.fs().clone(), "/").unwrap(), MEMORY, Kind::Md5)
    }

    fn run<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if let Some(fs) = self.fs.take() {
            let _ = fs.close_volume();
        }
        let _ = std::fs::remove_dir_all(&self.place);
    }
}

fn request<T>(input: T) -> S3Request<T> {
    S3Request {
        input,
        method: Method::GET,
        uri: "/".parse().unwrap(),
        headers: HeaderMap::new(),
        extensions: hyper::http::Extensions::new(),
        credentials: None,
        region: None,
        service: None,
        trailing_headers: None,
    }
}

fn code<T>(answer: S3Result<T>) -> S3ErrorCode {
    answer.err().expect("it is refused").code().clone()
}

fn noise(size: usize) -> Vec<u8> {
    let mut bytes = vec![0; size];
    fastrand::Rng::with_seed(size as u64).fill(&mut bytes);
    bytes
}

fn body(bytes: &[u8]) -> Option<StreamingBlob> {
    Some(StreamingBlob::from(Body::from(bytes.to_vec())))
}

async fn put(gateway: &Gateway, key: &str, bytes: &[u8]) -> S3Result<String> {
    let input = PutObjectInput {
        bucket: "b".into(),
        key: key.into(),
        body: body(bytes),
        content_length: Some(bytes.len() as i64),
        ..put_input()
    };
    Ok(gateway.put_object(request(input)).await?.output.e_tag.unwrap().into_value())
}

fn put_input() -> PutObjectInput {
    PutObjectInput::builder().bucket("b".into()).key("k".into()).build().unwrap()
}

async fn get(gateway: &Gateway, key: &str) -> S3Result<Vec<u8>> {
    let input = GetObjectInput::builder().bucket("b".into()).key(key.into()).build().unwrap();
    let mut body = gateway.get_object(request(input)).await?.output.body.unwrap();
    let mut bytes = Vec::new();
    while let Some(piece) = body.next().await {
        bytes.extend_from_slice(&piece.unwrap());
    }
    Ok(bytes)
}

async fn bucket(gateway: &Gateway) {
    let input = CreateBucketInput::builder().bucket("bucket".into()).build().unwrap();
    gateway.create_bucket(request(input)).await.unwrap();
    // Shorter names than S3 has are buckets, too.
    gateway.objects.fs.make(ROOT, b"b", &objects::home::new(FileKind::Directory, 0o755)).unwrap();
}

async fn keys(gateway: &Gateway, limit: i32, after: Option<String>) -> (Vec<String>, Option<String>) {
    let input = ListObjectsV2Input {
        bucket: "b".into(),
        max_keys: Some(limit),
        continuation_token: after,
        ..ListObjectsV2Input::builder().bucket("b".into()).build().unwrap()
    };
    let listed = gateway.list_objects_v2(request(input)).await.unwrap().output;
    let keys = listed.contents.unwrap_or_default().into_iter().filter_map(|object| object.key).collect();
    (keys, listed.next_continuation_token)
}

/// All keys and common prefixes of a listing, by pages of this many.
fn pages(
    gateway: &Gateway,
    listings: &objects::listing::Listings,
    mut question: objects::listing::Question,
    limit: usize,
) -> (Vec<String>, Vec<String>) {
    let (mut keys, mut prefixes) = (Vec::new(), Vec::new());
    loop {
        let page = listings.page(&gateway.objects, &question, limit).unwrap();
        assert!(page.keys.len() + page.prefixes.len() <= limit);
        keys.extend(page.keys.into_iter().map(|key| key.key));
        prefixes.extend(page.prefixes);
        match page.last {
            Some(last) => question.after = last,
            None => return (keys, prefixes),
        }
    }
}

#[test]
fn an_object_is_a_file_and_a_file_is_an_object() {
    let lab = Lab::new("both");
    let gateway = lab.gateway();
    lab.run(async {
        bucket(&gateway).await;
        for size in [0, 1, 5000, 1 << 20, (3 << 20) + 7] {
            let bytes = noise(size);
            put(&gateway, &format!("dir/{size}"), &bytes).await.unwrap();
            let (found, _) = gateway.objects.get("b", &format!("dir/{size}")).unwrap();
            let mut read = vec![1; size + 1];
            assert_eq!(lab.fs().read(found.file.ino, 0, &mut read).unwrap(), size);
            assert!(read[..size] == bytes && get(&gateway, &format!("dir/{size}")).await.unwrap() == bytes);
        }
        // A program changes the file: the old ETag is void, and the metadata stays.
        let tag = put(&gateway, "changed", b"before").await.unwrap();
        let (found, about) = gateway.objects.get("b", "changed").unwrap();
        assert_eq!(about.etag, tag);
        lab.fs().write(found.file.ino, 0, b"behind").unwrap();
        lab.fs().sync(found.file.ino).unwrap();
        let (_, about) = gateway.objects.get("b", "changed").unwrap();
        assert!(about.etag != tag && about.etag.ends_with("-0"));
        assert_eq!(get(&gateway, "changed").await.unwrap(), b"behind");
    });
}

#[test]
fn a_body_that_breaks_off_leaves_nothing() {
    let lab = Lab::new("broken");
    let gateway = lab.gateway();
    lab.run(async {
        bucket(&gateway).await;
        put(&gateway, "old", b"old").await.unwrap();
        for size in [1000, 3 << 20] {
            let broken = futures::stream::iter([
                Ok(bytes::Bytes::from(noise(size))),
                Err(std::io::Error::other("the client is gone")),
            ]);
            let input = PutObjectInput {
                key: "old".into(),
                body: Some(StreamingBlob::wrap(broken)),
                content_length: Some(2 * size as i64),
                ..put_input()
            };
            assert_eq!(code(gateway.put_object(request(input)).await), S3ErrorCode::IncompleteBody);
            let short = PutObjectInput {
                key: "new".into(),
                body: body(&noise(size)),
                content_length: Some(2 * size as i64),
                ..put_input()
            };
            assert_eq!(code(gateway.put_object(request(short)).await), S3ErrorCode::IncompleteBody);
        }
        assert_eq!(get(&gateway, "old").await.unwrap(), b"old");
        assert_eq!(code(get(&gateway, "new").await), S3ErrorCode::NoSuchKey);
        let home = gateway.objects.home;
        assert!(lab.fs().list(home.temporary, 0, 10).unwrap().is_empty());
    });
}

#[test]
fn of_many_writers_of_an_absent_key_one_wins() {
    let lab = Lab::new("absent");
    let gateways = [lab.gateway(), lab.gateway()];
    lab.run(async {
        bucket(&gateways[0]).await;
        // Small ones, which join batches, and large ones; through two gateways.
        for (key, size) in [("dir/small", 100), ("dir/large", 2 << 20)] {
            let writers = (0..8u8).map(|number| {
                let gateway = gateways[usize::from(number) % 2].clone();
                tokio::spawn(async move {
                    let input = PutObjectInput {
                        key: key.into(),
                        body: body(&vec![number; size]),
                        content_length: Some(size as i64),
                        if_none_match: Some(ETagCondition::Any),
                        ..put_input()
                    };
                    gateway.put_object(request(input)).await.map(|_| number)
                })
            });
            let mut winners = Vec::new();
            for writer in writers.collect::<Vec<_>>() {
                match writer.await.unwrap() {
                    Ok(number) => winners.push(number),
                    Err(why) => assert_eq!(why.code(), &S3ErrorCode::PreconditionFailed),
                }
            }
            assert_eq!(winners.len(), 1, "{key}");
            assert_eq!(get(&gateways[1], key).await.unwrap(), vec![winners[0]; size]);
        }
    });
}

#[test]
fn a_counter_by_if_match_loses_no_step() {
    let lab = Lab::new("counter");
    let gateways = [lab.gateway(), lab.gateway()];
    lab.run(async {
        bucket(&gateways[0]).await;
        put(&gateways[0], "count", b"0").await.unwrap();
        let steps = (0..4).map(|number| {
            let gateway = gateways[number % 2].clone();
            tokio::spawn(async move {
                let mut done = 0;
                while done < 5 {
                    let (_, about) = gateway.objects.get("b", "count").unwrap();
                    let Ok(read) = get(&gateway, "count").await else { continue };
                    let next = String::from_utf8(read).unwrap().parse::<u32>().unwrap() + 1;
                    let next = next.to_string().into_bytes();
                    let input = PutObjectInput {
                        key: "count".into(),
                        body: body(&next),
                        content_length: Some(next.len() as i64),
                        if_match: Some(ETagCondition::ETag(ETag::Strong(about.etag))),
                        ..put_input()
                    };
                    done += u32::from(gateway.put_object(request(input)).await.is_ok());
                }
            })
        });
        for step in steps.collect::<Vec<_>>() {
            step.await.unwrap();
        }
        assert_eq!(get(&gateways[0], "count").await.unwrap(), b"20");
    });
}

#[test]
fn a_write_whose_condition_does_not_hold_makes_no_directory() {
    let lab = Lab::new("condition");
    let gateway = lab.gateway();
    lab.run(async {
        bucket(&gateway).await;
        for size in [10, 2 << 20] {
            let input = PutObjectInput {
                key: "some/where".into(),
                body: body(&noise(size)),
                content_length: Some(size as i64),
                if_match: Some(ETagCondition::Any),
                ..put_input()
            };
            assert_eq!(code(gateway.put_object(request(input)).await), S3ErrorCode::NoSuchKey);
        }
        let directory = gateway.objects.bucket("b").unwrap().ino;
        assert!(lab.fs().list(directory, 0, 10).unwrap().is_empty());
    });
}

#[test]
fn a_reader_has_the_object_that_it_began_with() {
    let lab = Lab::new("reader");
    let gateway = lab.gateway();
    lab.run(async {
        bucket(&gateway).await;
        let (old, new) = (noise(6 << 20), noise(5 << 20));
        put(&gateway, "k", &old).await.unwrap();
        let input = GetObjectInput::builder().bucket("b".into()).key("k".into()).build().unwrap();
        let mut reading = gateway.get_object(request(input)).await.unwrap().output.body.unwrap();
        let mut read = reading.next().await.unwrap().unwrap().to_vec();
        put(&gateway, "k", &new).await.unwrap();
        while let Some(piece) = reading.next().await {
            read.extend_from_slice(&piece.unwrap());
        }
        assert!(read == old);
        assert!(get(&gateway, "k").await.unwrap() == new);
    });
}

#[test]
fn pages_go_through_directories_in_the_order_of_keys() {
    let lab = Lab::new("pages");
    let gateway = lab.gateway();
    lab.run(async {
        bucket(&gateway).await;
        let mut all: Vec<String> = (0..60).map(|n| format!("d{}/{}/{n}", n % 3, n % 5)).collect();
        all.extend(["d0", "d0-x", "d0.x", "d00", "d0/", "d1//x", "ä/ö", "d2/3"].map(String::from));
        for key in &all {
            put(&gateway, key, key.as_bytes()).await.unwrap();
        }
        all.sort();
        for limit in [1, 3, 1000] {
            let (mut seen, mut after) = (Vec::new(), None);
            loop {
                let (page, next) = keys(&gateway, limit, after).await;
                assert!(page.len() <= limit as usize);
                seen.extend(page);
                after = next;
                if after.is_none() {
                    break;
                }
            }
            assert_eq!(seen, all, "{limit}");
        }
        for key in &all {
            assert_eq!(get(&gateway, key).await.unwrap(), key.as_bytes());
            let gone = DeleteObjectInput::builder().bucket("b".into()).key(key.clone()).build().unwrap();
            gateway.delete_object(request(gone)).await.unwrap();
        }
        let directory = gateway.objects.bucket("b").unwrap().ino;
        assert!(lab.fs().list(directory, 0, 10).unwrap().is_empty(), "directories of keys go with them");
    });
}

#[test]
fn a_directory_that_does_not_fit_in_memory_is_listed_all_the_same() {
    let lab = Lab::new("large");
    let gateway = lab.gateway();
    lab.run(async {
        bucket(&gateway).await;
        let all: Vec<String> = (0..300).map(|n| format!("{:03}{}", n, if n % 7 == 0 { "/x" } else { "" })).collect();
        futures::stream::iter(&all)
            .for_each_concurrent(16, |key| async { drop(put(&gateway, key, b"").await.unwrap()) })
            .await;
        let tiny = objects::listing::Listings::by_hash(250);
        assert_eq!(pages(&gateway, &tiny, crate::reading::question("b", None, None, String::new()), 10).0, all);
    });
}

#[test]
fn what_was_acknowledged_is_there_after_a_crash_and_leftovers_go() {
    let mut lab = Lab::new("crash");
    let gateway = lab.gateway();
    let (small, large) = (noise(3000), noise(2 << 20));
    lab.run(async {
        bucket(&gateway).await;
        put(&gateway, "a/small", &small).await.unwrap();
        put(&gateway, "a/large", &large).await.unwrap();
        put(&gateway, "a/large", &small).await.unwrap();
        put(&gateway, "a/small", &large).await.unwrap();
    });
    // A gateway that was killed between the file and its name.
    let home = gateway.objects.home;
    let left = objects::whole(
        lab.fs().new_inos(1).unwrap(),
        home.temporary,
        b"left".to_vec(),
        objects::about::About::default(),
        0,
        objects::now(),
    );
    lab.fs().put_files(&[left]).unwrap();
    lab.fs().sync(home.temporary).unwrap();
    drop(gateway);
    lab.fs().abandon();
    lab.fs = None;
    lab.open();
    let gateway = lab.gateway();
    assert_eq!(sweep(&gateway.objects, true, None).unwrap(), 1);
    assert!(is_missing(&lab.fs().lookup(home.temporary, b"left").unwrap_err()));
    lab.run(async {
        assert!(get(&gateway, "a/small").await.unwrap() == large);
        assert!(get(&gateway, "a/large").await.unwrap() == small);
    });
}

#[test]
fn uploads_that_nobody_completes_expire() {
    let lab = Lab::new("expire");
    let gateway = lab.gateway();
    lab.run(async {
        bucket(&gateway).await;
        let begin = CreateMultipartUploadInput::builder().bucket("b".into()).key("k".into()).build().unwrap();
        let id = gateway.create_multipart_upload(request(begin)).await.unwrap().output.upload_id.unwrap();
        let part = UploadPartInput::builder().bucket("b".into()).key("k".into()).part_number(1).upload_id(id);
        let part = UploadPartInput { body: body(b"part"), content_length: Some(4), ..part.build().unwrap() };
        gateway.upload_part(request(part)).await.unwrap();
        sweep(&gateway.objects, false, Some(3600)).unwrap();
        assert_eq!(objects::multipart::uploads(&gateway.objects, "b").unwrap().len(), 1);
        // The beginning is as if it were long ago.
        let directory = lab.fs().list(gateway.objects.home.uploads, 0, 10).unwrap()[0].attributes.ino;
        let created = Some(fs::Time { seconds: 1000, nanoseconds: 0 });
        lab.fs().set_attributes(directory, fs::SetAttributes { created, ..fs::SetAttributes::default() }).unwrap();
        sweep(&gateway.objects, false, Some(3600)).unwrap();
        assert!(objects::multipart::uploads(&gateway.objects, "b").unwrap().is_empty());
        assert!(lab.fs().list(gateway.objects.home.trash, 0, 10).unwrap().is_empty());
    });
}

#[test]
fn access_keys_are_sealed() {
    let lab = Lab::new("keys");
    let gateway = lab.gateway();
    let files = [lab.place.join("one"), lab.place.join("two")];
    let [one, two] = files.each_ref().map(|path| crate::keys::KeyFile::make(path).unwrap());
    let keys = crate::keys::Keys::of(&gateway.objects, &one);
    let rights = crate::keys::Rights { read_only: true, buckets: vec!["b".into()], ..Default::default() };
    let (id, secret) = keys.add(rights.clone()).unwrap();
    assert_eq!(keys.secret(&id).unwrap(), Some((secret.clone(), rights.clone())));
    assert!(crate::keys::Keys::of(&gateway.objects, &two).secret(&id).is_err(), "another file does not open it");
    let rotated = keys.rotate(&id).unwrap();
    assert!(rotated != secret && keys.secret(&id).unwrap() == Some((rotated.clone(), rights)));
    // Neither the secret nor more rights can be put in by hand.
    let found = lab.fs().lookup(gateway.objects.home.keys, id.as_bytes()).unwrap();
    let mut stored = vec![0; found.size as usize];
    lab.fs().read(found.ino, 0, &mut stored).unwrap();
    let stored = String::from_utf8(stored).unwrap();
    assert!(!stored.contains(&rotated));
    let more = stored.replace("\"read_only\":true", "\"read_only\":null").replace("null", "false");
    lab.fs().write(found.ino, 0, more.as_bytes()).unwrap();
    assert!(keys.secret(&id).is_err());
    keys.remove(&id).unwrap();
    assert_eq!(keys.secret(&id).unwrap(), None);
    assert!(keys.secret("../uploads").unwrap().is_none());
}
