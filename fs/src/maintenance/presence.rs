//! Checks that chunks exist under their names. A process that has a chunk open can still read it
//! after another one removed or replaced it, and would report no problem until it is restarted.

use crate::{FileSystem, Result};
use meta::SetRecord;
use plan::{Position, SetId, TargetId};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use volume::lock;
use volume::target::{Presence, TargetFile};

/// The number of chunk sets that are checked together: this much waits for a target at a time.
pub(crate) const SETS_PER_CHECK: usize = 256;

/// Positions whose chunks do not exist under their names, by chunk set.
pub(crate) type Astray = BTreeMap<SetId, Vec<(Position, Presence)>>;

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
    pub(crate) fn look_at(
        &self,
        sets: &[(SetId, SetRecord)],
        queue: &BTreeMap<SetId, Vec<Position>>,
    ) -> Result<Astray> {
        Ok(self.ask_for(sets, queue)?.0)
    }

    /// As `look_at`. Also returns the targets that answered.
    fn ask_for(
        &self,
        sets: &[(SetId, SetRecord)],
        queue: &BTreeMap<SetId, Vec<Position>>,
    ) -> Result<(Astray, BTreeSet<TargetId>)> {
        let mut asked: BTreeMap<TargetId, Vec<(SetId, Position)>> = BTreeMap::new();
        for (set, record) in sets {
            let queued = queue.get(set).map_or(&[][..], Vec::as_slice);
            for (position, id) in Position::placed(&record.places).filter(|(position, _)| !queued.contains(position)) {
                asked.entry(id).or_default().push((*set, position));
            }
        }
        // A check of many sets waits only once for a target that hangs.
        asked.retain(|id, _| self.store.targets.get(*id).is_some() && !self.store.targets.hangs(*id));
        let files = |chunks: &Vec<(SetId, Position)>| {
            chunks.iter().map(|&(set, position)| TargetFile::Chunk { set, position }).collect()
        };
        let wanted: BTreeMap<TargetId, Vec<TargetFile>> =
            asked.iter().map(|(id, chunks)| (*id, files(chunks))).collect();
        let places: Vec<(TargetId, TargetId)> = asked.keys().map(|id| (*id, *id)).collect();
        let looked = self.store.targets.each(places, move |id, target| target.look(&wanted[&id]));
        let (mut astray, mut answered) = (Astray::new(), BTreeSet::new());
        for (_, id, found) in looked {
            let Ok(found) = found else { continue };
            answered.insert(id);
            for (&(set, position), presence) in asked[&id].iter().zip(found) {
                if presence != Presence::There && self.is_missed(set, position, id)? {
                    astray.entry(set).or_default().push((position, presence));
                }
            }
        }
        Ok((astray, answered))
    }

    /// Checks the chunks of all sets and remembers which are astray. Returns the number of sets.
    pub(crate) fn look_at_all(&self, queue: &BTreeMap<SetId, Vec<Position>>) -> Result<usize> {
        let (mut from, mut looked) = (SetId::default(), 0);
        loop {
            let (end, sets) = self.look_from(from, queue)?;
            looked += sets;
            match end {
                Some(end) => from = end,
                None => return Ok(looked),
            }
        }
    }

    /// Checks again what is astray, and the sets from `next` on, which then is where the following
    /// call goes on. Returns the number of these sets.
    pub(crate) fn look_further(&self, next: &mut SetId, queue: &BTreeMap<SetId, Vec<Position>>) -> Result<usize> {
        let known: Vec<SetId> = lock(&self.census.astray).keys().copied().collect();
        for numbers in known.chunks(SETS_PER_CHECK) {
            let mut sets = Vec::new();
            for &set in numbers {
                match self.engine()?.meta.set(set) {
                    Ok(record) => sets.push((set, record)),
                    Err(meta::Error::NotFound) => _ = lock(&self.census.astray).remove(&set),
                    Err(error) => return Err(error.into()),
                }
            }
            self.remember(&sets, queue)?;
        }
        let (end, looked) = self.look_from(*next, queue)?;
        *next = end.unwrap_or_default();
        Ok(looked)
    }

    /// Checks the chunks of the next sets from a number on, and remembers which are astray. Returns
    /// where the sets after these begin, if there may be any, and the number of these.
    fn look_from(&self, from: SetId, queue: &BTreeMap<SetId, Vec<Position>>) -> Result<(Option<SetId>, usize)> {
        let sets = self.engine()?.meta.sets(from, SETS_PER_CHECK)?;
        let end = sets.last().filter(|_| sets.len() == SETS_PER_CHECK).map(|(last, _)| last.next());
        self.remember(&sets, queue)?;
        self.forget_deleted(from..end.unwrap_or(SetId::MAX), &sets);
        Ok((end, sets.len()))
    }

    /// Checks the chunks of these sets and remembers which are astray. A chunk on a target that
    /// does not answer is as it was found before.
    fn remember(&self, sets: &[(SetId, SetRecord)], queue: &BTreeMap<SetId, Vec<Position>>) -> Result<()> {
        let (mut found, answered) = self.ask_for(sets, queue)?;
        let mut known = lock(&self.census.astray);
        for (set, record) in sets {
            let queued = queue.get(set).map_or(&[][..], Vec::as_slice);
            let silent = |position: Position| {
                let id = record.places.get(position.index()).copied().flatten();
                id.is_some_and(|id| !answered.contains(&id)) && !queued.contains(&position)
            };
            let mut now = found.remove(set).unwrap_or_default();
            now.extend(known.remove(set).into_iter().flatten().filter(|(position, _)| silent(*position)));
            if !now.is_empty() {
                known.insert(*set, now);
            }
        }
        Ok(())
    }

    /// Forgets the sets with these numbers that do not exist any more.
    fn forget_deleted(&self, numbers: Range<SetId>, sets: &[(SetId, SetRecord)]) {
        let mut known = lock(&self.census.astray);
        let exists = |set: &SetId| sets.binary_search_by_key(set, |(set, _)| *set).is_ok();
        let gone: Vec<SetId> = known.range(numbers).map(|(set, _)| *set).filter(|set| !exists(set)).collect();
        gone.iter().for_each(|set| _ = known.remove(set));
    }

    /// Whether a chunk should still be on a target: it may have been moved meanwhile, and a set
    /// without stripes in use may have no chunks.
    pub(crate) fn is_missed(&self, set: SetId, position: Position, id: TargetId) -> Result<bool> {
        let meta = &self.engine()?.meta;
        let record = match meta.set(set) {
            Err(meta::Error::NotFound) => return Ok(false),
            record => record?,
        };
        let is_here = record.places.get(position.index()) == Some(&Some(id));
        Ok(is_here && meta.stripes(set)?.iter().any(|(_, stripe)| stripe.live > 0))
    }

    /// Checks all chunks, and queues those for repair that do not exist under their names.
    pub(crate) fn queue_astray(&self) -> Result<()> {
        let queue: BTreeMap<SetId, Vec<Position>> = self.engine()?.meta.repairs()?.into_iter().collect();
        let mut from = SetId::default();
        loop {
            let sets = self.engine()?.meta.sets(from, SETS_PER_CHECK)?;
            let Some((last, _)) = sets.last() else { return Ok(()) };
            from = last.next();
            for (set, found) in self.look_at(&sets, &queue)? {
                let positions: Vec<Position> = found.into_iter().map(|(position, _)| position).collect();
                self.meta.queue_repair(set, &positions)?;
            }
        }
    }
}
