//! The repair of a run: which sets begin, and what becomes of them.

use super::Run;
use crate::chance::exponential;
use crate::years::events::What;
use crate::years::repairs::positions;
use plan::{Position, TargetId};

impl Run<'_> {
    /// Begins the queue anew with what is known to be missing.
    pub(super) fn plan_repairs(&mut self) {
        self.chooser.handle_interval();
        let table = &self.table;
        let places = |set: u32| {
            let mut places = Vec::with_capacity(table.width());
            table.read(set as usize, &mut places);
            places
        };
        self.repairs.plan(&self.degraded, places);
    }

    /// Begins as many repairs as may run.
    pub(super) fn repair(&mut self) {
        while let Some(degraded) = self.repairs.next() {
            self.begin(degraded);
        }
    }

    fn begin(&mut self, mut degraded: plan::repair::Degraded) {
        let set = degraded.set.0 as u32;
        let Some(&lacks) = self.degraded.get(&set).filter(|lacks| lacks.known != 0 && lacks.rebuilding == 0) else {
            return;
        };
        // Others may have moved since the queue was made.
        self.table.read(set as usize, &mut degraded.places);
        degraded.lost = positions(lacks.known).map(Position::at).collect();
        let k = self.config.volume.k as usize;
        let readable = |(position, id): &(Position, TargetId)| {
            let store = usize::from(id.0);
            lacks.lost >> position.index() & 1 == 0 && !self.gone[store] && !self.away[store]
        };
        let there: Vec<TargetId> = Position::placed(&degraded.places).filter(readable).map(|(_, id)| id).collect();
        if there.len() < k {
            // Until somebody is back.
            return;
        }
        let sources = self.repairs.sources(there, k);
        self.until_latent -= sources.len() as f64;
        if self.until_latent < 0.0 {
            // One of those that are read has a bad sector: that chunk is lost, and others are read.
            self.until_latent = exponential(&mut self.random, self.latent_mean);
            self.seen.latent += 1;
            let bad = degraded.places.iter().position(|place| *place == sources.first().copied());
            let position = bad.expect("a source is one of the places");
            if let Some(id) = degraded.places[position] {
                let chunks = &mut self.cluster.stores[usize::from(id.0)].chunks;
                *chunks = chunks.saturating_sub(1);
            }
            self.lose_chunk(set, position);
            if let Some(lacks) = self.degraded.get_mut(&set) {
                lacks.known |= 1 << position;
                self.begin(degraded);
            }
            return;
        }
        let found = self.chooser.destinations(&self.cluster, &degraded);
        let with_life = |(position, to): (&Position, Option<TargetId>)| {
            Some((position.index(), to?, self.lives[usize::from(to?.0)]))
        };
        let to: Vec<(usize, TargetId, u32)> = degraded.lost.iter().zip(found).filter_map(with_life).collect();
        if to.is_empty() {
            return;
        }
        let end = self.repairs.begin(self.now, sources.iter().copied().chain(to.iter().map(|(_, id, _)| *id)));
        if let Some(lacks) = self.degraded.get_mut(&set) {
            lacks.rebuilding = to.iter().fold(0, |bits, (position, ..)| bits | 1 << position);
        }
        self.work.insert(set, (to, sources));
        self.events.push(end, What::Rebuilt(set));
    }

    pub(super) fn rebuilt(&mut self, set: u32) {
        self.repairs.running -= 1;
        let Some((to, sources)) = self.work.remove(&set) else { return };
        // A set that was lost meanwhile is not there.
        let Some(mut lacks) = self.degraded.get(&set).copied() else { return };
        let before = lacks.lost.count_ones();
        let good = sources.iter().all(|id| self.is_there(*id) && self.holds(set, *id, lacks.lost));
        lacks.rebuilding = 0;
        for (position, id, life) in to {
            let bit = 1u64 << position;
            if !good || !self.is_there(id) || self.lives[usize::from(id.0)] != life {
                lacks.known |= bit;
                continue;
            }
            let was = self.table.at(set as usize, position);
            self.table.put(set as usize, position, Some(id));
            self.cluster.stores[usize::from(id.0)].chunks += 1;
            match was {
                Some(was) if lacks.lost & bit != 0 => self.found(was),
                // One that is away has a chunk too many, which is removed when it is back.
                Some(was) => {
                    let chunks = &mut self.cluster.stores[usize::from(was.0)].chunks;
                    *chunks = chunks.saturating_sub(1);
                }
                None => {}
            }
            lacks.lost &= !bit;
            lacks.known &= !bit;
            self.seen.rebuilt += 1;
        }
        self.seen.exposure.change(before, lacks.lost.count_ones());
        if lacks.lost | lacks.known == 0 {
            self.degraded.remove(&set);
        } else {
            self.degraded.insert(set, lacks);
            if !good {
                self.plan_repairs();
            }
        }
    }

    /// Whether a store answers, with its data.
    fn is_there(&self, id: TargetId) -> bool {
        !self.gone[usize::from(id.0)] && !self.away[usize::from(id.0)]
    }

    /// Whether a store still has its chunk of the set.
    fn holds(&self, set: u32, id: TargetId, lost: u64) -> bool {
        (0..self.table.width())
            .any(|position| lost >> position & 1 == 0 && self.table.at(set as usize, position) == Some(id))
    }
}
