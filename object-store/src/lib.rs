//! A Weft volume as an [`object_store::ObjectStore`], for DataFusion, delta-rs, Lance and other
//! programs in Rust that store objects.
//!
//! Nothing is stored another way: an object is a file, its key is the path of the file, and what S3
//! keeps of an object (ETag, content type, metadata, tags) is the same. What is put here is in a
//! mount and in `weft s3`, under the same key and with the same ETag, and the other way round.
//! There is no server between: this process codes the stripes itself, or is a client of a cluster.
//!
//! ```
//! use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, path::Path};
//! use weft_object_store::VolumeStore;
//! # let place = std::env::temp_dir().join(format!("weft-objects-doc-{}", std::process::id()));
//! # let targets: Vec<_> = (0..4).map(|number| place.join(format!("disk{number}"))).collect();
//! # targets.iter().for_each(|target| std::fs::create_dir_all(target).unwrap());
//! # let volume = place.join("volume");
//! # fs::Create::new("films", "rs:2+1", targets).run(&volume).unwrap();
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
//! # runtime.block_on(async {
//! let store = VolumeStore::open(&volume).await?;        // a directory, or "weft://HOST:PORT/NAME"
//! let path = Path::from("2024/may/film.mkv");
//! let put = store.put(&path, "frames".into()).await?;   // durable when it returns
//! assert_eq!(store.get_range(&path, 2..5).await?, "ame");
//!
//! // One of those who create an object wins, whatever door the others come through.
//! let again = store.put_opts(&path, "others".into(), PutMode::Create.into()).await;
//! assert!(matches!(again, Err(Error::AlreadyExists { .. })));
//! store.put_opts(&path, "better frames".into(), PutMode::Update(put.into()).into()).await?;
//!
//! // Stripes are shared: no data is read or written.
//! store.copy(&path, &Path::from("2024/june/film.mkv")).await?;
//! let years = store.list_with_delimiter(Some(&Path::from("2024"))).await?;
//! assert_eq!(years.common_prefixes, [Path::from("2024/june"), Path::from("2024/may")]);
//!
//! // A directory of the volume is a bucket of S3, and a store of its own.
//! let bucket = store.bucket("2024").await?;
//! assert_eq!(bucket.head(&Path::from("may/film.mkv")).await?.size, 13);
//! store.close().await?;
//! # Ok::<(), Error>(())
//! # }).unwrap();
//! # std::fs::remove_dir_all(place).unwrap();
//! ```
//!
//! All work is done on threads of this crate, so a store can be used from any runtime, and blocks
//! none of its threads. Dropping the last clone of a store waits until the volume is closed.
#![forbid(unsafe_code)]

mod attributes;
mod failure;
mod get;
mod list;
mod opened;
mod put;
mod runtime;
mod store;
mod upload;

pub use opened::{Options, VolumeStore};
