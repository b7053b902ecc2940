//! Uploads in parts. A part is stripes of its own; completion shares them and copies nothing.

use crate::attributes::about;
use crate::failure::{self, generic};
use crate::opened::VolumeStore;
use crate::put::result;
use crate::runtime::{blocking, runtime};
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{MultipartId, MultipartUpload, PutMultipartOptions, PutPayload, PutResult, Result, UploadPart};
use objects::multipart::{self, MAX_PARTS};
use objects::store::Target;
use objects::{About, Condition, sweep};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The number of a part, counted from 0, as S3 counts it.
fn number(index: usize) -> Result<i32> {
    let number = i32::try_from(index).ok().map(|index| index.saturating_add(1)).filter(|number| *number <= MAX_PARTS);
    number.ok_or_else(|| failure::unsupported(format!("an upload has {MAX_PARTS} parts at most")))
}

impl VolumeStore {
    /// Begins an upload, and returns its id.
    async fn begin(&self, location: &Path, options: PutMultipartOptions) -> Result<String> {
        let (objects, bucket, key) = (self.volume.objects.clone(), self.bucket.clone(), failure::key(location)?);
        let about = about(&options.attributes, &options.tags)?;
        let begun = blocking(move || multipart::begin(&objects, &bucket, &key, about, None)).await;
        begun.map_err(|why| failure::of(why, location))
    }

    /// Stores a part, and returns its ETag when it is durable.
    async fn part(&self, location: &Path, id: &str, index: usize, data: PutPayload) -> Result<String> {
        let number = number(index)?;
        let (objects, bucket, key) = (self.volume.objects.clone(), self.bucket.clone(), failure::key(location)?);
        let id = id.to_owned();
        let target = blocking(move || {
            let (parent, _) = multipart::find(&objects, &bucket, &key, &id)?;
            Ok(Target::File { parent, name: multipart::part_name(&objects, number) })
        });
        let target = target.await.map_err(|why| failure::of(why, location))?;
        let stored = self.volume.store(target, data, About::default()).await;
        Ok(stored.map_err(|why| failure::of(why, location))?.etag)
    }

    /// Makes the object of all parts, by number and ETag.
    async fn complete(&self, location: &Path, id: &str, parts: Vec<(i32, String)>) -> Result<PutResult> {
        let (objects, bucket, key) = (self.volume.objects.clone(), self.bucket.clone(), failure::key(location)?);
        let id = id.to_owned();
        let completed = if parts.is_empty() {
            // S3 has no such upload.
            let asked = (objects.clone(), bucket, key, id.clone());
            let upload = blocking(move || multipart::find(&asked.0, &asked.1, &asked.2, &asked.3)).await;
            let (_, upload) = upload.map_err(|why| failure::of(why, location))?;
            let put = self.put(location, PutPayload::default(), upload.about, Condition::Always).await?;
            blocking(move || multipart::drop_upload(&objects, &id)).await.map(|()| put)
        } else {
            let complete = move || {
                let none = |_: &_, _: &[_]| Ok(BTreeMap::new());
                multipart::complete(&objects, (&bucket, &key, &id), &parts, &Condition::Always, none)
            };
            blocking(complete).await.map(|about| result(&about))
        };
        self.volume.sweep_soon();
        completed.map_err(|why| failure::of(why, location))
    }

    /// Gives an upload up, with its parts.
    async fn abort(&self, location: &Path, id: &str) -> Result<()> {
        let (objects, id) = (self.volume.objects.clone(), id.to_owned());
        let dropped = blocking(move || {
            multipart::drop_upload(&objects, &id)?;
            sweep::empty_trash(&objects).map_err(objects::answer)
        });
        dropped.await.map(drop).map_err(|why| failure::of(why, location))
    }
}

/// An upload of an object in parts.
#[derive(Debug)]
pub(crate) struct Upload {
    store: VolumeStore,
    location: Path,
    /// None when it was completed or given up.
    id: Option<String>,
    /// How many parts there are.
    count: usize,
    /// The ETags of those that are stored, by number.
    stored: Arc<Mutex<BTreeMap<i32, String>>>,
}

impl Upload {
    /// Begins one.
    pub async fn begin(store: &VolumeStore, location: &Path, options: PutMultipartOptions) -> Result<Self> {
        let id = Some(store.begin(location, options).await?);
        Ok(Self { store: store.clone(), location: location.clone(), id, count: 0, stored: Arc::default() })
    }

    fn id(&self) -> Result<String> {
        self.id.clone().ok_or_else(|| generic("the upload has ended"))
    }
}

#[async_trait::async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let (store, location, id) = (self.store.clone(), self.location.clone(), self.id());
        let (index, stored) = (self.count, self.stored.clone());
        self.count += 1;
        Box::pin(async move {
            let etag = store.part(&location, &id?, index, data).await?;
            stored.lock().unwrap_or_else(PoisonError::into_inner).insert(number(index)?, etag);
            Ok(())
        })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let id = self.id()?;
        let parts = self.stored.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if parts.len() < self.count {
            return Err(generic("not all parts of the upload are stored"));
        }
        let completed = self.store.complete(&self.location, &id, parts.into_iter().collect()).await?;
        self.id = None;
        Ok(completed)
    }

    async fn abort(&mut self) -> Result<()> {
        let id = self.id()?;
        self.store.abort(&self.location, &id).await?;
        self.id = None;
        Ok(())
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        let Some(id) = self.id.take() else { return };
        let volume = self.store.volume.clone();
        // What is left of it goes with a gateway's uploads that nobody completes.
        drop(runtime().spawn_blocking(move || {
            if multipart::drop_upload(&volume.objects, &id).is_ok() {
                volume.sweep_soon();
            }
        }));
    }
}

#[async_trait::async_trait]
impl MultipartStore for VolumeStore {
    async fn create_multipart(&self, path: &Path) -> Result<MultipartId> {
        self.begin(path, PutMultipartOptions::default()).await
    }

    async fn create_multipart_opts(&self, path: &Path, opts: PutMultipartOptions) -> Result<MultipartId> {
        self.begin(path, opts).await
    }

    async fn put_part(&self, path: &Path, id: &MultipartId, part_idx: usize, data: PutPayload) -> Result<PartId> {
        Ok(PartId { content_id: self.part(path, id, part_idx, data).await? })
    }

    async fn complete_multipart(&self, path: &Path, id: &MultipartId, parts: Vec<PartId>) -> Result<PutResult> {
        let numbered = parts.into_iter().enumerate();
        let parts: Result<Vec<_>> = numbered.map(|(index, part)| Ok((number(index)?, part.content_id))).collect();
        self.complete(path, id, parts?).await
    }

    async fn abort_multipart(&self, path: &Path, id: &MultipartId) -> Result<()> {
        self.abort(path, id).await
    }
}
