//! Repair: the chunk sets with the least redundancy first, several at a time. Rebuilt blocks are
//! checked before they count.

use crate::data::counts::Shown;
use crate::{FileSystem, Result};
use meta::SetRecord;
use plan::placement::share_lost;
use plan::repair::{Degraded, at_a_time, destinations, order};
use plan::{Position, RecordOffset, SetId, TargetId};
use std::collections::BTreeMap;
use std::sync::Mutex;
use volume::{Control, lock};

/// The result of a repair.
#[derive(Clone, Debug, Default)]
pub struct Repaired {
    /// Chunks that were rebuilt.
    pub chunks: usize,
    /// Bytes of blocks that were rebuilt.
    pub bytes: u64,
    /// Bytes of blocks that stores rebuilt themselves.
    pub by_stores: u64,
    /// Rebuilt blocks that were checked against a surviving block that was not used to compute
    /// them.
    pub witnessed: u64,
    /// Rebuilt blocks for which there was no such survivor.
    pub unwitnessed: u64,
    /// Chunk sets that could not be repaired, with the reason.
    pub failed: Vec<(SetId, String)>,
}

impl Repaired {
    /// Adds the result of another repair.
    pub(crate) fn add(&mut self, more: Self) {
        self.chunks += more.chunks;
        self.bytes += more.bytes;
        self.by_stores += more.by_stores;
        self.witnessed += more.witnessed;
        self.unwitnessed += more.unwitnessed;
        self.failed.extend(more.failed);
    }

    fn and(mut self, more: Self) -> Self {
        self.add(more);
        self
    }
}

/// The state that the threads of a repair share.
struct Shared<'a> {
    queue: Mutex<std::vec::IntoIter<Degraded>>,
    /// Bytes on targets that are reserved for chunks being rebuilt.
    promised: Mutex<BTreeMap<TargetId, u64>>,
    control: &'a Control,
    shown: Shown<'a>,
}

/// Reserved space for the wanted positions of a set on their targets, until it is dropped.
struct Promise<'a> {
    promised: &'a Mutex<BTreeMap<TargetId, u64>>,
    wanted: Vec<(Position, TargetId)>,
    bytes: u64,
}

impl Shared<'_> {
    /// Calls `choose` with the reserved bytes of all targets to choose targets for positions, and
    /// reserves this many bytes on each.
    fn promise(
        &self,
        bytes: u64,
        choose: impl FnOnce(&BTreeMap<TargetId, u64>) -> Vec<(Position, TargetId)>,
    ) -> Promise<'_> {
        let mut promised = lock(&self.promised);
        let wanted = choose(&promised);
        wanted.iter().for_each(|(_, id)| *promised.entry(*id).or_default() += bytes);
        Promise { promised: &self.promised, wanted, bytes }
    }
}

impl Drop for Promise<'_> {
    fn drop(&mut self) {
        let mut promised = lock(self.promised);
        for (_, id) in &self.wanted {
            promised.entry(*id).and_modify(|bytes| *bytes -= self.bytes);
        }
    }
}

impl FileSystem {
    /// Rebuilds everything that is missing or known to be damaged: chunks on targets that are gone,
    /// chunks that do not exist under their names, and what readers, writers and verifications
    /// found.
    ///
    /// # Errors
    /// When it was cancelled or the metadata cannot be written. A chunk set that cannot be repaired
    /// is part of the result.
    pub fn repair(&self, control: &Control) -> Result<Repaired> {
        self.writable()?;
        self.queue_astray()?;
        // A target that is out may answer for a moment. It counts as repaired after this.
        self.repair_where(control, |record, queued| {
            let mut lost = self.lost_positions(record, queued);
            let on_out =
                Position::placed(&record.places).filter(|&(_, id)| self.is_out(id)).map(|(position, _)| position);
            lost.extend(on_out);
            lost.sort_unstable();
            lost.dedup();
            lost
        })
    }

    /// Rebuilds only what writers, readers and verifications found missing or damaged: a target
    /// that is away may rejoin.
    ///
    /// # Errors
    /// As `repair`.
    pub fn repair_queued(&self, control: &Control) -> Result<Repaired> {
        self.repair_where(control, |_, queued| queued.to_vec())
    }

    /// How many chunk sets `repair_queued` would repair now: those that nothing writes to.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn count_queued(&self) -> Result<usize> {
        let queue = self.engine()?.meta.repairs()?;
        Ok(queue.into_iter().filter(|(set, _)| !self.is_busy(*set)).count())
    }

    /// Rebuilds or moves chunks: the positions that `which` returns for a set and its queued
    /// positions.
    pub(crate) fn repair_where(
        &self,
        control: &Control,
        which: impl Fn(&SetRecord, &[Position]) -> Vec<Position>,
    ) -> Result<Repaired> {
        self.writable()?;
        // A target that failed may work again; if it does not, it will fail again.
        for id in self.store.targets.ids() {
            if self.store.targets.error(id).is_some() {
                self.orphan_chunks.suspect(id);
                self.store.targets.forgive(id);
            }
        }
        self.engine()?.journal.retry();
        // The open set keeps changing: seal it, so that nothing is left out.
        self.store.seal_open()?;
        self.commit_possible()?;
        self.store.queue_damaged()?;
        let queue: BTreeMap<SetId, Vec<Position>> = self.engine()?.meta.repairs()?.into_iter().collect();
        let mut degraded = Vec::new();
        let mut total = 0;
        self.each_set(|set, record| {
            let lost = which(record, queue.get(&set).map_or(&[], Vec::as_slice));
            if !lost.is_empty() {
                let stripes = self.engine()?.meta.stripes(set)?;
                total += stripes.iter().map(|(_, s)| u64::from(s.block)).sum::<u64>() * lost.len() as u64;
                degraded.push(Degraded { set, places: record.places.clone(), lost });
            }
            Ok(())
        })?;
        order(&mut degraded);
        control.start(total);
        let shown = self.counts.repairs.begin(degraded.len(), control);
        let blocks = self.store.options.code.shape().blocks();
        let workers = at_a_time(self.store.targets.ids().len(), blocks).min(degraded.len());
        let shared = Shared { queue: Mutex::new(degraded.into_iter()), promised: Mutex::default(), control, shown };
        let done = std::thread::scope(|scope| {
            let work = || self.repair_queue(&shared);
            let others: Vec<_> = (1..workers).map(|_| scope.spawn(work)).collect();
            let mut done = work();
            for other in others {
                let more = other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                done = done.and_then(|done: Repaired| Ok(done.and(more?)));
            }
            done
        })?;
        drop(shared);
        self.forget_drained()?;
        self.remove_orphans_now()?;
        Ok(done)
    }

    /// Repairs one set after the other until the queue is empty.
    fn repair_queue(&self, shared: &Shared<'_>) -> Result<Repaired> {
        let mut done = Repaired::default();
        loop {
            let Some(set) = lock(&shared.queue).next() else { return Ok(done) };
            shared.control.go_on()?;
            if self.is_closed() {
                return Err(volume::Error::Interrupted.into());
            }
            shared.shown.next(set.set);
            let failed = match self.repair_set(&set, &mut done, shared) {
                Err(error @ crate::Error::Volume(volume::Error::Interrupted)) => return Err(error),
                // The collector may have deleted the set meanwhile.
                Ok(()) | Err(crate::Error::Meta(meta::Error::NotFound)) => None,
                Err(error) => Some(error.to_string()),
            };
            shared.shown.done(failed.is_none());
            done.failed.extend(failed.map(|why| (set.set, why)));
        }
    }

    /// Whether the chunks of a set must stay where they are: somebody writes to it, or may, or has
    /// to sync it. A repair leaves it in the queue.
    pub(crate) fn is_busy(&self, set: SetId) -> bool {
        self.store.is_being_written(set) || self.leases.is_held(set) || self.store.is_unsynced(set)
    }

    /// Queues what is missing of a set that cannot be repaired now. The targets that are out count
    /// as repaired after this repair, so nothing else would look for it.
    fn queue_missing(&self, degraded: &Degraded) -> Result<()> {
        let is_there = |position: &Position| {
            degraded.places[position.index()].is_some_and(|id| !self.is_out(id) && self.store.targets.is_usable(id))
        };
        let missing: Vec<Position> = degraded.lost.iter().copied().filter(|position| !is_there(position)).collect();
        if !missing.is_empty() {
            self.engine()?.meta.queue_repair(degraded.set, &missing)?;
        }
        Ok(())
    }

    fn repair_set(&self, found: &Degraded, done: &mut Repaired, shared: &Shared<'_>) -> Result<()> {
        let set = found.set;
        // A set without stripes has nothing to repair.
        if self.engine()?.meta.stripes(set)?.is_empty() && self.delete_if_empty(set)? {
            return Ok(());
        }
        let _claim = self.store.claims.take(set);
        // Another thread may have moved or repaired some of it meanwhile.
        let places = self.engine()?.meta.set(set)?.places;
        let is_still_there = |position: &Position| places.get(position.index()) == found.places.get(position.index());
        let lost: Vec<Position> = found.lost.iter().copied().filter(is_still_there).collect();
        if lost.is_empty() {
            return Ok(());
        }
        let degraded = &Degraded { set, places, lost };
        // A set that is full or given up may have uncommitted stripes, which are repaired, too.
        if self.is_busy(set) {
            return self.queue_missing(degraded);
        }
        let mut stripes: BTreeMap<RecordOffset, u32> = self.table.uncommitted_in(set);
        stripes.extend(self.engine()?.meta.stripes(set)?.iter().map(|(record, stripe)| (*record, stripe.block)));
        let stripes: Vec<(RecordOffset, u32)> = stripes.into_iter().collect();
        let need = stripes.last().map_or(0, |&(record, block)| volume::record_range(record, block).end);
        let topology = self.store.topology();
        let layout = self.store.layout_of(set, &self.engine()?.meta.set(set)?)?;
        let rules = topology.rules(layout.code.shape(), need);
        let promise = shared.promise(need, |promised| {
            let mut candidates = self.store.candidates();
            for candidate in &mut candidates {
                let taken = promised.get(&candidate.id).copied().unwrap_or(0);
                candidate.free = candidate.free.saturating_sub(taken);
            }
            let domain_of = |id| topology.domain(id);
            let mut chosen = destinations(degraded, &*topology.policy(), &candidates, &rules, domain_of);
            let most = topology.most_on_one(rules.width);
            if most > 1 {
                share_lost(degraded, &mut chosen, &candidates, &rules, most, domain_of);
            }
            // Those that go back were there before.
            let new = chosen.iter().flatten().filter(|id| !degraded.places.contains(&Some(**id)));
            self.store.balance.placed(&new.copied().collect::<Vec<_>>(), &candidates);
            let chosen = degraded.lost.iter().zip(chosen);
            chosen.filter_map(|(&position, target)| Some((position, target?))).collect()
        });
        let wanted = &promise.wanted;
        let homeless = degraded.lost.len() - wanted.len();
        if !wanted.is_empty() {
            let report = volume::rebuild(&self.store.targets, &layout, &stripes, wanted, shared.control)?;
            let seq = self.engine()?.meta.repaired(set, wanted)?;
            self.meta.sync(seq)?;
            self.store.forget_layout(set);
            // Remove a moved chunk from its old target.
            let old = |&(position, new): &(Position, TargetId)| {
                Some((position, layout.places[position.index()].filter(|&old| old != new)?))
            };
            self.remove_chunks(set, wanted.iter().filter_map(old));
            self.counts.repairs.rebuilt(stripes.len(), &report);
            done.add(Repaired {
                chunks: wanted.len(),
                bytes: report.bytes,
                by_stores: report.delegated,
                witnessed: report.witnessed,
                unwitnessed: report.unwitnessed,
                failed: Vec::new(),
            });
        }
        if homeless > 0 {
            return Err(crate::Error::Invalid(format!(
                "{homeless} of its chunks have no target to go to: too few others have space"
            )));
        }
        Ok(())
    }
}
