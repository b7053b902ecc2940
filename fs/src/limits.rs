//! What may grow, and how far: memory for data that is in no stripe yet, and room on the targets.

use crate::mutex::lock;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

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

#[cfg(test)]
mod tests {
    use super::*;

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
