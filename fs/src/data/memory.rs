//! The limit for data in memory that is in no stripe yet.

use crate::ranks::{MemoryStuck, MemoryWait};
use ::volume::ranked::Ranked;
use std::sync::Condvar;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

/// Accounts for memory of data on its way to the targets.
#[derive(Debug)]
pub(crate) struct Memory {
    limit: u64,
    used: AtomicU64,
    /// The part that will go into the metadata. It may be slightly off while several threads change
    /// the same file.
    inline: AtomicI64,
    waiting: Ranked<u32, MemoryWait>,
    less: Condvar,
    /// How many attempts to write dirty data have begun.
    attempts: AtomicU64,
    /// The last attempt that failed, unless a later one succeeded.
    stuck: Ranked<Option<Stuck>, MemoryStuck>,
}

/// An attempt to write dirty data that failed.
#[derive(Clone, Debug)]
struct Stuck {
    attempt: u64,
    no_space: bool,
    why: String,
}

impl Memory {
    pub fn new(limit: u64) -> Self {
        Self {
            limit,
            used: AtomicU64::new(0),
            inline: AtomicI64::new(0),
            waiting: Ranked::new(0),
            less: Condvar::new(),
            attempts: AtomicU64::new(0),
            stuck: Ranked::default(),
        }
    }

    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Bytes on their way into the metadata itself.
    pub fn inline(&self) -> u64 {
        u64::try_from(self.inline.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// The bytes on their way into the metadata changed from `before` to `after`.
    pub fn changed_inline(&self, before: u64, after: u64) {
        self.inline.fetch_add(after.cast_signed() - before.cast_signed(), Ordering::Relaxed);
    }

    /// Whether more than half of the limit is in use: data should be written soon.
    pub fn is_half_full(&self) -> bool {
        self.used() > self.limit / 2
    }

    pub fn add(&self, bytes: u64) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn subtract(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
        let waiting = self.waiting.lock();
        if *waiting > 0 {
            self.less.notify_all();
        }
    }

    /// The size of a buffer changed from `before` to `after`.
    pub fn changed(&self, before: u64, after: u64) {
        if after >= before { self.add(after - before) } else { self.subtract(before - after) }
    }

    /// Writes dirty data with `flush`, and records whether that could be done.
    pub fn attempt(&self, flush: impl FnOnce() -> crate::Result<()>) -> crate::Result<()> {
        let attempt = self.attempts.fetch_add(1, Ordering::Relaxed);
        let done = flush();
        let stuck = |error: &crate::Error| Stuck { attempt, no_space: error.is_no_space(), why: error.to_string() };
        *self.stuck.lock() = done.as_ref().err().map(stuck);
        done
    }

    /// Waits while the limit is exceeded; calls `hurry` now and then to have data written.
    ///
    /// # Errors
    /// When nothing can be written: an attempt that began meanwhile failed. What failed before says
    /// nothing: targets may have space again, and be there again.
    pub fn wait_for_space(&self, hurry: impl Fn()) -> crate::Result<()> {
        if self.used() <= self.limit {
            return Ok(());
        }
        let since = self.attempts.load(Ordering::Relaxed);
        let mut waiting = self.waiting.lock();
        *waiting += 1;
        while self.used() > self.limit {
            hurry();
            let stuck = self.stuck.lock().clone().filter(|stuck| stuck.attempt >= since);
            if let Some(Stuck { no_space, why, .. }) = stuck {
                *waiting -= 1;
                return Err(match no_space {
                    true => crate::Error::Volume(volume::Error::NoSpace("the volume".into())),
                    false => crate::Error::Meta(meta::Error::Unavailable(why)),
                });
            }
            waiting = waiting.wait_timeout(&self.less, Duration::from_millis(100));
        }
        *waiting -= 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_attempt_of_now_says_that_nothing_can_be_written() {
        let memory = Memory::new(10);
        let full = || Err(crate::Error::Volume(volume::Error::NoSpace("the volume".into())));
        memory.attempt(full).unwrap_err();
        memory.add(20);
        let write = || memory.attempt(|| Ok(_ = memory.used.fetch_sub(20, Ordering::Relaxed)));
        memory.wait_for_space(|| _ = write()).unwrap();
        memory.add(20);
        let refused = memory.wait_for_space(|| _ = memory.attempt(full)).unwrap_err();
        assert!(refused.is_no_space());
    }
}
