//! Caches record headers that were read and verified. A small read needs the checksum of its
//! granule: without the cache, that takes two reads instead of one.

use crate::format::{StripeHeader, VolumeId};
use crate::lock;
use plan::{Position, RecordOffset, SetId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// The limit for all headers together, in bytes.
const CACHE_BYTES: usize = 16 << 20;
const CACHE_SHARDS: usize = 16;
/// The memory of a header besides its checksums, in bytes.
const ENTRY_OVERHEAD_BYTES: usize = 160;

/// Volume, chunk set, record and position.
pub(crate) type Key = (VolumeId, SetId, RecordOffset, Position);

/// The most recently used headers.
#[derive(Debug, Default)]
pub(crate) struct Headers([Mutex<Shard>; CACHE_SHARDS]);

/// Two generations. When the young one fills half of the space, it becomes the old one, and the
/// previous old one is dropped. A header that is used moves from the old generation to the young
/// one.
#[derive(Debug, Default)]
struct Shard {
    young: HashMap<Key, Arc<StripeHeader>>,
    old: HashMap<Key, Arc<StripeHeader>>,
    young_bytes: usize,
}

impl Shard {
    fn put(&mut self, key: Key, header: Arc<StripeHeader>) {
        self.young_bytes += ENTRY_OVERHEAD_BYTES + header.checksums.len() * 8;
        self.young.insert(key, header);
        if self.young_bytes > CACHE_BYTES / CACHE_SHARDS / 2 {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
    }
}

impl Headers {
    fn shard(&self, key: &Key) -> MutexGuard<'_, Shard> {
        let number = (key.1.0 as usize ^ (key.2.0 as usize / 64) ^ key.3.index()) % CACHE_SHARDS;
        lock(&self.0[number])
    }

    pub fn get(&self, key: &Key) -> Option<Arc<StripeHeader>> {
        let mut shard = self.shard(key);
        if let Some(header) = shard.young.get(key) {
            return Some(header.clone());
        }
        let header = shard.old.remove(key)?;
        shard.put(*key, header.clone());
        Some(header)
    }

    pub fn put(&self, key: Key, header: Arc<StripeHeader>) {
        self.shard(&key).put(key, header);
    }

    pub fn forget(&self, key: &Key) {
        let mut shard = self.shard(key);
        shard.young.remove(key);
        shard.old.remove(key);
    }
}
