//! Free space on the mirrors. A snapshot must fit beside the old one before the journal gets
//! shorter, so space for one is reserved. When less is free, the caller must refuse changes that
//! make the metadata grow, and snapshots are made more often, so that removals soon free space.

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

    /// The least space that a mirror has free, in bytes; mirrors on the same file system share its
    /// space. A mirror that does not answer is left out, and not asked again until the mirrors
    /// change.
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
        let spaces = lock(&spaces);
        let mut systems: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        for space in spaces.values() {
            let (free, sharing) = systems.entry(space.system).or_insert((space.free, 0));
            (*free, *sharing) = (space.free.min(*free), *sharing + 1);
        }
        systems.into_values().map(|(free, sharing)| free / sharing).min()
    }
}
