//! Checks that chunks exist under their names. A process that has a chunk open can still read it
//! after another one removed or replaced it, and would report no problem until it is restarted.

use crate::{FileSystem, Result};
use meta::SetRecord;
use plan::TargetId;
use std::collections::BTreeMap;
use volume::target::{Presence, TargetFile};

/// The number of chunk sets that are checked together: this much waits for a target at a time.
pub(crate) const AT_A_TIME: usize = 256;

/// Positions whose chunks do not exist under their names, by chunk set.
pub(crate) type Astray = BTreeMap<u64, Vec<(u16, Presence)>>;

/// The problem with a chunk that does not exist under its name; None if it does.
pub(crate) fn problem(presence: Presence) -> Option<&'static str> {
    match presence {
        Presence::There => None,
        Presence::Absent => Some("its chunk is missing"),
        Presence::Unnamed => Some(
            "its chunk was removed or replaced while it was in use; what it had can be read until this process ends",
        ),
    }
}

impl FileSystem {
    /// Checks the chunks of these sets. Leaves out positions that are queued for repair, and
    /// targets that do not answer.
    pub(crate) fn look_at(&self, sets: &[(u64, SetRecord)], queue: &BTreeMap<u64, Vec<u16>>) -> Result<Astray> {
        let mut asked: BTreeMap<TargetId, Vec<(u64, u16)>> = BTreeMap::new();
        for (set, record) in sets {
            let queued = queue.get(set).map_or(&[][..], Vec::as_slice);
            let places = record.places.iter().enumerate().filter_map(|(position, id)| Some((position as u16, (*id)?)));
            for (position, id) in places.filter(|(position, _)| !queued.contains(position)) {
                asked.entry(id).or_default().push((*set, position));
            }
        }
        asked.retain(|id, _| self.store.targets.get(*id).is_some());
        let wanted: BTreeMap<usize, Vec<TargetFile>> = asked
            .iter()
            .map(|(id, chunks)| {
                let files = chunks.iter().map(|&(set, position)| TargetFile::Chunk { set, position });
                (usize::from(id.0), files.collect())
            })
            .collect();
        let places: Vec<(usize, TargetId)> = asked.keys().map(|id| (usize::from(id.0), *id)).collect();
        let looked = self.store.targets.each(places, move |number, target| target.look(&wanted[&number]));
        let mut astray = Astray::new();
        for (_, id, found) in looked {
            for (&(set, position), presence) in asked[&id].iter().zip(found.unwrap_or_default()) {
                if presence != Presence::There && self.is_missed(set, position, id)? {
                    astray.entry(set).or_default().push((position, presence));
                }
            }
        }
        Ok(astray)
    }

    /// Whether a chunk should still be on a target: it may have been moved meanwhile, and a set
    /// without stripes in use may have no chunks.
    fn is_missed(&self, set: u64, position: u16, id: TargetId) -> Result<bool> {
        let meta = &self.engine()?.meta;
        let record = match meta.set(set) {
            Err(meta::Error::NotFound) => return Ok(false),
            record => record?,
        };
        let is_here = record.places.get(usize::from(position)) == Some(&Some(id));
        Ok(is_here && meta.stripes(set)?.iter().any(|(_, stripe)| stripe.live > 0))
    }

    /// Checks all chunks, and queues those for repair that do not exist under their names.
    pub(crate) fn queue_astray(&self) -> Result<()> {
        let queue: BTreeMap<u64, Vec<u16>> = self.engine()?.meta.repairs()?.into_iter().collect();
        let mut from = 0;
        loop {
            let sets = self.engine()?.meta.sets(from, AT_A_TIME)?;
            let Some((last, _)) = sets.last() else { return Ok(()) };
            from = last + 1;
            for (set, found) in self.look_at(&sets, &queue)? {
                let positions: Vec<u16> = found.into_iter().map(|(position, _)| position).collect();
                self.meta.queue_repair(set, &positions)?;
            }
        }
    }
}
