//! What all operations share: the objects, the threads for small ones, and the memory that bodies
//! may take together.

use crate::buffers::{Buffers, PIECE};
use crate::known::Known;
use crate::settings::Settings;
use objects::Objects;
use objects::batch::Batches;
use objects::etag::Kind;
use objects::listing::Listings;
use s3s::{S3Error, S3ErrorCode, S3Result};
use std::sync::{Arc, Mutex};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many large bodies are stored at a time. Each takes one of the threads (`server::BLOCKING`).
const LARGE: usize = 128;
/// The unit in which memory is counted, in bytes.
const UNIT: u64 = 4096;

/// Carries operations out.
#[derive(Clone)]
pub struct Gateway {
    /// The objects.
    pub objects: Arc<Objects>,
    /// Stores small objects.
    pub batches: Arc<Batches>,
    /// Finds pages of keys.
    pub listings: Arc<Listings>,
    /// What is known of buckets.
    pub known: Arc<Known<Arc<Settings>>>,
    /// Held by the thread that removes what is left over.
    pub sweeping: Arc<Mutex<()>>,
    /// What ETags are made of.
    pub etag: Kind,
    /// What pieces of objects are read into.
    pub buffers: Arc<Buffers>,
    /// Places of large bodies that are stored.
    pub large: Arc<Semaphore>,
    memory: Arc<Semaphore>,
    units: u32,
}

/// How many units of memory some bytes take.
pub fn units(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX)
}

impl Gateway {
    /// A gateway whose bodies take `memory` bytes together (`server::Options`).
    pub fn new(objects: Objects, memory: u64, etag: Kind) -> Self {
        let units = u32::try_from(memory / UNIT).unwrap_or(u32::MAX).max(1);
        let objects = Arc::new(objects);
        Self {
            batches: Arc::new(Batches::start(&objects)),
            listings: Arc::new(Listings::new(memory / 16)),
            known: Arc::default(),
            sweeping: Arc::default(),
            etag,
            buffers: Arc::new(Buffers::new(PIECE as usize, (memory / 16 / PIECE) as usize)),
            large: Arc::new(Semaphore::new(LARGE)),
            memory: Arc::new(Semaphore::new(units as usize)),
            objects,
            units,
        }
    }

    /// Waits until that many bytes are free, and takes them.
    pub async fn take(&self, bytes: u64) -> S3Result<OwnedSemaphorePermit> {
        // A body that is larger than all there is gets all.
        let units = units(bytes).clamp(1, self.units);
        let permit = self.memory.clone().acquire_many_owned(units).await;
        permit.map_err(|_| S3Error::with_message(S3ErrorCode::ServiceUnavailable, "the gateway ends"))
    }

    /// Does work that waits for disks and servers, beside those that must not wait.
    pub async fn beside<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Objects) -> S3Result<T> + Send + 'static,
    ) -> S3Result<T> {
        let objects = self.objects.clone();
        let done = tokio::task::spawn_blocking(move || work(&objects)).await;
        done.unwrap_or_else(|_| Err(S3Error::with_message(S3ErrorCode::InternalError, "a defect ended the request")))
    }
}
