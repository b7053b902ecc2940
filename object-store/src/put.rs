//! Payloads become objects and parts of uploads.

use crate::failure;
use crate::opened::{Volume, VolumeStore};
use crate::runtime::{blocking, run};
use bytes::Bytes;
use object_store::path::Path;
use object_store::{PutPayload, PutPayloadIntoIter, PutResult, Result};
use objects::etag::{self, Hash, Kind};
use objects::store::{SMALL, Source, Target, put_small, write};
use objects::{About, Condition, Error};
use std::sync::Arc;

/// Programs that use the crate object_store compare ETags with each other, not with bytes.
const ETAG: Kind = Kind::Blake3;

impl VolumeStore {
    /// Stores an object, and returns when it is durable.
    pub(crate) async fn put(
        &self,
        location: &Path,
        payload: PutPayload,
        about: About,
        condition: Condition,
    ) -> Result<PutResult> {
        let (bucket, key) = (self.bucket.to_string(), failure::key(location)?);
        let target = Target::Object { bucket, key, condition: condition.clone() };
        let stored = self.volume.store(target, payload, about).await;
        stored.map(|about| result(&about)).map_err(|why| failure::of_write(why, location, &condition))
    }
}

/// The answer to a write.
pub fn result(about: &About) -> PutResult {
    let e_tag = Some(crate::attributes::e_tag(about));
    PutResult { e_tag, version: None, extensions: object_store::Extensions::default() }
}

impl Volume {
    /// Stores a payload, and returns what is kept of it when it is durable.
    pub async fn store(self: &Arc<Self>, target: Target, payload: PutPayload, about: About) -> objects::Result<About> {
        let volume = self.clone();
        let length = payload.content_length() as u64;
        if length <= SMALL {
            return run(async move {
                let data = Bytes::from(payload);
                let about = About { etag: etag::of_bytes(ETAG, &data), ..about };
                put_small(&volume.objects, &volume.batches, target, &about, &data).await?;
                Ok(about)
            })
            .await;
        }
        run(async move {
            let _place = volume.large.clone().acquire_owned().await;
            let chunks = Chunks { rest: payload.into_iter(), hash: Hash::new(ETAG), about };
            let objects = volume.objects.clone();
            blocking(move || write(&objects, &target, Some(length), chunks)).await
        })
        .await
        .map(|(about, _)| about)
    }
}

/// A payload, piece by piece, and what it is.
struct Chunks {
    rest: PutPayloadIntoIter,
    hash: Hash,
    about: About,
}

impl Source for Chunks {
    type Failure = Error;

    fn next(&mut self) -> objects::Result<Option<Bytes>> {
        let piece = self.rest.next();
        if let Some(piece) = &piece {
            self.hash.update(piece);
        }
        Ok(piece)
    }

    fn about(self) -> objects::Result<About> {
        Ok(About { etag: self.hash.etag(), ..self.about })
    }
}
