//! Repair: chunk set by chunk set, the least redundant first; what is made again is checked before it counts.

use crate::{FileSystem, Result};
use meta::SetRecord;
use plan::TargetId;
use plan::repair::{Degraded, destinations, order};
use std::collections::BTreeMap;
use volume::Control;

/// What a repair did.
#[derive(Clone, Debug, Default)]
pub struct Repaired {
    /// Chunks that were made again.
    pub chunks: usize,
    /// Bytes of blocks that were made again.
    pub bytes: u64,
    /// Blocks that were checked against a survivor that they were not made from.
    pub witnessed: u64,
    /// Blocks for which there was no such survivor.
    pub unwitnessed: u64,
    /// Chunk sets that could not be repaired, and why.
    pub failed: Vec<(u64, String)>,
}

impl Repaired {
    /// With what another repair did.
    pub(crate) fn add(&mut self, more: Self) {
        self.chunks += more.chunks;
        self.bytes += more.bytes;
        self.witnessed += more.witnessed;
        self.unwitnessed += more.unwitnessed;
        self.failed.extend(more.failed);
    }
}

impl FileSystem {
    /// Makes everything again that is known to be missing or damaged: chunks on targets that are gone, and what readers, writers and
    /// verifications found.
    ///
    /// # Errors
    /// When it was cancelled or the metadata cannot be written; a chunk set that cannot be repaired is in the result.
    pub fn repair(&self, control: &Control) -> Result<Repaired> {
        self.repair_where(control, |record, queued| self.lost_positions(record, queued))
    }

    /// Makes again what writers, readers and verifications found missing or damaged, and nothing else: a target that is away may come back.
    ///
    /// # Errors
    /// As `repair`.
    pub fn repair_queued(&self, control: &Control) -> Result<Repaired> {
        self.repair_where(control, |_, queued| queued.iter().map(|&position| usize::from(position)).collect())
    }

    /// How many chunk sets `repair_queued` would repair now: nobody writes to them.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn count_queued(&self) -> Result<usize> {
        let queue = self.engine()?.meta.repairs()?;
        let free = |set: u64| !self.leases.is_held(set) && !self.store.is_being_written(set);
        Ok(queue.into_iter().filter(|(set, _)| free(*set)).count())
    }

    /// Makes chunks again, or moves them: the positions that `which` names, given a set and what is queued of it.
    pub(crate) fn repair_where(
        &self,
        control: &Control,
        which: impl Fn(&SetRecord, &[u16]) -> Vec<usize>,
    ) -> Result<Repaired> {
        self.writable()?;
        // What failed once may be whole again; what fails again will be noticed again.
        for id in self.store.targets.ids() {
            if self.store.targets.error(id).is_some() {
                self.strays.suspect(id);
                self.store.targets.forgive(id);
            }
        }
        self.engine()?.journal.retry();
        // The open set goes on changing: it is sealed, so that nothing is left out.
        self.store.seal_open()?;
        self.sync_all()?;
        for (set, position) in self.store.take_damaged() {
            self.meta.queue_repair(set, &[position])?;
        }
        let queue: BTreeMap<u64, Vec<u16>> = self.engine()?.meta.repairs()?.into_iter().collect();
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
        let mut done = Repaired::default();
        let shown = self.counts.repairs.begin(degraded.len(), control);
        for set in degraded {
            control.go_on()?;
            shown.next(set.set);
            let failed = match self.repair_set(&set, &mut done, control) {
                Err(error @ crate::Error::Volume(volume::Error::Interrupted)) => return Err(error),
                // The collector may have deleted it meanwhile.
                Ok(()) | Err(crate::Error::Meta(meta::Error::NotFound)) => None,
                Err(error) => Some(error.to_string()),
            };
            shown.done(failed.is_none());
            done.failed.extend(failed.map(|why| (set.set, why)));
        }
        drop(shown);
        self.forget_drained()?;
        self.remove_strays_now()?;
        Ok(done)
    }

    fn repair_set(&self, degraded: &Degraded, done: &mut Repaired, control: &Control) -> Result<()> {
        let set = degraded.set;
        // A set without stripes has nothing to repair.
        if self.engine()?.meta.stripes(set)?.is_empty() && self.delete_if_empty(set)? {
            return Ok(());
        }
        let _claim = self.store.claims.take(set);
        // Somebody else repaired it meanwhile.
        if self.engine()?.meta.set(set)?.places != degraded.places {
            return Ok(());
        }
        // What is being written stays in the queue; a set that is full or given up has what is not committed yet, too.
        if self.store.is_being_written(set) || self.leases.is_held(set) {
            return Ok(());
        }
        let mut stripes: BTreeMap<u32, u32> = self.table.uncommitted_in(set);
        stripes.extend(self.engine()?.meta.stripes(set)?.iter().map(|(record, stripe)| (*record, stripe.block)));
        let stripes: Vec<(u32, u32)> = stripes.into_iter().collect();
        let need = stripes.last().map_or(0, |&(record, block)| volume::record_range(record, block).end);
        let topology = self.store.topology();
        let (candidates, policy) = (self.store.candidates(), topology.policy());
        let rules = topology.rules(self.store.layout(set)?.code.shape(), need);
        let destinations = destinations(degraded, &*policy, &candidates, &rules, |id| topology.domain(id));
        let (mut wanted, mut homeless) = (Vec::new(), 0);
        for (&position, destination) in degraded.lost.iter().zip(destinations) {
            match destination {
                Some(target) => wanted.push((position, target)),
                None => homeless += 1,
            }
        }
        let layout = self.store.layout(set)?;
        if !wanted.is_empty() {
            let report = volume::rebuild(&self.store.targets, &layout, &stripes, &wanted, control)?;
            let made: Vec<(u16, TargetId)> = wanted.iter().map(|&(p, target)| (p as u16, target)).collect();
            let seq = self.engine()?.meta.repaired(set, &made)?;
            self.meta.sync(seq)?;
            self.store.forget_layout(set);
            // A chunk that was moved leaves its old place.
            let old = |&(position, new): &(usize, TargetId)| {
                Some((position, layout.places[position].filter(|&old| old != new)?))
            };
            self.remove_chunks(set, wanted.iter().filter_map(old));
            self.counts.repairs.rebuilt(stripes.len(), report.bytes);
            done.chunks += wanted.len();
            done.bytes += report.bytes;
            done.witnessed += report.witnessed;
            done.unwitnessed += report.unwitnessed;
        }
        if homeless > 0 {
            return Err(crate::Error::Invalid(format!(
                "{homeless} of its chunks have no target to go to; add one with weft target add or replace"
            )));
        }
        Ok(())
    }
}
