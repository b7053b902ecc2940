//! Stores: an open volume, and the part of it whose keys they have.

use crate::failure;
use crate::runtime::{blocking, runtime};
use fs::{FileSystem, OpenOptions};
use object_store::Error;
use objects::batch::Batches;
use objects::listing::Listings;
use objects::{Objects, sweep};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use tokio::sync::Semaphore;

/// How many large objects are written at a time. Each takes two stripes of memory.
const LARGE: usize = 16;
/// What the entries of a directory may take in memory while it is listed, in bytes, where the
/// metadata does not list it in order.
const LISTING_MEMORY: u64 = 16 << 20;

/// How a volume is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// The directory of the volume in which keys begin: `--root` of `weft s3`. It must be there.
    /// Default: `/`.
    pub root: String,
    /// The certificate to show to servers, `DIR/NAME`. All stores of a process show the same one.
    pub identity: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self { root: "/".into(), identity: None }
    }
}

/// A volume of Weft as an [`object_store::ObjectStore`]: see the [crate].
///
/// A clone is the same store. The last one that is dropped closes the volume, and waits for that;
/// [`VolumeStore::close`] tells of errors.
#[derive(Clone)]
pub struct VolumeStore {
    pub(crate) volume: Arc<Volume>,
    /// The directory of all keys, below the root; empty: the root itself.
    pub(crate) bucket: Arc<str>,
}

/// What all stores of a volume share.
pub(crate) struct Volume {
    pub objects: Arc<Objects>,
    pub batches: Arc<Batches>,
    pub listings: Arc<Listings>,
    /// Places of large objects that are written.
    pub large: Arc<Semaphore>,
    /// Held by the thread that removes what is left over.
    sweeping: Mutex<()>,
    place: String,
}

impl Volume {
    /// Removes what is left of uploads, without anybody waiting for it.
    pub fn sweep_soon(self: &Arc<Self>) {
        let volume = self.clone();
        drop(runtime().spawn_blocking(move || {
            // What another one has passed by, and what fails, is left to the next.
            if let Ok(_one_at_a_time) = volume.sweeping.try_lock() {
                let _ = sweep::empty_trash(&volume.objects);
            }
        }));
    }
}

impl VolumeStore {
    /// Opens a volume: its directory, or `weft://HOST:PORT/NAME` of a cluster. All files of it are
    /// objects, and keys are their paths.
    ///
    /// # Errors
    /// When the volume cannot be opened: one in a directory is open in one process at a time.
    pub async fn open(place: impl AsRef<Path>) -> Result<Self, Error> {
        Self::open_with(place, Options::default()).await
    }

    /// The same, with options.
    ///
    /// # Errors
    /// As [`VolumeStore::open`]; when the root is not there.
    pub async fn open_with(place: impl AsRef<Path>, options: Options) -> Result<Self, Error> {
        let place = place.as_ref().to_owned();
        let opened = blocking(move || Ok(open(&place, &options))).await;
        let store = opened.map_err(failure::generic)?.map_err(failure::generic)?;
        // Of processes that were killed.
        let (volume, is_alone) = (store.volume.clone(), !store.volume.objects.fs.is_shared());
        drop(runtime().spawn_blocking(move || _ = sweep::sweep(&volume.objects, is_alone, None)));
        Ok(store)
    }

    /// The files below a directory of a volume that this program has open already. It blocks.
    ///
    /// # Errors
    /// When the directory is not there, or the volume cannot be changed.
    pub fn of_volume(fs: Arc<FileSystem>, root: &str) -> Result<Self, Error> {
        let place = fs.name();
        over(fs, root, place).map_err(failure::generic)
    }

    /// The store of one bucket, as S3 shows it: the directory of this name in the root, which must
    /// be there.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn bucket(&self, name: &str) -> Result<Self, Error> {
        let store = Self { volume: self.volume.clone(), bucket: name.into() };
        let (objects, bucket) = (self.volume.objects.clone(), name.to_owned());
        let found = blocking(move || objects.bucket(&bucket)).await;
        found.map_err(|why| failure::of(why, &object_store::path::Path::from(name)))?;
        Ok(store)
    }

    /// Closes the volume; all stores of it fail from then on. What was acknowledged is durable
    /// without that. It can be opened again when the stores and the readers of this one are
    /// dropped.
    ///
    /// # Errors
    /// When the volume could not be closed as it should; it is recovered when it is opened again.
    pub async fn close(&self) -> Result<(), Error> {
        let objects = self.volume.objects.clone();
        objects.end();
        let closed = blocking(move || Ok(objects.fs.close_volume())).await;
        closed.map_err(failure::generic)?.map_err(failure::generic)
    }
}

fn open(place: &Path, options: &Options) -> fs::Result<VolumeStore> {
    if let Some(identity) = &options.identity {
        cluster::use_identity(&cluster::Identity::at(identity))?;
    }
    let places = Arc::new(cluster::ClusterPlaces::default());
    let fs = cluster::open(place, OpenOptions { places, ..OpenOptions::default() })?;
    over(fs, &options.root, place.display().to_string())
}

fn over(fs: Arc<FileSystem>, root: &str, place: String) -> fs::Result<VolumeStore> {
    let objects = Arc::new(Objects::with_whole(fs, root)?);
    let volume = Volume {
        batches: Arc::new(Batches::start(&objects)),
        listings: Arc::new(Listings::new(LISTING_MEMORY)),
        large: Arc::new(Semaphore::new(LARGE)),
        sweeping: Mutex::default(),
        objects,
        place,
    };
    Ok(VolumeStore { volume: Arc::new(volume), bucket: "".into() })
}

impl fmt::Display for VolumeStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Weft({}", self.volume.place)?;
        if self.bucket.is_empty() { write!(f, ")") } else { write!(f, ", {})", self.bucket) }
    }
}

impl fmt::Debug for VolumeStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VolumeStore").field("place", &self.volume.place).field("bucket", &self.bucket).finish()
    }
}
