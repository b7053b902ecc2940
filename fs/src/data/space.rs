//! Accounts for space on the targets: how much user data still fits, and which writers are refused
//! when it does not.

use crate::data::pauses::Pauses;
use crate::{Error, FileSystem, Result};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, Weak};
use std::time::{Duration, Instant};
use volume::lock;
use volume::target::Space;

/// The shortest time between two measurements of the space for writers that are refused.
const MIN_MEASURE_INTERVAL: Duration = Duration::from_millis(50);

/// The time between two measurements.
const MEASURE_INTERVAL: Duration = Duration::from_secs(1);

/// Space on the targets, in bytes of user data: the last measurement, and what was stored since.
#[derive(Debug, Default)]
pub(crate) struct VolumeSpace {
    total: AtomicU64,
    free: AtomicU64,
    /// All bytes ever stored, and how many of them `free` includes.
    spent: AtomicU64,
    known: AtomicU64,
    /// `spent` at the last call of `set`.
    last: AtomicU64,
    when: Mutex<Option<Instant>>,
}

impl VolumeSpace {
    /// Stripes took this many bytes.
    pub fn spend(&self, bytes: u64) {
        self.spent.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The bytes stored so far. Read it before a measurement.
    pub fn spent(&self) -> u64 {
        self.spent.load(Ordering::Relaxed)
    }

    /// Records a measurement; `spent` is the counter from before it.
    pub fn looked(&self, spent: u64, total: u64, free: u64) {
        self.total.store(total, Ordering::Relaxed);
        self.free.store(free, Ordering::Relaxed);
        self.known.store(spent, Ordering::Relaxed);
        *lock(&self.when) = Some(Instant::now());
    }

    /// Whether the last measurement is old enough to measure again.
    pub fn is_old(&self) -> bool {
        lock(&self.when).is_none_or(|when| when.elapsed() > MIN_MEASURE_INTERVAL)
    }

    /// Records a measurement of the server. It was made after the call before, or that call would
    /// have brought it.
    pub fn set(&self, total: u64, free: u64) {
        let spent = self.last.swap(self.spent(), Ordering::Relaxed);
        self.looked(spent, total, free);
    }

    pub fn now(&self) -> (u64, u64) {
        let since = self.spent().saturating_sub(self.known.load(Ordering::Relaxed));
        (self.total.load(Ordering::Relaxed), self.free.load(Ordering::Relaxed).saturating_sub(since))
    }
}

/// The largest total length of stripes of `blocks` blocks when each block of a stripe is on another
/// target. `systems` are file systems: the number of targets on each, and the space that they
/// share. A target that may have several blocks of a stripe counts that many times.
pub(crate) fn balanced(systems: &[(u64, u64)], blocks: u64) -> u64 {
    let fits = |length: u64| {
        let space = |&(targets, space): &(u64, u64)| u128::from(space).min(u128::from(targets) * u128::from(length));
        systems.iter().map(space).sum::<u128>() >= u128::from(blocks) * u128::from(length)
    };
    // The lengths that fit are an interval that begins with 0.
    let (mut low, mut high) =
        (0, systems.iter().map(|(_, space)| u128::from(*space)).sum::<u128>() / u128::from(blocks.max(1)) + 1);
    while low + 1 < high {
        let middle = u128::midpoint(low, high);
        if fits(middle as u64) { low = middle } else { high = middle }
    }
    low as u64
}

/// The bytes that writers leave free for every target, in addition to what the metadata needs:
/// space for data that was already accepted, for compaction and for repair.
const RESERVE_BYTES: u64 = 64 << 20;

/// A target, in the computation of the space of a volume.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TargetSpace {
    /// What it reported last; None when it never reported.
    space: Option<Space>,
    /// It answers, or is only late.
    there: bool,
}

impl TargetSpace {
    /// The known state of a target; None for one that was never found.
    pub fn of(space: Option<&volume::ReportedSpace>) -> Self {
        let there = space.is_some_and(|space| space.answer != volume::Answer::None);
        Self { space: space.and_then(|space| space.space), there }
    }
}

/// The bytes of user data that fit in total, and those that still fit, on these targets: stripes of
/// `blocks` blocks, k of them data, up to `most` on one. With targets missing, stripes are
/// written to the others, but there is no more space than with all targets: repair needs it to
/// restore the missing blocks.
pub(crate) fn user_space(targets: &[TargetSpace], k: u64, blocks: u64, most: u64) -> (u64, u64) {
    let there: Vec<TargetSpace> = targets.iter().filter(|target| target.there).copied().collect();
    if (there.len() as u64) * most < k {
        return (0, 0);
    }
    let (now, whole) = (space_of(&there, k, blocks, most), space_of(targets, k, blocks, most));
    (now.0.min(whole.0), now.1.min(whole.1))
}

/// The same for targets that are all present.
fn space_of(targets: &[TargetSpace], k: u64, blocks: u64, most: u64) -> (u64, u64) {
    let mut systems: BTreeMap<u64, (u64, Space)> = BTreeMap::new();
    for space in targets.iter().filter_map(|target| target.space) {
        systems.entry(space.system).or_insert((0, space)).0 += 1;
    }
    // A target that has not reported is assumed to be like the others: on their file system if they
    // share one, or like the smallest of them.
    let mut unknown = targets.iter().filter(|target| target.space.is_none()).count() as u64;
    if let Some(most) = systems.values_mut().max_by_key(|(targets, _)| *targets).filter(|(targets, _)| *targets > 1) {
        most.0 += std::mem::take(&mut unknown);
    }
    let kept = |targets: u64, space: &Space| (targets * RESERVE_BYTES).min(space.total / 8);
    let left = |targets: u64, space: &Space| space.free.saturating_sub(kept(targets, space));
    let mut spaces: Vec<(u64, u64, u64)> =
        systems.values().map(|(targets, space)| (*targets, space.total, left(*targets, space))).collect();
    if let (Some(total), Some(free)) =
        (spaces.iter().map(|space| space.1).min(), spaces.iter().map(|space| space.2).min())
    {
        spaces.extend((0..unknown).map(|_| (1, total, free)));
    }
    let blocks = blocks.min(targets.len() as u64 * most);
    spaces.iter_mut().for_each(|(targets, ..)| *targets *= most);
    let fits = |of: fn(&(u64, u64, u64)) -> (u64, u64)| {
        balanced(&spaces.iter().map(of).collect::<Vec<_>>(), blocks).saturating_mul(k)
    };
    (fits(|space| (space.0, space.1)), fits(|space| (space.0, space.2)))
}

/// The thread that measures the space and the load where the metadata is. It does nothing else:
/// work that waits for a hanging target would keep the state of a moment when a target was full,
/// and clients would be refused for that long.
pub(crate) fn watch(fs: &Weak<FileSystem>, pauses: &Pauses) {
    while pauses.pause(MEASURE_INTERVAL) {
        let Some(fs) = fs.upgrade().filter(|fs| !fs.is_closed()) else { return };
        fs.beside("measuring the load", || fs.observe_loads());
        fs.beside("measuring the space", || fs.measure_space());
    }
}

impl FileSystem {
    /// Takes in how busy the targets are.
    pub fn observe_loads(&self) {
        self.store.balance.observe(&self.store.targets, &*self.volume.places, &self.store.candidates());
    }

    /// Measures the space. Targets on one file system share it.
    pub(crate) fn measure_space(&self) {
        let spent = self.space.spent();
        if let Some((need_bytes, mirrors)) = self.sharing().metadata_needs() {
            self.store.keep_for_metadata(need_bytes, mirrors);
        }
        let takes_more = self.sharing().metadata_takes_more(self.memory.inline()).unwrap_or(true);
        let (total, free) = self.store.user_space();
        // Clients learn the state of the metadata by this, too.
        self.space.looked(spent, total, if takes_more { free } else { 0 });
    }

    /// Whether changes that make the metadata grow are accepted. Waits for nothing.
    pub(crate) fn metadata_takes_more(&self) -> bool {
        let takes_more = self.sharing().metadata_takes_more(self.memory.inline());
        takes_more.unwrap_or_else(|| self.space.now().1 > 0)
    }

    /// Refuses changes that make the metadata grow while it is full. Changes that shrink it in the
    /// end are not checked, nor is data that was already accepted.
    pub(crate) fn check_metadata_space(&self) -> Result<()> {
        match self.metadata_takes_more() {
            true => Ok(()),
            false if self.is_shared() => Err(self.no_space_error()),
            false => Err(Error::Meta(meta::Error::NoSpace)),
        }
    }

    /// The reason why there is no space: targets are full, or too few of them are present.
    fn no_space_error(&self) -> Error {
        let (targets, k) = (&self.store.targets, self.store.options.code.shape().k);
        let there = targets.ids().into_iter().filter(|&id| targets.is_usable(id)).count();
        let most = self.store.topology().most_on_one(self.store.options.code.shape().blocks());
        if there * most < k {
            return Error::Meta(meta::Error::Unavailable(format!("too few targets answer: {there}, and it takes {k}")));
        }
        if self.is_shared() && self.space.now().0 == 0 {
            return Error::Meta(meta::Error::Unavailable("too few targets report their space".into()));
        }
        Error::Volume(volume::Error::NoSpace("the volume".into()))
    }

    /// Refuses data for which there is no space.
    pub(crate) fn check_space(&self, bytes: u64) -> Result<()> {
        self.check_metadata_space()?;
        let fits = || self.space.now().1 >= self.memory.used() + bytes;
        // Space may have been freed since the last measurement, or too few targets answered then.
        let is_outdated = || self.space.is_old() || self.space.now().0 == 0;
        if !fits() && !self.is_shared() && is_outdated() {
            self.measure_space();
        }
        if fits() { Ok(()) } else { Err(self.no_space_error()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(system: u64, free: u64) -> TargetSpace {
        TargetSpace { space: Some(Space { total: 1000 << 30, free: free << 30, system }), there: true }
    }

    const GONE: TargetSpace = TargetSpace { space: None, there: false };

    /// Any target may be lost, and the loss may be noticed in any way.
    #[test]
    fn space_does_not_grow_when_targets_are_lost() {
        let all =
            |systems: &[(u64, u64)]| systems.iter().map(|&(system, free)| target(system, free)).collect::<Vec<_>>();
        for targets in [
            all(&[(7, 600); 6]),
            all(&[(1, 100), (2, 100), (3, 100), (4, 100), (5, 100), (6, 7)]),
            all(&[(1, 100), (2, 100), (3, 100), (4, 100), (5, 100), (6, 100), (7, 100), (8, 100)]),
        ] {
            let before = user_space(&targets, 4, 6, 1);
            assert!(before.1 > 0, "{before:?}");
            for lost in 0..targets.len() {
                let (mut silent, mut unknown) = (targets.clone(), targets.clone());
                silent[lost].there = false;
                unknown[lost] = GONE;
                let (silent, unknown) = (user_space(&silent, 4, 6, 1), user_space(&unknown, 4, 6, 1));
                assert!(silent.0 <= before.0 && silent.1 <= before.1, "{lost}: {before:?} {silent:?}");
                // The computation cannot know the smallest target if that never reported.
                let smallest = targets[lost].space.unwrap().free == 7 << 30;
                assert!(smallest || unknown.1 <= before.1, "{lost}: {before:?} {unknown:?}");
            }
        }
    }

    /// Half of the targets have not reported their space yet.
    #[test]
    fn targets_that_are_late_are_not_full() {
        let late = TargetSpace { space: None, there: true };
        let some: Vec<TargetSpace> = (0..6).map(|n| if n < 3 { target(7, 63) } else { late }).collect();
        let all: Vec<TargetSpace> = (0..6).map(|_| target(7, 63)).collect();
        assert_eq!(user_space(&some, 4, 6, 1).0, user_space(&all, 4, 6, 1).0);
        assert!(user_space(&some, 4, 6, 1).1 > 40 << 30);
        assert_eq!(user_space(&[GONE; 6], 4, 6, 1), (0, 0));
    }

    #[test]
    fn every_block_goes_to_another_target() {
        // Each on its own file system.
        assert_eq!(balanced(&[(1, 100); 6], 6), 100);
        assert_eq!(balanced(&[(1, 100), (1, 100), (1, 100), (1, 100), (1, 100), (1, 7)], 6), 7);
        assert_eq!(balanced(&[(1, 0), (1, 100), (1, 100)], 3), 0);
        // A large one helps only as far as the others have space.
        assert_eq!(balanced(&[(1, 1000), (1, 30), (1, 30)], 2), 60);
        assert_eq!(balanced(&[(1, 50); 4], 2), 100);
        // All on one file system.
        assert_eq!(balanced(&[(6, 600)], 6), 100);
        assert_eq!(balanced(&[(3, 300), (3, 30)], 6), 10);
        assert_eq!(balanced(&[], 6), 0);
    }

    #[test]
    fn what_was_stored_since_a_look_is_not_free() {
        let space = VolumeSpace::default();
        let before = space.spent();
        space.spend(10);
        space.looked(before, 1000, 100);
        space.spend(20);
        assert_eq!(space.now(), (1000, 70));
        // The server's report may be as old as the one before.
        space.set(1000, 500);
        space.set(1000, 500);
        assert_eq!(space.now(), (1000, 500));
        space.spend(40);
        space.set(1000, 500);
        assert_eq!(space.now(), (1000, 460));
    }
}
