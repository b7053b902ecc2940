//! Free space on the mirrors. A snapshot must fit beside the old one before the journal gets
//! shorter, so space for one is reserved. When less is free, the caller must refuse changes that
//! make the metadata grow, and snapshots are made more often, so that removals soon free space. A
//! mirror that is short of space is given up if there is one more than needed, and a target with
//! space can take its place.

use super::super::mirrors::worker::{Job, Worker, all};
use super::super::options::{Access, MirrorTarget};
use super::super::shared::Shared;
use plan::TargetId;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};
use volume::lock;
use volume::target::Space;

/// The shortest time between two snapshots made for lack of space, and the same as a multiple of
/// the time that a snapshot takes.
const MIN_SNAPSHOT_INTERVAL: Duration = Duration::from_secs(2);
const PAUSE_FACTOR: u32 = 10;
/// How often it is looked for a target in place of a mirror that is short of space.
const SPARE_INTERVAL: Duration = Duration::from_secs(10);

/// Measures the free space on the mirrors.
#[derive(Default)]
pub(in crate::journal) struct Gauge {
    generation: u64,
    mirrors: Vec<(MirrorTarget, Worker)>,
    /// When it was last looked for a target in place of a mirror, without finding one.
    looked_for_spare: Option<Instant>,
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
            (self.generation, self.mirrors) = (generation, started(places));
        }
        // What is committed meanwhile may count twice, which is better than not at all.
        let before = shared.slack.load(Ordering::Relaxed);
        // Those that do not answer are not asked again until the mirrors change.
        let spaces = spaces_of(&mut self.mirrors, shared);
        let Some((fullest, free)) = fullest(&spaces) else { return };
        let (slack, due, need) = {
            let files = shared.files();
            let slack = (free + files.underway).cast_signed() - files.need(&shared.limits).cast_signed();
            let tight = slack < 2 * shared.limits.segment_bytes.cast_signed();
            let much = files.grown() >= shared.limits.segment_bytes.max(files.snapshot_bytes / 8);
            let rested = files.last_try.is_none_or(|(begun, took, made)| {
                made && much || begun.elapsed() >= took + MIN_SNAPSHOT_INTERVAL.max(took * PAUSE_FACTOR)
            });
            (slack, tight && files.grown() > 0 && rested, files.need(&shared.limits))
        };
        let since = before - shared.slack.load(Ordering::Relaxed);
        shared.slack.store(slack - since, Ordering::Relaxed);
        if due {
            shared.task(|tasks| tasks.snapshot = true);
        }
        if slack <= 0 && shared.access == Access::Write {
            self.relieve(shared, fullest, &spaces, need);
        }
    }

    /// Gives the mirror with the least space up if the others are enough, and a target on another
    /// file system has much space.
    fn relieve(&mut self, shared: &Shared, fullest: TargetId, spaces: &[(TargetId, Space)], need: u64) {
        if self.looked_for_spare.is_some_and(|when| when.elapsed() < SPARE_INTERVAL) {
            return;
        }
        let (mirror, spares) = {
            let files = shared.files();
            let mirror = files.whole.iter().find(|(id, _)| *id == fullest).cloned();
            let mirror = mirror.filter(|_| files.whole.len() > shared.need());
            (mirror, files.spares().cloned().collect::<Vec<_>>())
        };
        let Some(mirror) = mirror.filter(|_| !spares.is_empty()) else { return };
        self.looked_for_spare = Some(Instant::now());
        // It gets what the mirrors have, and needs what they need.
        let is_good =
            |space: &Space| space.free > 2 * need && spaces.iter().all(|(_, mirror)| mirror.system != space.system);
        if spaces_of(&mut started(spares), shared).iter().any(|(_, space)| is_good(space)) {
            self.looked_for_spare = None;
            shared.files().suspects.push((mirror, io::ErrorKind::StorageFull.into(), Weak::new()));
            shared.ask();
        }
    }
}

fn started(places: Vec<MirrorTarget>) -> Vec<(MirrorTarget, Worker)> {
    let start = |place: MirrorTarget| Some((place.clone(), Worker::start(place.1).ok()?));
    places.into_iter().filter_map(start).collect()
}

/// The space of the targets that answer. The others are taken out of the list.
fn spaces_of(targets: &mut Vec<(MirrorTarget, Worker)>, shared: &Shared) -> Vec<(TargetId, Space)> {
    let spaces: Arc<Mutex<BTreeMap<TargetId, Space>>> = Arc::default();
    let ids: Vec<TargetId> = targets.iter().map(|(place, _)| place.0).collect();
    let job = |number: usize| -> Job {
        let (spaces, id) = (spaces.clone(), ids[number]);
        Box::new(move |target| {
            let space = target.space()?;
            // Some systems report as much as a number can say.
            let free = space.free.min(i64::MAX.unsigned_abs() / 4);
            lock(&spaces).insert(id, Space { free, ..space });
            Ok(())
        })
    };
    let results = all(targets.iter().map(|(_, worker)| worker), job, shared.limits.deadline);
    let mut answers = results.iter().map(Result::is_ok);
    targets.retain(|_| answers.next().unwrap_or(false));
    let spaces = lock(&spaces);
    spaces.iter().map(|(&id, &space)| (id, space)).collect()
}

/// The mirror with the least free space, and that space in bytes; mirrors on the same file system
/// share its space.
fn fullest(mirrors: &[(TargetId, Space)]) -> Option<(TargetId, u64)> {
    let mut systems: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for (_, space) in mirrors {
        let (free, sharing) = systems.entry(space.system).or_insert((space.free, 0));
        (*free, *sharing) = (space.free.min(*free), *sharing + 1);
    }
    let share = |space: &Space| systems.get(&space.system).map_or(0, |(free, sharing)| free / sharing);
    mirrors.iter().map(|(id, space)| (*id, share(space))).min_by_key(|(_, share)| *share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirrors_share_the_space_of_their_file_system() {
        let space = |id, free, system| (TargetId(id), Space { total: 1000, free, system });
        assert_eq!(fullest(&[]), None);
        assert_eq!(fullest(&[space(0, 300, 1), space(2, 200, 2), space(3, 400, 3)]), Some((TargetId(2), 200)));
        // Two share one, which was read twice.
        assert_eq!(fullest(&[space(0, 150, 2), space(1, 300, 1), space(2, 280, 1)]), Some((TargetId(1), 140)));
    }
}
