//! Objects become bytes. A file that is being read is open: if it is replaced meanwhile, the reader
//! has the old one to its end.

use crate::attributes::{attributes, meta};
use crate::failure::{self, generic};
use crate::opened::VolumeStore;
use crate::runtime::{blocking, runtime};
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use object_store::path::Path;
use object_store::{
    Extensions, GetOptions, GetRange, GetResult, GetResultPayload, OBJECT_STORE_COALESCE_DEFAULT, Result,
    coalesce_ranges,
};
use objects::{About, Error, Found, Opened, failure::failed};
use std::ops::Range;
use std::sync::Arc;

/// How much is read at a time, in bytes.
const PIECE: u64 = 1 << 20;
/// Pieces that are read at a time, ahead of the reader.
const AHEAD: usize = 2;

/// An open file. It is closed on the store's threads, as that may ask a server.
struct Held(Option<Opened>);

impl Drop for Held {
    fn drop(&mut self) {
        let _here = runtime().enter();
        drop(self.0.take());
    }
}

impl Held {
    /// Reads a range, which the file has.
    fn read(&self, range: &Range<u64>) -> objects::Result<Bytes> {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        let Some(opened) = &self.0 else { return Ok(Bytes::new()) };
        let length = opened.fs.read(opened.ino, range.start, &mut bytes).map_err(|why| failed(&why))?;
        if length < bytes.len() {
            let why = "the file became shorter while it was read";
            return Err(Error::with_message(objects::Code::ServiceUnavailable, why));
        }
        Ok(Bytes::from(bytes))
    }
}

impl VolumeStore {
    async fn held(&self, location: &Path) -> Result<(Found, About, Arc<Held>)> {
        let (objects, bucket, key) = (self.volume.objects.clone(), self.bucket.clone(), failure::key(location)?);
        let opened = blocking(move || {
            let (found, about, opened) = objects.open(&bucket, &key)?;
            Ok((found, about, Arc::new(Held(Some(opened)))))
        });
        opened.await.map_err(|why| failure::of(why, location))
    }

    /// An object, or a range of it.
    pub(crate) async fn read(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        if options.version.is_some() {
            return Err(failure::unsupported("objects have no versions"));
        }
        let (found, about, held) = self.held(location).await?;
        let meta = meta(location.clone(), &found.file, &about);
        options.check_preconditions(&meta)?;
        let range = match &options.range {
            Some(range) => range.as_range(meta.size).map_err(generic)?,
            None => 0..meta.size,
        };
        let bytes = if options.head { stream::empty().boxed() } else { bytes(held, range.clone(), location.clone()) };
        let (payload, attributes) = (GetResultPayload::Stream(bytes), attributes(&about));
        Ok(GetResult { payload, meta, range, attributes, extensions: Extensions::default() })
    }

    /// Several ranges of an object, of one state of it. Ranges that are near each other are read as
    /// one.
    pub(crate) async fn read_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let (found, _, held) = self.held(location).await?;
        let size = found.file.size;
        let read = |range: Range<u64>| {
            let held = held.clone();
            async move {
                let range = GetRange::Bounded(range).as_range(size).map_err(generic)?;
                blocking(move || held.read(&range)).await.map_err(|why| failure::of(why, location))
            }
        };
        coalesce_ranges(ranges, read, OBJECT_STORE_COALESCE_DEFAULT).await
    }
}

/// The bytes of a range of an open file.
fn bytes(held: Arc<Held>, range: Range<u64>, location: Path) -> BoxStream<'static, Result<Bytes>> {
    let end = range.end;
    let pieces = range.step_by(PIECE as usize).map(move |start| {
        let (held, location, piece) = (held.clone(), location.clone(), start..end.min(start + PIECE));
        async move { blocking(move || held.read(&piece)).await.map_err(|why| failure::of(why, &location)) }
    });
    stream::iter(pieces).buffered(AHEAD).boxed()
}
