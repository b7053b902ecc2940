//! What each opening of a file must learn, once: that written data is lost, and that its locks are
//! lost. An opening that lost its locks refuses reads and writes until its owner unlocks or locks
//! again: others may hold the locks.

use super::Handler;
use crate::files::Files;
use fs::Ino;
use fs::lock;
use fuser::{Errno, FileHandle};
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// What openings were told.
#[derive(Default)]
pub(super) struct Losses {
    /// How often its file had lost something when an opening last learned of it, or began.
    heard: Mutex<HashMap<u64, u64>>,
    /// Openings whose locks are lost, and whether they learned of it.
    lockless: Mutex<HashMap<u64, bool>>,
    /// Whether there are any.
    any_lockless: AtomicBool,
}
impl Losses {
    /// A file was opened for writing that had lost something `losses` times before.
    pub fn opened(&self, handle: FileHandle, losses: u64) {
        lock(&self.heard).insert(handle.0, losses);
    }

    /// Whether an opening is for writing.
    pub fn is_writer(&self, handle: FileHandle) -> bool {
        lock(&self.heard).contains_key(&handle.0)
    }

    /// Whether an opening has not yet learned of the last of `losses` losses. Then it has.
    fn are_news(&self, handle: FileHandle, losses: u64) -> bool {
        lock(&self.heard).get_mut(&handle.0).is_some_and(|heard| std::mem::replace(heard, losses) < losses)
    }

    /// The locks that were taken through these openings are lost.
    fn lose_locks(&self, handles: Vec<u64>) {
        let mut lockless = lock(&self.lockless);
        handles.into_iter().for_each(|handle| _ = lockless.insert(handle, false));
        self.any_lockless.store(!lockless.is_empty(), Ordering::Release);
    }

    /// Whether locks that were taken through an opening are lost. It learns of it.
    fn is_lockless(&self, handle: FileHandle) -> bool {
        self.any_lockless.load(Ordering::Acquire)
            && lock(&self.lockless).get_mut(&handle.0).is_some_and(|told| {
                *told = true;
                true
            })
    }

    /// The same, if it has not learned of it before.
    fn is_lockless_unaware(&self, handle: FileHandle) -> bool {
        self.any_lockless.load(Ordering::Acquire)
            && lock(&self.lockless).get_mut(&handle.0).is_some_and(|told| !std::mem::replace(told, true))
    }

    /// Locks are taken again through an opening, or given up. Returns whether it had lost some and
    /// has not learned of it yet.
    fn settle(&self, handle: FileHandle) -> bool {
        let mut lockless = lock(&self.lockless);
        let told = lockless.remove(&handle.0);
        self.any_lockless.store(!lockless.is_empty(), Ordering::Release);
        told == Some(false)
    }

    /// It is closed.
    pub fn end(&self, handle: FileHandle) {
        lock(&self.heard).remove(&handle.0);
        self.settle(handle);
    }
}

impl<F: Files> Handler<F> {
    fn hear_of_lost_locks(&self) {
        let files = self.caller.files();
        if files.has_lost_locks() {
            for (ino, owner) in files.take_lost_locks() {
                self.losses.lose_locks(self.held.lose(ino, owner));
            }
        }
    }

    /// Changes content for an opening that did not lose its locks, in the session in which it has
    /// them or not at all: others may get them while this waits.
    pub(super) fn with_its_locks<T>(
        &self,
        handle: FileHandle,
        change: impl FnOnce() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        self.caller.files().in_this_session(|| self.has_its_locks(handle).and_then(|()| change()))
    }

    /// Refuses reads and writes through an opening that lost its locks.
    pub(super) fn has_its_locks(&self, handle: FileHandle) -> Result<(), Errno> {
        self.hear_of_lost_locks();
        if self.losses.is_lockless(handle) { Err(Errno::EIO) } else { Ok(()) }
    }

    /// The same at a request for a lock; the loss is reported once.
    pub(super) fn settle_locks(&self, handle: FileHandle) -> Result<(), Errno> {
        self.hear_of_lost_locks();
        if self.losses.settle(handle) { Err(Errno::EIO) } else { Ok(()) }
    }

    /// The same when a descriptor is closed: the loss is reported once, if it was not before.
    pub(super) fn had_its_locks(&self, handle: FileHandle) -> Result<(), Errno> {
        self.hear_of_lost_locks();
        if self.losses.is_lockless_unaware(handle) { Err(Errno::EIO) } else { Ok(()) }
    }

    /// The answer to a sync or at the end of an opening: an error, even if another opening has
    /// reported the loss before.
    pub(super) fn or_lost(&self, ino: Ino, handle: FileHandle, done: Result<(), Errno>) -> Result<(), Errno> {
        let files = self.caller.files();
        let news = files.is_shared() && self.losses.are_news(handle, files.losses(ino));
        if news { done.and(Err(Errno::EIO)) } else { done }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_opening_is_told_once() {
        let losses = Losses::default();
        let [old, new, reader] = [1, 2, 3].map(FileHandle);
        losses.opened(old, 0);
        losses.opened(new, 1);
        assert_eq!([old, new, reader].map(|handle| losses.is_writer(handle)), [true, true, false]);
        assert_eq!([old, new, reader, old].map(|handle| losses.are_news(handle, 1)), [true, false, false, false]);
        assert!(losses.are_news(new, 2) && losses.are_news(old, 3));
        losses.end(old);
        assert!(!losses.are_news(old, 9));
    }

    #[test]
    fn who_lost_its_locks_does_nothing_before_it_unlocks() {
        let losses = Losses::default();
        let [a, b, other] = [1, 2, 3].map(FileHandle);
        assert!(!losses.is_lockless(a) && !losses.settle(a));
        losses.lose_locks(vec![1, 2]);
        assert!(losses.is_lockless(a) && losses.is_lockless(a) && !losses.is_lockless(other));
        assert!(!losses.is_lockless_unaware(a) && losses.is_lockless_unaware(b) && !losses.is_lockless_unaware(b));
        assert!(!losses.settle(a), "it knows");
        assert!(!losses.is_lockless(a));
        losses.lose_locks(vec![2]);
        assert!(losses.settle(b) && !losses.settle(b) && !losses.is_lockless(b));
    }
}
