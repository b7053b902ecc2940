//! What may grow, and how far: memory for data that is in no stripe yet, and room on the targets.

use crate::mutex::lock;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use volume::target::Space;

/// Writers that are refused have the room looked at again no more often.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Memory for data on its way to the targets.
#[derive(Debug)]
pub(crate) struct Memory {
    limit: u64,
    used: AtomicU64,
    /// What of it will be in the metadata. May be a little off while several change the same file.
    inline: AtomicI64,
    waiting: Mutex<u32>,
    less: Condvar,
    /// Why nothing can be written at the moment; whether that is for lack of room.
    stuck: Mutex<Option<(bool, String)>>,
}

impl Memory {
    pub fn new(limit: u64) -> Self {
        Self {
            limit,
            used: AtomicU64::new(0),
            inline: AtomicI64::new(0),
            waiting: Mutex::new(0),
            less: Condvar::new(),
            stuck: Mutex::default(),
        }
    }

    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Bytes on their way into the metadata itself.
    pub fn inline(&self) -> u64 {
        u64::try_from(self.inline.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// What is on its way into the metadata was so much, and is now so much.
    pub fn changed_inline(&self, before: u64, after: u64) {
        self.inline.fetch_add(after.cast_signed() - before.cast_signed(), Ordering::Relaxed);
    }

    /// Whether so much is used that it should be written soon.
    pub fn is_half_full(&self) -> bool {
        self.used() > self.limit / 2
    }

    pub fn add(&self, bytes: u64) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn subtract(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
        let waiting = lock(&self.waiting);
        if *waiting > 0 {
            self.less.notify_all();
        }
    }

    /// Adds what a buffer grew by, or subtracts what it shrank by.
    pub fn changed(&self, before: u64, after: u64) {
        if after >= before { self.add(after - before) } else { self.subtract(before - after) }
    }

    /// Notes whether dirty data could be written.
    pub fn note(&self, done: &crate::Result<()>) {
        let why = done.as_ref().err().map(|error| (error.is_no_space(), error.to_string()));
        *lock(&self.stuck) = why;
    }

    /// Waits while the limit is exceeded; `hurry` is called now and then to have something written.
    ///
    /// # Errors
    /// When nothing can be written.
    pub fn wait_for_room(&self, hurry: impl Fn()) -> crate::Result<()> {
        if self.used() <= self.limit {
            return Ok(());
        }
        let mut waiting = lock(&self.waiting);
        *waiting += 1;
        while self.used() > self.limit {
            hurry();
            let stuck = lock(&self.stuck).clone();
            if let Some((no_space, why)) = stuck {
                *waiting -= 1;
                return Err(match no_space {
                    true => crate::Error::Volume(volume::Error::NoSpace("the volume".into())),
                    false => crate::Error::Meta(meta::Error::Unavailable(why)),
                });
            }
            (waiting, _) =
                self.less.wait_timeout(waiting, Duration::from_millis(100)).unwrap_or_else(PoisonError::into_inner);
        }
        *waiting -= 1;
        Ok(())
    }
}

/// Room on the targets, in bytes of user data, as of the last look and what was stored since.
#[derive(Debug, Default)]
pub(crate) struct Room {
    total: AtomicU64,
    free: AtomicU64,
    /// What was ever stored, and what of it `free` knows.
    spent: AtomicU64,
    known: AtomicU64,
    /// `spent` when `set` was called last.
    last: AtomicU64,
    when: Mutex<Option<Instant>>,
}

impl Room {
    /// Stripes took so much.
    pub fn spend(&self, bytes: u64) {
        self.spent.fetch_add(bytes, Ordering::Relaxed);
    }

    /// What was stored so far: to be asked before a look.
    pub fn spent(&self) -> u64 {
        self.spent.load(Ordering::Relaxed)
    }

    /// What a look found that began when so much was `spent`.
    pub fn looked(&self, spent: u64, total: u64, free: u64) {
        self.total.store(total, Ordering::Relaxed);
        self.free.store(free, Ordering::Relaxed);
        self.known.store(spent, Ordering::Relaxed);
        *lock(&self.when) = Some(Instant::now());
    }

    /// Whether another look may find something else.
    pub fn is_old(&self) -> bool {
        lock(&self.when).is_none_or(|when| when.elapsed() > LOOK_AGAIN)
    }

    /// What somebody else found: some time after the call before, or it would have been told then.
    pub fn set(&self, total: u64, free: u64) {
        let spent = self.last.swap(self.spent(), Ordering::Relaxed);
        self.looked(spent, total, free);
    }

    pub fn now(&self) -> (u64, u64) {
        let since = self.spent().saturating_sub(self.known.load(Ordering::Relaxed));
        (self.total.load(Ordering::Relaxed), self.free.load(Ordering::Relaxed).saturating_sub(since))
    }
}

/// How long stripes of `blocks` blocks can be, all together, when each block of a stripe is on another target. `systems` are file systems: how many
/// targets each has, and the room that these share.
pub(crate) fn balanced(systems: &[(u64, u64)], blocks: u64) -> u64 {
    let fits = |length: u64| {
        let room = |&(targets, room): &(u64, u64)| u128::from(room).min(u128::from(targets) * u128::from(length));
        systems.iter().map(room).sum::<u128>() >= u128::from(blocks) * u128::from(length)
    };
    // What fits is an interval that begins with 0.
    let (mut low, mut high) =
        (0, systems.iter().map(|(_, room)| u128::from(*room)).sum::<u128>() / u128::from(blocks.max(1)) + 1);
    while low + 1 < high {
        let middle = u128::midpoint(low, high);
        if fits(middle as u64) { low = middle } else { high = middle }
    }
    low as u64
}

/// What writers leave free for every target, beside what the metadata needs, so that what they were promised has room, as have compaction and repair.
const RESERVE_BYTES: u64 = 64 << 20;

/// A target, for the room of a volume.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TargetRoom {
    /// What it said last; None when it never said anything.
    space: Option<Space>,
    /// It answers, or is only late.
    there: bool,
}

impl TargetRoom {
    /// What is known of one; None when it was never found.
    pub fn of(room: Option<&volume::Room>) -> Self {
        let there = room.is_some_and(|room| room.answer != volume::Answer::None);
        Self { space: room.and_then(|room| room.space), there }
    }
}

/// The bytes of user data that fit in all, and those that still fit, on these targets: k blocks of data of so many, each on another target. With targets
/// missing stripes are written to those that are there, but there is no more room than with them: it is needed to make whole what lacks blocks.
pub(crate) fn user_room(targets: &[TargetRoom], k: u64, blocks: u64) -> (u64, u64) {
    let there: Vec<TargetRoom> = targets.iter().filter(|target| target.there).copied().collect();
    if (there.len() as u64) < k {
        return (0, 0);
    }
    let (now, whole) = (room_of(&there, k, blocks), room_of(targets, k, blocks));
    (now.0.min(whole.0), now.1.min(whole.1))
}

/// The same on targets of which all are there.
fn room_of(targets: &[TargetRoom], k: u64, blocks: u64) -> (u64, u64) {
    let mut systems: BTreeMap<u64, (u64, Space)> = BTreeMap::new();
    for space in targets.iter().filter_map(|target| target.space) {
        systems.entry(space.system).or_insert((0, space)).0 += 1;
    }
    // What is not known of a target is taken to be as with the others: on their file system, if they share one, or as the smallest of them.
    let mut unknown = targets.iter().filter(|target| target.space.is_none()).count() as u64;
    if let Some(most) = systems.values_mut().max_by_key(|(targets, _)| *targets).filter(|(targets, _)| *targets > 1) {
        most.0 += std::mem::take(&mut unknown);
    }
    let kept = |targets: u64, space: &Space| (targets * RESERVE_BYTES).min(space.total / 8);
    let left = |targets: u64, space: &Space| space.free.saturating_sub(kept(targets, space));
    let mut rooms: Vec<(u64, u64, u64)> =
        systems.values().map(|(targets, space)| (*targets, space.total, left(*targets, space))).collect();
    if let (Some(total), Some(free)) = (rooms.iter().map(|room| room.1).min(), rooms.iter().map(|room| room.2).min()) {
        rooms.extend((0..unknown).map(|_| (1, total, free)));
    }
    let blocks = blocks.min(targets.len() as u64);
    let fits = |of: fn(&(u64, u64, u64)) -> (u64, u64)| balanced(&rooms.iter().map(of).collect::<Vec<_>>(), blocks) * k;
    (fits(|room| (room.0, room.1)), fits(|room| (room.0, room.2)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(system: u64, free: u64) -> TargetRoom {
        TargetRoom { space: Some(Space { total: 1000 << 30, free: free << 30, system }), there: true }
    }

    const GONE: TargetRoom = TargetRoom { space: None, there: false };

    /// Whatever is lost, and however it was found out.
    #[test]
    fn room_does_not_grow_when_targets_are_lost() {
        let all =
            |systems: &[(u64, u64)]| systems.iter().map(|&(system, free)| target(system, free)).collect::<Vec<_>>();
        for targets in [
            all(&[(7, 600); 6]),
            all(&[(1, 100), (2, 100), (3, 100), (4, 100), (5, 100), (6, 7)]),
            all(&[(1, 100), (2, 100), (3, 100), (4, 100), (5, 100), (6, 100), (7, 100), (8, 100)]),
        ] {
            let before = user_room(&targets, 4, 6);
            assert!(before.1 > 0, "{before:?}");
            for lost in 0..targets.len() {
                let (mut silent, mut unknown) = (targets.clone(), targets.clone());
                silent[lost].there = false;
                unknown[lost] = GONE;
                let (silent, unknown) = (user_room(&silent, 4, 6), user_room(&unknown, 4, 6));
                assert!(silent.0 <= before.0 && silent.1 <= before.1, "{lost}: {before:?} {silent:?}");
                // What was never known of the smallest cannot be taken into account.
                let smallest = targets[lost].space.unwrap().free == 7 << 30;
                assert!(smallest || unknown.1 <= before.1, "{lost}: {before:?} {unknown:?}");
            }
        }
    }

    /// Half of them did not say yet what room they have.
    #[test]
    fn targets_that_are_late_are_not_full() {
        let late = TargetRoom { space: None, there: true };
        let some: Vec<TargetRoom> = (0..6).map(|n| if n < 3 { target(7, 63) } else { late }).collect();
        let all: Vec<TargetRoom> = (0..6).map(|_| target(7, 63)).collect();
        assert_eq!(user_room(&some, 4, 6).0, user_room(&all, 4, 6).0);
        assert!(user_room(&some, 4, 6).1 > 40 << 30);
        assert_eq!(user_room(&[GONE; 6], 4, 6), (0, 0));
    }

    #[test]
    fn every_block_goes_to_another_target() {
        // Each on its own file system.
        assert_eq!(balanced(&[(1, 100); 6], 6), 100);
        assert_eq!(balanced(&[(1, 100), (1, 100), (1, 100), (1, 100), (1, 100), (1, 7)], 6), 7);
        assert_eq!(balanced(&[(1, 0), (1, 100), (1, 100)], 3), 0);
        // A large one helps only as far as the others go.
        assert_eq!(balanced(&[(1, 1000), (1, 30), (1, 30)], 2), 60);
        assert_eq!(balanced(&[(1, 50); 4], 2), 100);
        // All on one.
        assert_eq!(balanced(&[(6, 600)], 6), 100);
        assert_eq!(balanced(&[(3, 300), (3, 30)], 6), 10);
        assert_eq!(balanced(&[], 6), 0);
    }

    #[test]
    fn what_was_stored_since_a_look_is_not_free() {
        let room = Room::default();
        let before = room.spent();
        room.spend(10);
        room.looked(before, 1000, 100);
        room.spend(20);
        assert_eq!(room.now(), (1000, 70));
        // What somebody else said may be as old as the time that he said something before.
        room.set(1000, 500);
        room.set(1000, 500);
        assert_eq!(room.now(), (1000, 500));
        room.spend(40);
        room.set(1000, 500);
        assert_eq!(room.now(), (1000, 460));
    }
}
