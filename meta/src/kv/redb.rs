//! The index in a redb file. It is a cache of the journal: a lost or damaged file is rebuilt from
//! the mirrors.

use super::index::{End, can_hold};
use super::{Edit, Index, IndexState, KvError, Order, View, Visit};
use plan::TxId;
use redb::backends::FileBackend;
use redb::{
    Database, DatabaseError, Durability, ReadOnlyTable, ReadableDatabase, StorageBackend, StorageError, Table,
    TableDefinition,
};
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, RwLock};
use volume::unpoisoned;

const PAIRS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("pairs");
const STATE: TableDefinition<'_, (), ([u8; 16], u64, u64)> = TableDefinition::new("state");
/// The id of the epoch in the state. An index of an earlier version has none.
const EPOCH_ID: TableDefinition<'_, (), u128> = TableDefinition::new("epoch-id");

/// The default size of redb's memory cache, in bytes.
const CACHE_BYTES: usize = 128 << 20;

/// An index in a redb file.
pub struct RedbIndex {
    /// A read transaction on the newest state, kept open because beginning one costs more than a
    /// read. It must be dropped before the database.
    newest: RwLock<Arc<Pairs>>,
    database: Database,
}

type Pairs = ReadOnlyTable<&'static [u8], &'static [u8]>;

struct RedbView(Arc<Pairs>);

impl RedbIndex {
    /// Opens the file, and creates it when it does not exist.
    ///
    /// # Errors
    /// `Corrupt` when the file is damaged or not a redb file: the caller may remove it.
    /// `Unavailable` when it cannot be reached or another process has it open.
    pub fn open(path: &Path) -> Result<Self, KvError> {
        Self::open_with(path, CACHE_BYTES)
    }

    /// The same, with a memory cache of `cache_bytes`.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_with(path: &Path, cache_bytes: usize) -> Result<Self, KvError> {
        let place = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
        // Other users must not read names and attributes, whatever the umask.
        let file = File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
        let file = file.map_err(|why| KvError::Unavailable(place(&why)))?;
        let database = FileBackend::new(file)
            .and_then(|backend| Database::builder().set_cache_size(cache_bytes).create_with_backend(backend));
        let database = database.map_err(|error| match error {
            DatabaseError::Storage(StorageError::Io(io)) if io.kind() != std::io::ErrorKind::InvalidData => {
                KvError::Unavailable(place(&io))
            }
            DatabaseError::DatabaseAlreadyOpen => KvError::Unavailable(place(&"it is open elsewhere")),
            error => KvError::Corrupt(place(&error)),
        })?;
        Self::with_tables(database)
    }

    /// Opens an index on a backend other than a file.
    pub(super) fn with_backend(backend: impl StorageBackend, cache_bytes: usize) -> Result<Self, KvError> {
        let database = Database::builder().set_cache_size(cache_bytes).create_with_backend(backend);
        Self::with_tables(database.map_err(failed)?)
    }

    fn with_tables(database: Database) -> Result<Self, KvError> {
        let mut write = database.begin_write().map_err(failed)?;
        write.set_quick_repair(true);
        write.open_table(PAIRS).map_err(failed)?;
        write.open_table(STATE).map_err(failed)?;
        write.open_table(EPOCH_ID).map_err(failed)?;
        write.commit().map_err(failed)?;
        let newest = RwLock::new(Arc::new(open_pairs(&database)?));
        Ok(Self { newest, database })
    }

    fn newest(&self) -> RedbView {
        RedbView(unpoisoned(self.newest.read()).clone())
    }

    fn change(
        &self,
        durable: bool,
        change: impl FnOnce(&mut Table<'_, &'static [u8], &'static [u8]>) -> Result<IndexState, KvError>,
    ) -> Result<(), KvError> {
        let mut write = self.database.begin_write().map_err(failed)?;
        let durability = if durable { Durability::Immediate } else { Durability::None };
        write.set_durability(durability).map_err(failed)?;
        // Without that, who opens the index after a crash reads all of it first.
        write.set_quick_repair(durable);
        {
            let IndexState { owner, epoch, id, applied } = change(&mut write.open_table(PAIRS).map_err(failed)?)?;
            let mut table = write.open_table(STATE).map_err(failed)?;
            table.insert((), (owner, epoch, applied.0)).map_err(failed)?;
            write.open_table(EPOCH_ID).map_err(failed)?.insert((), id).map_err(failed)?;
        }
        write.commit().map_err(failed)?;
        let newest = Arc::new(open_pairs(&self.database)?);
        *unpoisoned(self.newest.write()) = newest;
        Ok(())
    }
}

fn open_pairs(database: &Database) -> Result<Pairs, KvError> {
    database.begin_read().map_err(failed)?.open_table(PAIRS).map_err(failed)
}

impl View for RedbIndex {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        self.newest().get(key)
    }

    fn visit(&self, low: End<'_>, high: End<'_>, order: Order, visit: Visit<'_>) -> Result<(), KvError> {
        self.newest().visit(low, high, order, visit)
    }
}

impl Index for RedbIndex {
    fn state(&self) -> Result<IndexState, KvError> {
        let read = self.database.begin_read().map_err(failed)?;
        let state = read.open_table(STATE).map_err(failed)?.get(()).map_err(failed)?.map(|state| state.value());
        let id = read.open_table(EPOCH_ID).map_err(failed)?.get(()).map_err(failed)?.map_or(0, |id| id.value());
        Ok(state.map_or_else(IndexState::default, |(owner, epoch, applied)| IndexState {
            owner,
            epoch,
            id,
            applied: TxId(applied),
        }))
    }

    fn apply<'a>(
        &self,
        edits: &mut dyn Iterator<Item = Edit<'a>>,
        state: IndexState,
        durable: bool,
    ) -> Result<(), KvError> {
        self.change(durable, |pairs| {
            for (key, value) in edits {
                match value {
                    Some(value) => drop(pairs.insert(key, value).map_err(failed)?),
                    None => drop(pairs.remove(key).map_err(failed)?),
                }
            }
            Ok(state)
        })
    }

    fn clear(&self) -> Result<(), KvError> {
        self.change(true, |pairs| pairs.retain(|_, _| false).map_err(failed).map(|()| IndexState::default()))
    }

    fn view(&self) -> Result<Box<dyn View + Send>, KvError> {
        Ok(Box::new(self.newest()))
    }
}

impl std::fmt::Debug for RedbIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.database.fmt(f)
    }
}

impl View for RedbView {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        Ok(self.0.get(key).map_err(failed)?.map(|value| value.value().to_vec()))
    }

    fn visit(&self, low: End<'_>, high: End<'_>, order: Order, visit: Visit<'_>) -> Result<(), KvError> {
        if !can_hold(low, high) {
            return Ok(());
        }
        let mut range = self.0.range::<&[u8]>((low, high)).map_err(failed)?;
        let mut next = || match order {
            Order::Ascending => range.next(),
            Order::Descending => range.next_back(),
        };
        while let Some(pair) = next() {
            let (key, value) = pair.map_err(failed)?;
            if !visit(key.value(), value.value())? {
                break;
            }
        }
        Ok(())
    }
}

fn failed(error: impl Into<redb::Error>) -> KvError {
    match error.into() {
        redb::Error::Io(io) if io.kind() == std::io::ErrorKind::StorageFull => KvError::NoSpace,
        redb::Error::Corrupted(what) => KvError::Corrupt(format!("index: {what}")),
        error @ (redb::Error::Io(_) | redb::Error::PreviousIo) => KvError::Local(format!("the index: {error}")),
        error => KvError::Unavailable(format!("index: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redb::backends::InMemoryBackend;
    use std::io;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// A disk that fails.
    #[derive(Debug, Default)]
    struct Failing(InMemoryBackend, Arc<AtomicBool>);

    impl Failing {
        fn works(&self) -> io::Result<&InMemoryBackend> {
            if self.1.load(Ordering::SeqCst) { Err(io::Error::other("a bad block")) } else { Ok(&self.0) }
        }
    }

    impl StorageBackend for Failing {
        fn len(&self) -> io::Result<u64> {
            self.works()?.len()
        }

        fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            self.works()?.read(offset, out)
        }

        fn set_len(&self, len: u64) -> io::Result<()> {
            self.works()?.set_len(len)
        }

        fn sync_data(&self) -> io::Result<()> {
            self.works()?.sync_data()
        }

        fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            self.works()?.write(offset, data)
        }
    }

    /// A metadata server must know that another one may have no such trouble.
    #[test]
    fn a_disk_that_fails_is_a_trouble_of_this_machine() {
        let fails = Arc::new(AtomicBool::new(false));
        let index = RedbIndex::with_backend(Failing(InMemoryBackend::new(), fails.clone()), 1 << 20).unwrap();
        let state = index.state().unwrap();
        fails.store(true, Ordering::SeqCst);
        for _ in 0..2 {
            let edit: Edit<'_> = (b"key", Some(b"value"));
            let refused = index.apply(&mut [edit].into_iter(), state, true);
            assert!(matches!(&refused, Err(KvError::Local(why)) if why.contains("index")), "{refused:?}");
        }
    }
}
