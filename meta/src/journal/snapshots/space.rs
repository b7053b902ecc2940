//! Free space on the mirrors. A snapshot must fit beside the old one before the journal gets
//! shorter, so space for one is reserved. When less is free, the caller must refuse changes that
//! make the metadata grow, and snapshots are made more often, so that removals soon free space.
//! What m+1 mirrors have counts: one more that has less is given up by the first commit or snapshot
//! that does not fit on it.

use super::super::mirrors::worker::{Job, Worker, all};
use super::super::options::MirrorTarget;
use super::super::shared::Shared;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use volume::lock;
use volume::target::Space;

/// The shortest time between two snapshots made for lack of space, and the same as a multiple of
/// the time that a snapshot takes.
const MIN_SNAPSHOT_INTERVAL: Duration = Duration::from_secs(2);
const PAUSE_FACTOR: u32 = 10;

/// Measures the free space on the mirrors.
#[derive(Default)]
pub(in crate::journal) struct Gauge {
    generation: u64,
    mirrors: Vec<(MirrorTarget, Worker)>,
}

impl Gauge {
    /// Records how much space there is beyond what is needed, and requests a snapshot when there is
    /// little.
    pub fn look(&mut self, shared: &Shared) {
        let mirrors = {
            let files = shared.files();
            (files.generation != self.generation).then(|| (files.generation, files.mirrors.clone()))
        };
        if let Some((generation, places)) = mirrors {
            let start = |place: MirrorTarget| Some((place.clone(), Worker::start(place.1).ok()?));
            (self.generation, self.mirrors) = (generation, places.into_iter().filter_map(start).collect());
        }
        // What is committed meanwhile may count twice, which is better than not at all.
        let before = shared.slack.load(Ordering::Relaxed);
        let free = self.free(shared);
        // Some systems report as much as a number can say.
        let Some(free) = free.map(|free| free.min(i64::MAX.unsigned_abs() / 4)) else { return };
        let (slack, due) = {
            let files = shared.files();
            let slack = (free + files.underway).cast_signed() - files.need(&shared.limits).cast_signed();
            let tight = slack < 2 * shared.limits.segment_bytes.cast_signed();
            let much = files.grown() >= shared.limits.segment_bytes.max(files.snapshot_bytes / 8);
            let rested = files.last_try.is_none_or(|(begun, took, made)| {
                made && much || begun.elapsed() >= took + MIN_SNAPSHOT_INTERVAL.max(took * PAUSE_FACTOR)
            });
            (slack, tight && files.grown() > 0 && rested)
        };
        let since = before - shared.slack.load(Ordering::Relaxed);
        shared.slack.store(slack - since, Ordering::Relaxed);
        if due {
            shared.task(|tasks| tasks.snapshot = true);
        }
    }

    /// The space that enough mirrors have free, in bytes. A mirror that does not answer is left
    /// out, and not asked again until the mirrors change.
    fn free(&mut self, shared: &Shared) -> Option<u64> {
        let spaces: Arc<Mutex<BTreeMap<usize, Space>>> = Arc::default();
        let job = |number: usize| -> Job {
            let spaces = spaces.clone();
            Box::new(move |target| {
                let space = target.space()?;
                lock(&spaces).insert(number, space);
                Ok(())
            })
        };
        let results = all(self.mirrors.iter().map(|(_, worker)| worker), job, shared.limits.deadline);
        let mut answers = results.iter().map(Result::is_ok);
        self.mirrors.retain(|_| answers.next().unwrap_or(false));
        let spaces: Vec<Space> = lock(&spaces).values().copied().collect();
        free_on(&spaces, shared.need())
    }
}

/// What each of `need` mirrors has free, in bytes, or each of all if they are fewer. Mirrors on the
/// same file system share its space.
fn free_on(mirrors: &[Space], need: usize) -> Option<u64> {
    let mut systems: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for space in mirrors {
        let (free, sharing) = systems.entry(space.system).or_insert((space.free, 0));
        (*free, *sharing) = (space.free.min(*free), *sharing + 1);
    }
    let share = |space: &Space| systems.get(&space.system).map_or(0, |(free, sharing)| free / sharing);
    let mut shares: Vec<u64> = mirrors.iter().map(share).collect();
    shares.sort_unstable_by(|one, other| other.cmp(one));
    shares.get(need.max(1) - 1).or(shares.last()).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_space_of_enough_mirrors_counts() {
        let space = |free, system| Space { total: 1000, free, system };
        let mirrors = [space(5, 1), space(300, 2), space(200, 3), space(400, 4)];
        assert_eq!([1, 2, 3, 4, 5].map(|need| free_on(&mirrors, need)), [400, 300, 200, 5, 5].map(Some));
        assert_eq!(free_on(&[], 3), None);
        // Two share a file system, which was read twice.
        let mirrors = [space(300, 1), space(280, 1), space(150, 2)];
        assert_eq!([1, 2, 3].map(|need| free_on(&mirrors, need)), [150, 140, 140].map(Some));
    }
}
