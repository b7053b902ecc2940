//! A fresh look at chunks: whether they are there under their names. A process that has them open reads on though somebody removed or replaced them, and would
//! say that all is well until it is started again.

use crate::{FileSystem, Result};
use meta::SetRecord;
use plan::TargetId;
use std::collections::BTreeMap;
use volume::target::{Presence, TargetFile};

/// Chunk sets that are looked at together: so much waits for a target at a time.
pub(crate) const AT_A_TIME: usize = 256;

/// Positions whose chunks are not there under their names, by chunk set.
pub(crate) type Astray = BTreeMap<u64, Vec<(u16, Presence)>>;

/// What is said of a chunk that is not there under its name; None of one that is.
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
    /// Looks at the chunks of these sets. What is known to be missing, as it is queued for repair, is left out, and so are targets that do not answer.
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

    /// Whether a chunk should be on a target still: it may have been moved meanwhile, and a set of which nothing is in use may have no chunks.
    fn is_missed(&self, set: u64, position: u16, id: TargetId) -> Result<bool> {
        let meta = &self.engine()?.meta;
        let record = match meta.set(set) {
            Err(meta::Error::NotFound) => return Ok(false),
            record => record?,
        };
        let is_here = record.places.get(usize::from(position)) == Some(&Some(id));
        Ok(is_here && meta.stripes(set)?.iter().any(|(_, stripe)| stripe.live > 0))
    }

    /// Looks at all chunks, and queues those for repair that are not there under their names.
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
