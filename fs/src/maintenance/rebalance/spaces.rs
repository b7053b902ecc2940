//! The space of the targets, as rebalancing sees it.

use crate::data::store::NEW_CHUNK_BYTES;
use crate::volume::label::Role;
use crate::{FileSystem, Result};
use meta::SetRecord;
use plan::TargetId;
use plan::membership::TargetState;
use plan::placement::TargetCandidate;
use plan::placement::rebalance::Balance;
use std::collections::BTreeMap;
use volume::Answer;
use volume::format::CHUNK_HEADER_BYTES;
use volume::target::Space;

/// What moves leave free on a target, as a part of its capacity, but no less than a new chunk
/// needs.
const RESERVE_DIVISOR: u64 = 20;

/// The bytes that each chunk of a set takes, at most: stripes that are gone left holes.
pub(super) fn chunk_bytes(record: &SetRecord) -> u64 {
    u64::from(record.length).max(CHUNK_HEADER_BYTES as u64)
}

/// The capacity and the free space of a target that shares a file system with others: its part of
/// the capacity, of which its own chunks are used, and its part of what else is used.
fn part_of(space: Space, sharers: u64, chunks_of_all: u64, chunks: u64) -> (u64, u64) {
    if sharers <= 1 {
        return (space.total, space.free);
    }
    let (used, total) = (space.total.saturating_sub(space.free), space.total / sharers);
    let own = used.saturating_sub(chunks_of_all) / sharers + chunks;
    (total, total.saturating_sub(own))
}

/// The free space of a target, of which chunks count exactly, and all else in large units: the
/// metadata grows all the time, and one of its mirrors has the last of it a moment after the
/// others. Such differences move no chunk.
fn steady(total: u64, free: u64, chunks: u64) -> u64 {
    let used = total.saturating_sub(free);
    let others = (used.abs_diff(chunks) + NEW_CHUNK_BYTES / 2) / NEW_CHUNK_BYTES * NEW_CHUNK_BYTES;
    let used = if used >= chunks { chunks + others } else { chunks.saturating_sub(others) };
    total.saturating_sub(used)
}

/// Gives all targets of a file system the same reading of it: others write to it meanwhile, and
/// what they wrote between two readings is no difference between targets.
fn read_once(spaces: &mut BTreeMap<TargetId, Space>) {
    let mut first: BTreeMap<u64, Space> = BTreeMap::new();
    spaces.values_mut().for_each(|space| *space = *first.entry(space.system).or_insert(*space));
}

impl FileSystem {
    /// The targets with their space now.
    fn targets_to_balance(&self) -> Result<Vec<TargetCandidate>> {
        let mut chunks: BTreeMap<TargetId, u64> = BTreeMap::new();
        self.each_set(|_, record| {
            let bytes = chunk_bytes(record);
            record.places.iter().flatten().for_each(|id| *chunks.entry(*id).or_default() += bytes);
            Ok(())
        })?;
        let mut spaces: BTreeMap<TargetId, Space> = self
            .store
            .targets
            .reported_spaces(true)
            .into_iter()
            .filter(|reported| reported.answer == Answer::Given)
            .filter_map(|reported| Some((reported.id, reported.space?)))
            .collect();
        read_once(&mut spaces);
        let mut systems: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        for (id, space) in &spaces {
            let (sharers, bytes) = systems.entry(space.system).or_default();
            *sharers += 1;
            *bytes += chunks.get(id).copied().unwrap_or(0);
        }
        let (topology, label, targets) = (self.store.topology(), self.volume.label(), &self.store.targets);
        let candidate = |member: &crate::volume::label::Member| {
            let (id, space) = (member.id, spaces.get(&member.id).copied());
            let (total, free) = space.map_or((0, 0), |space| {
                let (sharers, of_all) = systems[&space.system];
                let own = chunks.get(&id).copied().unwrap_or(0);
                let (total, free) = part_of(space, sharers, of_all, own);
                (total, steady(total, free, own))
            });
            let works = space.is_some() && targets.is_usable(id) && targets.error(id).is_none() && !targets.hangs(id);
            let state = match member.role {
                // A drain of its own empties it.
                Role::Draining | Role::Removed => TargetState::Out,
                Role::Active if works => TargetState::Up,
                Role::Active if self.is_out(id) => TargetState::Out,
                Role::Active => TargetState::Down,
            };
            TargetCandidate { state, ..topology.candidate(id, free, total) }
        };
        Ok(label.members().map(candidate).collect())
    }

    /// What each target has and should have now.
    pub(super) fn survey(&self) -> Result<Balance> {
        Ok(self.survey_with_absence()?.0)
    }

    /// The same, and whether targets are left out that do not work or have not answered in time.
    pub(super) fn survey_with_absence(&self) -> Result<(Balance, bool)> {
        let targets = self.targets_to_balance()?;
        let are_absent = targets.iter().any(|target| target.state == TargetState::Down);
        let smallest = targets.iter().map(|target| target.total).filter(|total| *total > 0).min().unwrap_or(0);
        let reserve = (smallest / RESERVE_DIVISOR).max(NEW_CHUNK_BYTES);
        let near = self.store.topology().near().cloned();
        let mut balance = Balance::new(&targets, self.placement().domain_level, reserve).near(near);
        self.each_set(|set, record| {
            if self.may_move(set, record) {
                balance.count(&self.set_places(set, record, &record.places)?);
            }
            Ok(())
        })?;
        balance.begin();
        Ok((balance, are_absent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_shares_a_file_system_has_a_part_of_it() {
        let space = Space { total: 1000, free: 600, system: 1 };
        assert_eq!(part_of(space, 1, 300, 300), (1000, 600));
        // 300 of 400 are chunks: of four, one has 200 of them, and a quarter of the other 100.
        assert_eq!(part_of(space, 4, 300, 200), (250, 25));
        assert_eq!(part_of(space, 4, 300, 0), (250, 225));
        // Chunks have holes: their lengths are no measure.
        assert_eq!(part_of(space, 4, 500, 300), (250, 0));
    }

    #[test]
    fn what_the_metadata_takes_is_no_difference_between_targets() {
        let total = 100 * NEW_CHUNK_BYTES;
        let chunks = 7 * NEW_CHUNK_BYTES + 5;
        let free = |others: u64| steady(total, total - chunks - others, chunks);
        assert_eq!([free(0), free(48), free(NEW_CHUNK_BYTES / 2 - 1)], [total - chunks; 3]);
        assert_eq!(free(NEW_CHUNK_BYTES * 3 / 2), total - chunks - 2 * NEW_CHUNK_BYTES);
        // Chunks have holes.
        assert_eq!(steady(total, total - chunks + 48, chunks), total - chunks);
        assert_eq!(steady(total, total, chunks), total - 5);
        assert_eq!(steady(0, 0, 0), 0);
    }

    #[test]
    fn targets_of_a_file_system_see_it_at_one_time() {
        let space = |free, system| Space { total: 1000, free, system };
        let mut spaces: BTreeMap<TargetId, Space> = [space(600, 1), space(300, 2), space(580, 1)]
            .into_iter()
            .enumerate()
            .map(|(id, it)| (TargetId(id as u16), it))
            .collect();
        read_once(&mut spaces);
        assert_eq!(spaces.values().map(|it| it.free).collect::<Vec<_>>(), [600, 300, 600]);
    }
}
