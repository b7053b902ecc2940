//! The entries of directories in the byte order of S3 keys, in memory.
//!
//! A directory is kept by the hash of its names (`keys`). Of one whose pages are asked for in the
//! order of keys, this keeps names, attributes and an extended attribute in that order besides. All
//! changes are transactions of the [`Meta`](crate::Meta) of the process that has the volume open,
//! and each tells here which entries it wrote, before its caller learns of it. What an entry is by
//! then is read from the metadata: two threads may come here in another order than their
//! transactions. An extended attribute changes together with the time in its file's entry. Nothing
//! is stored, and transactions cost a look at one number while nobody lists directories so
//! (docs/design/014-pages-of-keys.md).

mod reading;

use crate::kv::{Batch, Committed, Kv, KvChange, KvError, Pair, Visit};
use crate::ranks::{NameOrders, NameOrdersMade};
use crate::record::{DirectoryState, Entry, FileKind, decode};
use crate::{Result, keys};
use plan::{Ino, TxId, object_name};
use reading::{Outcome, Reading, Tree, bare, bytes_of, record, value_of};
pub(crate) use reading::{Record, text};
use std::collections::HashMap;
use std::ops::{Bound, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use volume::ranked::Ranked;

/// What all of this may take, in bytes: some two million entries, or six million names.
const MEMORY: usize = 512 << 20;
/// How many entries are read at a time.
const STEP: usize = 2000;
/// The most directories of which it is remembered that they are too large.
const MAX_TOO_LARGE: usize = 1000;

/// An entry: its text by [`object_name::order`], and what is kept of it, an encoded [`Record`].
pub(crate) type Kept = (Vec<u8>, Option<Box<[u8]>>);

/// A page.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Texts {
    /// In order.
    pub texts: Vec<Kept>,
    /// The first text behind them.
    pub next: Option<Vec<u8>>,
}

/// The directories whose entries are kept in order.
pub(crate) struct Orders {
    /// How many directories `all` has, and how many threads are to have one.
    count: AtomicUsize,
    all: Ranked<All, NameOrders>,
    /// Held by the thread that reads a directory whole.
    making: Ranked<(), NameOrdersMade>,
    memory: usize,
    step: usize,
}

#[derive(Default)]
struct All {
    directories: HashMap<Ino, Order>,
    /// Those that are forgotten: they may take long to free, which is done without the lock.
    gone: Vec<Order>,
    bytes: usize,
    clock: u64,
    /// Directories whose names did not fit, and how many entries they had.
    too_large: HashMap<Ino, i64>,
}

/// How a reading of a directory ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Made {
    /// It is kept.
    Kept,
    /// A transaction that told nothing ended meanwhile: it must be read anew.
    Undone,
    /// There is no memory for its names.
    TooLarge,
}

/// While this is there, transactions that begin tell what they write.
struct Watch<'a>(&'a Orders);

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The entries of one directory.
#[derive(Default)]
struct Order {
    tree: Tree,
    /// The extended attribute.
    attribute: Vec<u8>,
    /// There is no memory for more than names.
    only_names: bool,
    bytes: usize,
    used: u64,
    /// While the directory is read: the names that were written meanwhile.
    written: Option<Vec<Vec<u8>>>,
}

impl Default for Orders {
    fn default() -> Self {
        let (all, making) = (Ranked::default(), Ranked::default());
        Self { count: AtomicUsize::new(0), all, making, memory: MEMORY, step: STEP }
    }
}

impl Orders {
    /// Up to `limit` entries of a directory from a text on. None when its names do not fit in
    /// memory.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn page(&self, kv: &dyn Kv, parent: Ino, from: &[u8], limit: usize, attribute: &[u8]) -> Result<Option<Texts>> {
        if self.is_too_large(kv, parent)? {
            return Ok(None);
        }
        let _turn = self.making.lock();
        // Another one may have found that meanwhile.
        if self.is_too_large(kv, parent)? {
            return Ok(None);
        }
        // A transaction that began before this undoes what is read (`written_since`). There are no
        // more of these than threads that are in one now, so this comes to an end.
        self.count.fetch_add(1, Ordering::SeqCst);
        let _watch = Watch(self);
        loop {
            // Another one may have read it meanwhile.
            if let Some(page) = self.kept(parent, from, limit, attribute) {
                return Ok(Some(page));
            }
            if self.read(kv, parent, attribute)? == Made::TooLarge {
                let entries = entries_of(kv, parent)?;
                let too_large = &mut self.all.lock().too_large;
                if too_large.len() >= MAX_TOO_LARGE {
                    too_large.clear();
                }
                too_large.insert(parent, entries);
                return Ok(None);
            }
        }
    }

    /// The same, if the directory is kept in order by now.
    pub fn kept(&self, parent: Ino, from: &[u8], limit: usize, attribute: &[u8]) -> Option<Texts> {
        let mut all = self.all.lock();
        all.clock += 1;
        let now = all.clock;
        let order = all.directories.get_mut(&parent).filter(|order| order.written.is_none())?;
        order.used = now;
        let has_values = order.attribute == attribute;
        let mut entries = order.tree.range::<[u8], _>((Bound::Included(from), Bound::Unbounded));
        let page = entries.by_ref().take(limit);
        let texts = page.map(|(text, kept)| (text.to_vec(), kept.clone().filter(|_| has_values))).collect();
        Some(Texts { texts, next: entries.next().map(|(text, _)| text.to_vec()) })
    }

    /// Whether the names of a directory did not fit, and it has not become much smaller since.
    fn is_too_large(&self, kv: &dyn Kv, parent: Ino) -> Result<bool> {
        let Some(then) = self.all.lock().too_large.get(&parent).copied() else { return Ok(false) };
        if entries_of(kv, parent)? > then - then / 8 {
            return Ok(true);
        }
        self.all.lock().too_large.remove(&parent);
        Ok(false)
    }

    /// Reads the entries of a directory.
    fn read(&self, kv: &dyn Kv, parent: Ino, attribute: &[u8]) -> Result<Made> {
        let expected = usize::try_from(entries_of(kv, parent)?).unwrap_or(0);
        // From now on, changes are told. A change that was not is in the metadata already.
        let new = Order { written: Some(Vec::new()), attribute: attribute.to_vec(), ..Order::default() };
        self.all.lock().directories.insert(parent, new);
        self.count.fetch_add(1, Ordering::SeqCst);
        let goes_on = |bytes| {
            self.change(|all| {
                self.drop_others(all, parent, bytes);
                all.directories.contains_key(&parent)
            })
        };
        let (memory, step) = (self.memory, self.step);
        let read = Reading { kv, parent, attribute, expected, memory, step, goes_on: &goes_on }.all();
        self.change(|all| {
            let clock = all.clock;
            let Some(order) = all.directories.get_mut(&parent) else { return Ok(Made::Undone) };
            let written = order.written.take().unwrap_or_default();
            let filled = match read {
                Ok(Outcome::All(tree, only_names)) => {
                    order.bytes = tree.iter().map(|(text, kept)| bytes_of(text, kept.as_deref())).sum();
                    (order.tree, order.only_names, order.used) = (tree, only_names, clock);
                    written.iter().try_for_each(|name| order.refresh(kv, parent, name)).map(|()| Made::Kept)
                }
                Ok(Outcome::TooLarge) => Ok(Made::TooLarge),
                Ok(Outcome::Stopped) => Ok(Made::Undone),
                Err(error) => Err(error),
            };
            let bytes = order.bytes;
            all.bytes += bytes;
            match filled {
                Ok(Made::Kept) if self.make_space(all, parent) => Ok(Made::Kept),
                Ok(Made::Kept) => Ok(Made::TooLarge),
                _ => {
                    self.forget(all, parent);
                    filled
                }
            }
        })
    }

    /// Changes what is kept, and frees what is forgotten by that when others may go on.
    fn change<T>(&self, change: impl FnOnce(&mut All) -> T) -> T {
        let mut all = self.all.lock();
        let done = change(&mut all);
        let gone = std::mem::take(&mut all.gone);
        drop(all);
        drop(gone);
        done
    }

    /// Drops other directories than this one until there is memory for that many bytes; those that
    /// were not used for the longest time go first.
    fn drop_others(&self, all: &mut All, keep: Ino, bytes: usize) {
        while all.bytes + bytes > self.memory {
            let others = all.directories.iter().filter(|(ino, order)| **ino != keep && order.written.is_none());
            let Some(oldest) = others.min_by_key(|(_, order)| order.used).map(|(ino, _)| *ino) else { break };
            self.forget(all, oldest);
        }
    }

    /// Makes space for a directory that is kept: others go, then what is kept besides its names,
    /// and then it goes itself, which returns false.
    fn make_space(&self, all: &mut All, keep: Ino) -> bool {
        self.drop_others(all, keep, 0);
        if all.bytes > self.memory
            && let Some(order) = all.directories.get_mut(&keep)
        {
            let before = order.bytes;
            order.drop_records();
            all.bytes = (all.bytes + order.bytes).saturating_sub(before);
        }
        let fits = all.bytes <= self.memory;
        if !fits {
            self.forget(all, keep);
        }
        fits
    }

    fn forget(&self, all: &mut All, directory: Ino) {
        if let Some(order) = all.directories.remove(&directory) {
            all.bytes = all.bytes.saturating_sub(order.bytes);
            all.gone.push(order);
            self.count.fetch_sub(1, Ordering::SeqCst);
        }
    }

    fn is_used(&self) -> bool {
        self.count.load(Ordering::SeqCst) > 0
    }

    /// A transaction that noted nothing has returned. If a directory was read since it began, it
    /// may be without that.
    fn written_since(&self) {
        self.change(|all| {
            let directories: Vec<Ino> = all.directories.keys().copied().collect();
            directories.into_iter().for_each(|directory| self.forget(all, directory));
        });
    }

    /// Entries were written or removed, in a transaction that has returned.
    fn written(&self, kv: &dyn Kv, entries: &[Vec<u8>]) {
        self.change(|all| {
            for key in entries {
                let (parent, (_, name)) = (Ino(keys::number(key, 1)), keys::entry_name(key));
                let Some(order) = all.directories.get_mut(&parent) else { continue };
                if let Some(written) = &mut order.written {
                    written.push(name.to_vec());
                    continue;
                }
                let before = order.bytes;
                let is_right = order.refresh(kv, parent, name).is_ok();
                let after = order.bytes;
                all.bytes = (all.bytes + after).saturating_sub(before);
                if !is_right {
                    // It is read anew when it is asked for.
                    self.forget(all, parent);
                } else if after > before {
                    self.make_space(all, parent);
                }
            }
        });
    }
}

/// How many entries a directory has, with those that no key has.
fn entries_of(kv: &dyn Kv, directory: Ino) -> Result<i64> {
    let state = kv.get(&keys::directory(directory))?;
    Ok(state.as_deref().map(decode::<DirectoryState>).transpose()?.unwrap_or_default().entries)
}

impl Order {
    /// Names alone stay.
    fn drop_records(&mut self) {
        self.only_names = true;
        self.tree.values_mut().for_each(|kept| *kept = None);
        self.bytes = self.tree.keys().map(|text| bytes_of(text, None)).sum();
    }

    /// Makes an entry what the metadata says.
    fn refresh(&mut self, kv: &dyn Kv, parent: Ino, name: &[u8]) -> Result<()> {
        let now = kv.get(&keys::entry(parent, name))?;
        let now = now.as_deref().map(decode::<Entry>).transpose()?;
        for is_directory in [false, true] {
            let Some(text) = object_name::order(name, is_directory) else { continue };
            if let Some(kept) = self.tree.remove(&text[..]) {
                self.bytes -= bytes_of(&text, kept.as_deref());
            }
            let kind = if is_directory { FileKind::Directory } else { FileKind::File };
            let Some(now) = now.clone().filter(|now| now.kind() == kind) else { continue };
            let ino = now.ino();
            let kept = match bare(now).filter(|_| !self.only_names) {
                Some(bare) => Some(record(bare, value_of(kv, ino, &self.attribute)?)),
                None => None,
            };
            self.bytes += bytes_of(&text, kept.as_deref());
            self.tree.insert(text.into(), kept);
        }
        Ok(())
    }
}

/// An engine whose transactions tell which entries they wrote.
pub(crate) struct Watched {
    /// The engine.
    pub kv: Arc<dyn Kv>,
    /// What is told.
    pub orders: Arc<Orders>,
}

type KvResult<T> = std::result::Result<T, KvError>;

impl Kv for Watched {
    fn get(&self, key: &[u8]) -> KvResult<Option<Vec<u8>>> {
        self.kv.get(key)
    }

    fn scan(&self, range: Range<&[u8]>, limit: usize) -> KvResult<Vec<Pair>> {
        self.kv.scan(range, limit)
    }

    fn scan_back(&self, range: Range<&[u8]>, limit: usize) -> KvResult<Vec<Pair>> {
        self.kv.scan_back(range, limit)
    }

    fn scan_with_previous(&self, floor: &[u8], range: Range<&[u8]>, limit: usize) -> KvResult<Vec<Pair>> {
        self.kv.scan_with_previous(floor, range, limit)
    }

    fn snapshot(&self, visit: Visit<'_>) -> KvResult<TxId> {
        self.kv.snapshot(visit)
    }

    fn commit(&self, batch: Batch) -> KvResult<Committed> {
        if !self.orders.is_used() {
            let committed = self.kv.commit(batch)?;
            if self.orders.is_used() {
                self.orders.written_since();
            }
            return Ok(committed);
        }
        let changes = batch.changes.iter().map(|change| match change {
            KvChange::Put(key, _) | KvChange::Delete(key) | KvChange::Merge(key, _) => key,
        });
        let entries: Vec<Vec<u8>> = changes.filter(|key| key.first() == Some(&keys::ENTRY)).cloned().collect();
        let committed = self.kv.commit(batch)?;
        if !entries.is_empty() {
            self.orders.written(&*self.kv, &entries);
        }
        Ok(committed)
    }

    fn sync(&self, seq: TxId) -> KvResult<()> {
        self.kv.sync(seq)
    }
}

#[cfg(test)]
mod tests;
