//! The collector frees space. It punches unreferenced stripes out of their chunks, deletes chunk
//! sets without stripes, and drops files without names.

use crate::data::manifest::{self, Piece};
use crate::data::pauses::Pauses;
use crate::data::store::{Pin, Stored};
use crate::{Error, FileSystem, Result};
use meta::DeadStripe;
use plan::{Extent, ExtentPlace, Ino, Position, SetId, Span, TxId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::ops::Range;
use std::sync::{Mutex, Weak};
use std::time::{Duration, Instant};
use volume::target::{Allocation, TargetFile};
use volume::{SetLayout, lock};

/// How long a stripe is kept after its last reference is gone: a reader may still be using it.
const RELEASE_DELAY: Duration = Duration::from_secs(3);
/// The most small files without names that one transaction drops.
const ORPHANS_AT_ONCE: usize = 256;
const COLLECT_INTERVAL: Duration = Duration::from_millis(200);

/// What waits to be freed.
#[derive(Debug, Default)]
pub(crate) struct Collector {
    dead: Mutex<VecDeque<(Instant, TxId, DeadStripe)>>,
    orphans: Mutex<Vec<Ino>>,
    /// Sets that were in use when they were checked. They may be empty when they no longer are.
    busy: Mutex<BTreeSet<SetId>>,
    /// Sets whose client no longer writes to them.
    abandoned: Mutex<BTreeSet<SetId>>,
}

impl Collector {
    /// Adds stripes that lost their last reference in a transaction.
    pub fn add(&self, dead: Vec<DeadStripe>, seq: TxId) {
        if !dead.is_empty() {
            let now = Instant::now();
            lock(&self.dead).extend(dead.into_iter().map(|dead| (now, seq, dead)));
        }
    }

    /// Adds a set that no client writes to any more.
    pub fn abandon(&self, set: SetId) {
        lock(&self.abandoned).insert(set);
    }

    /// Adds a file without a name that is not open.
    pub fn add_orphan(&self, ino: Ino) {
        lock(&self.orphans).push(ino);
    }

    fn due(&self, all: bool) -> Vec<(TxId, DeadStripe)> {
        let mut dead = lock(&self.dead);
        let count = if all {
            dead.len()
        } else {
            dead.iter().take_while(|(since, ..)| since.elapsed() >= RELEASE_DELAY).count()
        };
        dead.drain(..count).map(|(_, seq, dead)| (seq, dead)).collect()
    }
}

/// The collector's thread.
pub(crate) fn collect(fs: &Weak<FileSystem>, pauses: &Pauses) {
    while pauses.pause(COLLECT_INTERVAL) {
        let Some(fs) = fs.upgrade().filter(|fs| !fs.is_closed()) else { return };
        if let Some(Err(error)) = fs.beside("reclaiming space", || fs.collect(false))
            && !fs.is_closed()
        {
            fs.volume.warn(&format!("cannot reclaim space: {error}"));
        }
    }
}

impl FileSystem {
    /// Frees what is due, or everything.
    pub(crate) fn collect(&self, all: bool) -> Result<()> {
        let mut orphans = std::mem::take(&mut *lock(&self.collector.orphans));
        orphans.sort_unstable();
        orphans.dedup();
        while !orphans.is_empty() {
            let some = orphans.split_off(orphans.len().saturating_sub(ORPHANS_AT_ONCE));
            // If a client has opened a file since, its close adds the file again.
            if let Err(error) = self.leases.delete(some.clone(), |inos| self.drop_orphans(inos)) {
                orphans.extend(some);
                lock(&self.collector.orphans).append(&mut orphans);
                return Err(error);
            }
        }
        let mut abandoned = std::mem::take(&mut *lock(&self.collector.abandoned));
        while let Some(set) = abandoned.pop_first() {
            match self.give_back_abandoned(set) {
                Ok(()) | Err(Error::Meta(meta::Error::NotFound)) => {}
                Err(error) => {
                    abandoned.insert(set);
                    lock(&self.collector.abandoned).append(&mut abandoned);
                    return Err(error);
                }
            }
        }
        // Data that was written to a set and given up before its commit is in no transaction. So
        // check every set when it is sealed.
        let mut busy = std::mem::take(&mut *lock(&self.collector.busy));
        busy.extend(self.store.take_sealed());
        while let Some(set) = busy.pop_first() {
            match self.delete_if_empty(set) {
                Ok(true) => {}
                Ok(false) => self.compactor.suspect(set),
                Err(error) => {
                    busy.insert(set);
                    lock(&self.collector.busy).append(&mut busy);
                    return Err(error);
                }
            }
        }
        let due = self.collector.due(all);
        let Some(last) = due.iter().map(|(seq, _)| *seq).max() else { return Ok(()) };
        // The transactions that dropped the references must be durable first: after a crash, no
        // reference to freed stripes may come back.
        if let Err(error) = self.meta.sync(last) {
            // Keep them for the next try: on full targets, this space is needed most.
            due.into_iter().for_each(|(seq, dead)| self.collector.add(vec![dead], seq));
            return Err(error.into());
        }
        let mut sets: BTreeMap<SetId, Vec<DeadStripe>> = BTreeMap::new();
        // A stripe may have pieces of other files that are not committed yet.
        let uncommitted = self.table.uncommitted();
        let mut failed = None;
        for (seq, dead) in due {
            let is_in_use = uncommitted.contains_key(&(dead.set, dead.record)) || self.leases.is_held(dead.set);
            if is_in_use || failed.is_some() {
                self.collector.add(vec![dead], seq);
                continue;
            }
            match self.engine()?.meta.forget_stripe(dead) {
                Ok((true, _)) => sets.entry(dead.set).or_default().push(dead),
                Ok((false, _)) => {}
                Err(error) => {
                    self.collector.add(vec![dead], seq);
                    failed = Some(error.into());
                }
            }
        }
        for (set, dead) in sets {
            // Space that is not freed now is freed when the set is compacted.
            failed = failed.or(self.give_back(set, dead).err());
            self.compactor.suspect(set);
        }
        failed.map_or(Ok(()), Err)
    }

    /// Drops files without names, ordered by number.
    fn drop_orphans(&self, inos: &[Ino]) -> Result<()> {
        if inos.is_empty() {
            return Ok(());
        }
        let meta = &self.engine()?.meta;
        let files: Vec<_> = inos.iter().map(|&ino| self.table.enter(ino)).collect();
        // The extents of large files are dropped in several transactions. No other thread may move
        // them in between.
        let _one_at_a_time: Vec<_> = files.iter().map(|file| file.content()).collect();
        let (large, dead, seq) = meta.drop_small_orphans(inos)?;
        self.collector.add(dead, seq);
        for ino in large {
            meta.drop_orphan(ino, |dead, seq| self.collector.add(dead, seq))?;
        }
        inos.iter().for_each(|&ino| self.inline.forget(ino));
        Ok(())
    }

    /// Punches stripes out of the chunks of a set, or deletes the chunks when the set has no other
    /// stripes.
    fn give_back(&self, set: SetId, mut dead: Vec<DeadStripe>) -> Result<()> {
        let layout = self.store.layout(set)?;
        if self.delete_if_empty(set)? {
            return Ok(());
        }
        self.punch(&layout, &mut dead);
        Ok(())
    }

    /// Frees stripes that were written and then not named by any transaction. The caller holds pins
    /// on their sets.
    pub(crate) fn give_back_unnamed(&self, extents: &[Extent]) -> Result<()> {
        let mut sets: BTreeMap<SetId, Vec<DeadStripe>> = BTreeMap::new();
        for extent in extents {
            if let ExtentPlace::Stripe(Span { set, record, block, .. }) = extent.place {
                sets.entry(set).or_default().push(DeadStripe { set, record, block });
            }
        }
        for (set, mut stripes) in sets {
            stripes.dedup();
            self.punch(&*self.store.layout(set)?, &mut stripes);
        }
        Ok(())
    }

    /// Punches stripes out of the chunks of a set. A chunk that cannot be punched keeps its space
    /// until it is repaired or deleted.
    fn punch(&self, layout: &SetLayout, dead: &mut [DeadStripe]) {
        dead.sort_unstable();
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for stripe in dead.iter() {
            let range = volume::record_range(stripe.record, stripe.block);
            match ranges.last_mut() {
                Some(last) if last.end == range.start => last.end = range.end,
                _ => ranges.push(range),
            }
        }
        self.punch_ranges(layout, ranges);
    }

    /// Punches ranges out of the chunks of a set that are on targets that answer.
    pub(crate) fn punch_ranges(&self, layout: &SetLayout, ranges: Vec<Range<u64>>) {
        let (targets, set) = (&self.store.targets, layout.set);
        let answering = Position::placed(&layout.places)
            .filter(|(_, id)| targets.get(*id).is_some() && targets.error(*id).is_none());
        targets.each(answering, move |position, target| {
            let file = TargetFile::Chunk { set, position };
            match ranges.iter().try_for_each(|range| target.allocate(file, Allocation::Punch(range.clone()))) {
                // A missing chunk is not a failure of its target.
                Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(()),
                done => done,
            }
        });
    }

    /// Deletes a sealed chunk set that has no stripes. Returns whether it did.
    pub(crate) fn delete_if_empty(&self, set: SetId) -> Result<bool> {
        let layout = match self.store.layout(set) {
            Err(Error::Meta(meta::Error::NotFound)) => return Ok(false),
            layout => layout?,
        };
        // A stripe that is on its way to the metadata has no record there yet.
        let busy =
            self.leases.is_held(set) || self.store.is_being_written(set) || !self.table.uncommitted_in(set).is_empty();
        if !busy && self.store.is_in_use(set) {
            // The set gets no more stripes. Sync it now, so that the next sync does not look for
            // deleted chunks. One that cannot be synced stays in use.
            self.store.sync_each()?;
        }
        if busy || self.store.is_in_use(set) {
            lock(&self.collector.busy).insert(set);
            return Ok(false);
        }
        let Some(_claim) = self.store.claims.try_take(set) else {
            lock(&self.collector.busy).insert(set);
            return Ok(false);
        };
        let (forgotten, seq) = self.engine()?.meta.forget_set(set)?;
        if !forgotten {
            return Ok(false);
        }
        self.meta.sync(seq)?;
        self.store.forget_layout(set);
        self.remove_chunks(set, Position::placed(&layout.places));
        Ok(true)
    }
}

impl FileSystem {
    /// Writes the bytes of some extents of a file into new stripes; returns the new extents. The
    /// caller holds the file's content lock. The pins keep the new sets until the extents are
    /// committed.
    pub(crate) fn store_extents(&self, ino: Ino, extents: &[Extent]) -> Result<(Vec<Extent>, Vec<Pin<'_>>)> {
        let (mut moved, mut pins) = (Vec::with_capacity(extents.len()), Vec::new());
        let mut waiting: VecDeque<Extent> = extents.iter().cloned().collect();
        while !waiting.is_empty() {
            let mut buffer = self.store.pool.take();
            let (mut pieces, mut inside) = (Vec::new(), Vec::new());
            while let Some(extent) = waiting.pop_front() {
                let space = self.store.stripe_bytes().saturating_sub(buffer.len() + 16 * pieces.len());
                if extent.length as usize > space && !inside.is_empty() {
                    waiting.push_front(extent);
                    break;
                }
                // An extent that is longer than a stripe should not exist; it is cut.
                let cut = extent.offset + extent.length.min(space as u64);
                if let Some(rest) = extent.clip(&(cut..extent.end())) {
                    waiting.push_front(rest);
                }
                let Some(extent) = extent.clip(&(extent.offset..cut)) else { continue };
                let mut bytes = vec![0; extent.length as usize];
                self.fill_place(&extent.place, &mut bytes)?;
                let start = buffer.len() as u32;
                buffer.extend_from_slice(&bytes);
                let file = if pieces.is_empty() { self.describe(ino) } else { None };
                pieces.push(Piece { ino, offset: extent.offset, length: extent.length, file });
                inside.push((extent, start));
            }
            let (Stored { set, record, block }, pin) = self.append_stripe(buffer, &manifest::encode(&pieces))?;
            pins.push(pin);
            moved.extend(inside.into_iter().map(|(extent, start)| Extent {
                place: ExtentPlace::Stripe(Span { set, record, block, start }),
                ..extent
            }));
        }
        Ok((moved, pins))
    }
}
