//! An index that ends with the process. It is in memory while it is small and then moves to an
//! unnamed file, so a client that only reads a volume needs no more memory when the volume has many
//! files.

use super::index::End;
use super::{Edit, Index, IndexState, KvError, MemoryIndex, Order, RedbIndex, View, Visit};
use redb::StorageBackend;
use std::fs::File;
use std::io;
use std::ops::Bound;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{RwLock, RwLockReadGuard};
use volume::unpoisoned;

/// The overhead of a pair in memory, in bytes: two reference-counted slices and their places in a
/// tree.
const PAIR_BYTES: usize = 128;
/// How many pairs move to the file at a time.
const MOVED: usize = 16_384;

/// An index that does not outlive the process.
#[derive(Debug)]
pub struct ScratchIndex {
    place: RwLock<Place>,
    most: usize,
}

#[derive(Debug)]
enum Place {
    /// With the bytes that went into it. Removed and replaced pairs still count, since moving too
    /// early does no harm.
    Memory(MemoryIndex, usize),
    /// It could not move to a file, so it stays in memory.
    Stuck(MemoryIndex),
    File(RedbIndex),
}

impl Place {
    fn index(&self) -> &dyn Index {
        match self {
            Self::Memory(index, _) | Self::Stuck(index) => index,
            Self::File(index) => index,
        }
    }
}

impl ScratchIndex {
    /// Creates an empty index that needs about `memory_bytes` of memory. While it moves, its
    /// contents are briefly in memory and in the file, each with its own overhead.
    pub fn new(memory_bytes: usize) -> Self {
        Self { place: RwLock::new(Place::Memory(MemoryIndex::default(), 0)), most: memory_bytes / 4 }
    }

    fn read(&self) -> RwLockReadGuard<'_, Place> {
        unpoisoned(self.place.read())
    }

    fn move_to_file(&self, from: &MemoryIndex) -> Result<RedbIndex, KvError> {
        let file = unnamed(&std::env::temp_dir()).map_err(|why| KvError::Unavailable(why.to_string()))?;
        let index = RedbIndex::with_backend(Unsynced(file), self.most)?;
        let (state, mut last) = (from.state()?, None::<Vec<u8>>);
        loop {
            let mut pairs = Vec::with_capacity(MOVED);
            let low = last.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            from.visit(low, Bound::Unbounded, Order::Ascending, &mut |key, value| {
                pairs.push((key.to_vec(), value.to_vec()));
                Ok(pairs.len() < MOVED)
            })?;
            index.apply(&mut pairs.iter().map(|(key, value)| (&key[..], Some(&value[..]))), state, true)?;
            match pairs.pop() {
                Some((key, _)) => last = Some(key),
                None => return Ok(index),
            }
        }
    }
}

impl View for ScratchIndex {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        self.read().index().get(key)
    }

    fn visit(&self, low: End<'_>, high: End<'_>, order: Order, visit: Visit<'_>) -> Result<(), KvError> {
        self.read().index().visit(low, high, order, visit)
    }
}

impl Index for ScratchIndex {
    fn state(&self) -> Result<IndexState, KvError> {
        self.read().index().state()
    }

    fn apply<'a>(
        &self,
        edits: &mut dyn Iterator<Item = Edit<'a>>,
        state: IndexState,
        durable: bool,
    ) -> Result<(), KvError> {
        let mut place = unpoisoned(self.place.write());
        let Place::Memory(index, bytes) = &mut *place else { return place.index().apply(edits, state, durable) };
        let mut more = 0;
        let size = |(key, value): &Edit| key.len() + value.map_or(0, <[u8]>::len) + PAIR_BYTES;
        index.apply(&mut edits.inspect(|edit| more += size(edit)), state, durable)?;
        *bytes += more;
        if *bytes > self.most {
            let moved = self.move_to_file(index);
            *place = match moved {
                Ok(file) => Place::File(file),
                Err(_) => Place::Stuck(std::mem::take(index)),
            };
        }
        Ok(())
    }

    fn clear(&self) -> Result<(), KvError> {
        *unpoisoned(self.place.write()) = Place::Memory(MemoryIndex::default(), 0);
        Ok(())
    }

    fn view(&self) -> Result<Box<dyn View + Send>, KvError> {
        self.read().index().view()
    }
}

/// Opens a file without a name, which disappears when it is closed.
fn unnamed(directory: &Path) -> io::Result<File> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    loop {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = directory.join(format!(".weft-index-{}-{number}", std::process::id()));
        match File::options().read(true).write(true).create_new(true).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            opened => {
                let file = opened?;
                std::fs::remove_file(&path)?;
                return Ok(file);
            }
        }
    }
}

/// A file that need not survive the process, so it is never synced.
#[derive(Debug)]
struct Unsynced(File);

impl StorageBackend for Unsynced {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(out, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_all_at(data, offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plan::TxId;
    use std::collections::BTreeMap;

    fn all(view: &dyn View) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let mut all = BTreeMap::new();
        view.visit(Bound::Unbounded, Bound::Unbounded, Order::Ascending, &mut |key, value| {
            all.insert(key.to_vec(), value.to_vec());
            Ok(true)
        })
        .unwrap();
        all
    }

    #[test]
    fn what_becomes_large_moves_to_a_file_and_stays_the_same() {
        let index = ScratchIndex::new(16 << 20);
        let mut oracle = BTreeMap::new();
        let mut rng = fastrand::Rng::with_seed(3);
        let mut early = None;
        for applied in 1..=60u64 {
            let edits: Vec<(Vec<u8>, Option<Vec<u8>>)> = (0..2000)
                .map(|_| {
                    let key = rng.u32(..60_000).to_be_bytes().to_vec();
                    (key, (rng.u8(..) > 40).then(|| vec![rng.u8(..); rng.usize(..100)]))
                })
                .collect();
            let state = IndexState { owner: [7; 16], epoch: 1, id: 5, applied: TxId(applied) };
            let mut given = edits.iter().map(|(key, value)| (&key[..], value.as_deref()));
            index.apply(&mut given, state, applied % 3 == 0).unwrap();
            for (key, value) in edits {
                match value {
                    Some(value) => drop(oracle.insert(key, value)),
                    None => drop(oracle.remove(&key)),
                }
            }
            assert_eq!(index.state().unwrap(), state);
            if applied == 2 {
                early = Some((index.view().unwrap(), oracle.clone()));
            }
        }
        assert!(matches!(&*index.read(), Place::File(_)));
        assert_eq!(all(&index), oracle);
        assert_eq!(all(&*index.view().unwrap()), oracle);
        let (view, then) = early.unwrap();
        assert_eq!(all(&*view), then, "a view is of what was when it was taken");
        index.clear().unwrap();
        assert!(all(&index).is_empty() && index.state().unwrap() == IndexState::default());
    }
}
