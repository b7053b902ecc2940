//! The operations of `object_store`, each a few lines.

use crate::attributes::{about, condition};
use crate::failure;
use crate::opened::VolumeStore;
use crate::runtime::blocking;
use crate::upload::Upload;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use object_store::path::Path;
use object_store::{
    CopyMode, CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, RenameTargetMode, Result,
};
use objects::copy::{To, join};
use objects::{Condition, Objects};
use std::ops::Range;

/// The most objects that are removed with one sync, and how many such are on their way.
const REMOVED: usize = 256;
const REMOVALS: usize = 4;

#[async_trait::async_trait]
impl ObjectStore for VolumeStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        let about = about(&opts.attributes, &opts.tags)?;
        self.put(location, payload, about, condition(opts.mode)?).await
    }

    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        Ok(Box::new(Upload::begin(self, location, opts).await?))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.read(location, options).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.read_ranges(location, ranges).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let store = self.clone();
        let chunks = locations.ready_chunks(REMOVED).map(move |chunk| {
            let store = store.clone();
            async move { stream::iter(store.remove(chunk).await) }
        });
        chunks.buffered(REMOVALS).flatten().boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.all(prefix, String::new())
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        self.all(prefix, offset.to_string())
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.level(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let condition = match options.mode {
            CopyMode::Overwrite => Condition::Always,
            CopyMode::Create => Condition::Absent,
        };
        let copy = |objects: &Objects, bucket: &str, (from, to): (&str, &str), condition: &Condition| {
            let (found, about, _opened) = objects.open(bucket, from)?;
            let target = To::Object { bucket, key: to, condition };
            join(objects, &[(found.file.ino, 0..found.file.size)], std::slice::from_ref(&found.file), &about, target)
                .map(drop)
        };
        self.with_two(from, to, condition, copy).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        let condition = match options.target_mode {
            RenameTargetMode::Overwrite => Condition::Always,
            RenameTargetMode::Create => Condition::Absent,
        };
        let rename = |objects: &Objects, bucket: &str, keys: (&str, &str), condition: &Condition| {
            objects.rename(bucket, keys, condition)
        };
        self.with_two(from, to, condition, rename).await
    }
}

/// The error of an operation with a source, which may be missing, and a target.
fn of_two(why: objects::Error, from: &Path, to: &Path, condition: &Condition) -> object_store::Error {
    let is_missing = why.code() == objects::Code::NoSuchKey;
    failure::of_write(why, if is_missing { from } else { to }, condition)
}

impl VolumeStore {
    /// Does something with two keys: the source, which must have an object, and the target.
    async fn with_two(
        &self,
        from: &Path,
        to: &Path,
        condition: Condition,
        work: impl FnOnce(&Objects, &str, (&str, &str), &Condition) -> objects::Result<()> + Send + 'static,
    ) -> Result<()> {
        let (objects, bucket, keys) =
            (self.volume.objects.clone(), self.bucket.clone(), (failure::key(from)?, failure::key(to)?));
        let needed = condition.clone();
        let done = blocking(move || work(&objects, &bucket, (&keys.0, &keys.1), &needed)).await;
        done.map_err(|why| of_two(why, from, to, &condition))
    }

    /// Removes objects with one sync; those that are not there are no errors. Each gets its answer.
    async fn remove(&self, locations: Vec<Result<Path>>) -> Vec<Result<Path>> {
        let (objects, bucket) = (self.volume.objects.clone(), self.bucket.clone());
        let wanted: Vec<Option<String>> =
            locations.iter().map(|location| failure::key(location.as_ref().ok()?).ok()).collect();
        let removed = blocking(move || {
            let remove = |key: &Option<String>| match key {
                Some(key) => objects.remove(&bucket, key, &Condition::Always),
                None => Ok(()),
            };
            let done: Vec<_> = wanted.iter().map(remove).collect();
            objects.settle(objects.home.root).map(|()| done)
        });
        let removed = removed.await;
        let answer = |(number, location): (usize, Result<Path>)| {
            let location = location?;
            failure::key(&location)?;
            let why = match &removed {
                Ok(done) => done.get(number).and_then(|done| done.as_ref().err()),
                Err(why) => Some(why),
            };
            why.map_or(Ok(location.clone()), |why| Err(failure::of(why.clone(), &location)))
        };
        locations.into_iter().enumerate().map(answer).collect()
    }
}
