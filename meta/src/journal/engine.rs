//! The engine itself: commits and reads.

use super::checkpointer;
use super::files::Files;
use super::frame::{Epoch, take_edit};
use super::inventory::take_all;
use super::local_wal::{self, LocalWal};
use super::options::{Options, Place, Status};
use super::recover::{Recovered, check, recover};
use super::relocate::set_targets;
use super::retry;
use super::shared::{Layers, Shared, Start, Tasks, closed};
use super::writer::Writer;
use crate::kv::{
    Batch, Committed, IndexState, Kv, KvError, Layered, MergeFn, Order, Pair, Seq, View, Visit, resolve, scan,
    scan_with_previous,
};
use std::ops::{Bound, Range};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, RwLockReadGuard};
use std::thread::{Builder, JoinHandle};

/// A durable engine: an index behind a journal on several targets. See the module.
pub struct Journaled {
    shared: Arc<Shared>,
    merge: MergeFn,
    /// Held by one commit at a time.
    order: Mutex<()>,
    threads: Vec<JoinHandle<()>>,
}

impl Journaled {
    /// Makes the metadata of a new volume, empty, on the first `mirrors` targets that take it, and durable.
    ///
    /// # Errors
    /// When a target holds metadata already or cannot be looked at, or none takes it.
    pub fn create(options: Options) -> Result<Self, KvError> {
        let volume = check(&options)?;
        let found = take_all(&options.targets, &volume, options.limits.deadline);
        for ((id, _), found) in options.targets.iter().zip(found) {
            match found {
                Ok(found) if found.is_empty() => {}
                Ok(_) => return Err(KvError::Unavailable(format!("target {} holds metadata already", id.0))),
                Err(error) => return Err(KvError::Unavailable(format!("target {}: {error}", id.0))),
            }
        }
        options.index.clear()?;
        let epoch = Epoch { number: 1, first: 1 };
        options.index.apply(&mut std::iter::empty(), IndexState { owner: volume, epoch: 1, applied: 0 }, false)?;
        let files = Files { due: options.limits.snapshot_bytes, ..Files::default() };
        let chosen = options.targets.iter().take(options.mirrors).cloned().collect();
        let start = Start { epoch, last: 0, files };
        let engine = Self::start(options, Recovered { start, chosen, incomplete: false })?;
        // Without a snapshot to begin with, an empty volume could not be told from a lost one.
        engine.checkpoint()?;
        if engine.shared.files().complete.is_empty() {
            return Err(KvError::Unavailable(engine.status().last_error.unwrap_or_default()));
        }
        Ok(engine)
    }

    /// Opens the metadata of a volume: everything that was synced, and what was committed behind that up to some transaction.
    ///
    /// # Errors
    /// `Unavailable` when no target has enough of this volume; `Corrupt` when transactions that were durable are on no target.
    pub fn open(options: Options) -> Result<Self, KvError> {
        check(&options)?;
        let recovered = recover(&options)?;
        Self::start(options, recovered)
    }

    /// From now on keeps what is committed in files of a directory of this machine until it is on targets, and commits what such files have of before. So nothing
    /// that was committed is lost when this process is killed, though it is not durable before `sync`. To be called before the first commit.
    ///
    /// # Errors
    /// When the directory cannot be used, or what was there cannot be committed.
    pub fn keep_local_wal(&self, directory: &Path) -> Result<(), KvError> {
        let failed = |why: std::io::Error| KvError::Unavailable(format!("{}: {why}", directory.display()));
        let epoch = self.shared.epoch;
        let left = local_wal::left(directory, &self.shared.volume, epoch).map_err(failed)?;
        self.shared.log().wal = Some(LocalWal::begin(directory, epoch).map_err(failed)?);
        for record in left {
            let (mut batch, mut rest) = (Batch::default(), &record[..]);
            while let Some((key, value)) = take_edit(&mut rest) {
                match value {
                    Some(value) => batch.put(key.to_vec(), value.to_vec()),
                    None => batch.delete(key.to_vec()),
                };
            }
            self.commit(batch)?;
        }
        self.sync(Seq::MAX)?;
        LocalWal::forget_before(directory, epoch).map_err(failed)
    }

    fn start(options: Options, recovered: Recovered) -> Result<Self, KvError> {
        let Options { volume, targets, mirrors, index, merge, limits, .. } = options;
        let Recovered { start, chosen, incomplete } = recovered;
        let shared = Arc::new(Shared::new(volume, targets, mirrors, limits, index, start));
        let writer = Writer::begin(shared.clone(), &chosen)?;
        if incomplete {
            shared.task(|tasks| tasks.snapshot = true);
        }
        let mut engine = Self { shared: shared.clone(), merge, order: Mutex::new(()), threads: Vec::new() };
        engine.spawn("weft-journal", move || writer.run())?;
        let trying = shared.clone();
        engine.spawn("weft-checkpoint", move || checkpointer::run(&shared))?;
        engine.spawn("weft-retry", move || retry::run(&trying))?;
        Ok(engine)
    }

    fn spawn(&mut self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), KvError> {
        let thread = Builder::new().name(name.into()).spawn(run);
        self.threads.push(thread.map_err(|error| KvError::Unavailable(error.to_string()))?);
        Ok(())
    }

    /// Makes sure that nothing that was committed is lost with this process, nor with this machine's power: it is on targets, or in the files of
    /// [`Self::keep_local_wal`]. Returns whether that is so.
    pub fn keep(&self) -> bool {
        let log = self.shared.log();
        log.durable == log.last || log.wal.as_ref().is_some_and(|wal| wal.sync().is_ok())
    }

    /// How the engine is.
    pub fn status(&self) -> Status {
        self.shared.status()
    }

    /// Whether there is room for more metadata, beside so many bytes that were promised some. Without, only what is to make it less in the end
    /// should be committed: a snapshot must fit beside the old one before anything is given back.
    pub fn takes_more(&self, promised: u64) -> bool {
        self.shared.slack.load(Ordering::Relaxed) > 2 * promised.cast_signed()
    }

    /// Has targets that failed tried again soon, if mirrors are lacking. By itself the engine tries them less and less often.
    pub fn retry(&self) {
        self.shared.retry();
    }

    /// Makes a snapshot now and waits for it. What went wrong with it says [`Self::status`].
    ///
    /// # Errors
    /// When the engine has failed.
    pub fn checkpoint(&self) -> Result<(), KvError> {
        self.shared.checkpoint()
    }

    /// Says that the volume has these targets now. The journal leaves those that are not among them, whether they can be reached or
    /// not, and where it lacked mirrors it takes new ones; then as many targets as wanted, or as there are, have everything again,
    /// and this volume's journal and snapshots are removed from those that left, if they let it. Commits go on meanwhile. A target
    /// that failed and is given as another `Arc` is new. One with the id of another that it replaces counts as the same target in
    /// another place, so from what it replaces nothing is removed. Until this has returned, and when it has failed, the journal may
    /// be on targets of before and on new ones, and [`Self::open`] needs both.
    ///
    /// # Errors
    /// `Invalid` for no target or one id twice; `Unavailable` when too few of the targets take the journal, and the engine goes on
    /// with those from before; and when the engine has failed or is closed.
    pub fn set_targets(&self, targets: Vec<Place>) -> Result<(), KvError> {
        set_targets(&self.shared, targets)
    }

    /// Makes everything durable, in the journal and in the index, and ends the engine: nothing is committed any more, but what is
    /// there can be read. It may be called again. Its threads are waited for when it is dropped.
    ///
    /// # Errors
    /// When that is not sure.
    pub fn close(&self) -> Result<(), KvError> {
        let last = {
            // A commit that has begun ends before.
            let _order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
            self.shared.refuse()
        };
        self.shared.sync(last)?;
        self.flush()?;
        self.shared.stop();
        Ok(())
    }

    /// Brings everything to the index, durably.
    fn flush(&self) -> Result<(), KvError> {
        let seen = self.shared.tasks().flushes;
        self.shared.task(|tasks| tasks.flush = true);
        // Two, because one that has begun may have missed the last commits.
        drop(self.shared.wait_tasks(|tasks| tasks.flushes > seen || tasks.stop)?);
        self.shared.task(|tasks| tasks.flush = true);
        self.shared.wait_tasks(|tasks| tasks.flushes > seen + 1 || tasks.stop).map(drop)
    }

    fn layers(&self) -> RwLockReadGuard<'_, Layers> {
        self.shared.layers.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn layered<'a>(&'a self, layers: &'a Layers) -> Layered<'a> {
        Layered { layers: [Some(&layers.active), layers.frozen.as_deref()], base: &*self.shared.index }
    }

    /// Waits while the checkpointer cannot keep up.
    fn wait_for_memory(&self) -> Result<(), KvError> {
        let limit = self.shared.limits.overlay_bytes;
        while self.layers().active.bytes() >= limit.saturating_mul(2) {
            let seen = self.shared.tasks().flushes;
            self.shared.task(|tasks| tasks.flush = true);
            let flushed = |tasks: &Tasks| tasks.flushes > seen || tasks.stop;
            let tasks = self.shared.wait_tasks(|tasks| flushed(tasks) || self.shared.stuck().is_some())?;
            if tasks.stop {
                return Err(closed());
            }
            if !flushed(&tasks)
                && let Some(why) = self.shared.stuck()
            {
                return Err(why);
            }
        }
        Ok(())
    }
}

impl Kv for Journaled {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        let above = {
            let layers = self.layers();
            self.layered(&layers).above(key)
        };
        // If a flush ends here, the index has what the layer said, or something newer.
        above.map_or_else(|| self.shared.index.get(key), Ok)
    }

    fn scan(&self, range: Range<&[u8]>, limit: usize) -> Result<Vec<Pair>, KvError> {
        let layers = self.layers();
        scan(&self.layered(&layers), range, limit, Order::Ascending)
    }

    fn scan_back(&self, range: Range<&[u8]>, limit: usize) -> Result<Vec<Pair>, KvError> {
        let layers = self.layers();
        scan(&self.layered(&layers), range, limit, Order::Descending)
    }

    fn scan_with_previous(&self, floor: &[u8], range: Range<&[u8]>, limit: usize) -> Result<Vec<Pair>, KvError> {
        let layers = self.layers();
        scan_with_previous(&self.layered(&layers), floor, range, limit)
    }

    fn snapshot(&self, visit: Visit<'_>) -> Result<Seq, KvError> {
        let (active, frozen, base) = {
            let layers = self.layers();
            (layers.active.clone(), layers.frozen.clone(), self.shared.index.view()?)
        };
        let view = Layered { layers: [Some(&active), frozen.as_deref()], base: &*base };
        view.visit(Bound::Unbounded, Bound::Unbounded, Order::Ascending, visit)?;
        Ok(active.last)
    }

    fn commit(&self, batch: Batch) -> Result<Committed, KvError> {
        self.shared.wait_for_room()?;
        self.wait_for_memory()?;
        let order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        let (resolved, last) = {
            let layers = self.layers();
            (resolve(batch, &self.layered(&layers), self.merge)?, layers.active.last)
        };
        if resolved.edits.is_empty() {
            return Ok(Committed { seq: last, merged: resolved.merged });
        }
        let seq = self.shared.append(&resolved.edits)?;
        let full = {
            let mut layers = self.shared.layers.write().unwrap_or_else(PoisonError::into_inner);
            for (key, value) in &resolved.edits {
                layers.active.insert(key, value.as_deref());
            }
            layers.active.last = seq;
            layers.active.bytes() >= self.shared.limits.overlay_bytes && layers.frozen.is_none()
        };
        drop(order);
        if full {
            self.shared.task(|tasks| tasks.flush = true);
        }
        Ok(Committed { seq, merged: resolved.merged })
    }

    fn sync(&self, seq: Seq) -> Result<(), KvError> {
        self.shared.sync(seq)
    }
}

impl Drop for Journaled {
    fn drop(&mut self) {
        self.shared.stop();
        for thread in self.threads.drain(..) {
            // A thread that panicked has ended, which is all that counts here.
            let _ = thread.join();
        }
    }
}

/// The places by themselves are of no use without their ids.
impl std::fmt::Debug for Journaled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let places: Vec<u16> = self.shared.files().places.iter().map(|(id, _): &Place| id.0).collect();
        f.debug_struct("Journaled").field("places", &places).field("status", &self.status()).finish_non_exhaustive()
    }
}
