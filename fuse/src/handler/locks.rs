//! Locks in mounts that others share: of byte ranges (`fcntl`), and of whole files (`flock`), which are locks of all bytes whose owner is what was opened. The two
//! meet, as they do on NFS: fuser does not hand on which of them a request is about.

use super::call::Caller;
use super::signals;
use crate::files::Files;
use fs::FileLock;
use fuser::{Errno, FileHandle, ReplyEmpty, ReplyLock};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Through which opening of a file somebody got locks. The kernel says when a process gives up its own, but not a word of those that belong to an opening
/// (`F_OFD_SETLK`): these end with it.
#[derive(Default)]
pub(super) struct Held {
    opened: AtomicU64,
    owners: Mutex<HashMap<u64, (u64, Vec<u64>)>>,
}

impl Held {
    fn owners(&self) -> MutexGuard<'_, HashMap<u64, (u64, Vec<u64>)>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The handle of a new opening.
    pub fn handle(&self) -> FileHandle {
        FileHandle(1 + self.opened.fetch_add(1, Ordering::Relaxed))
    }

    /// An owner got a lock of a file through an opening.
    fn add(&self, handle: FileHandle, ino: u64, owner: u64) {
        let mut all = self.owners();
        let (_, owners) = all.entry(handle.0).or_insert((ino, Vec::new()));
        if !owners.contains(&owner) {
            owners.push(owner);
        }
    }

    /// An owner has no lock of a file any more. What it gets from now on through another opening must not end with this one.
    pub fn forget(&self, ino: u64, owner: u64) {
        self.owners().retain(|_, (of, owners)| {
            owners.retain(|other| *of != ino || *other != owner);
            !owners.is_empty()
        });
    }

    /// The owners of what ends with an opening.
    pub fn end(&self, handle: FileHandle) -> Vec<u64> {
        self.owners().remove(&handle.0).map_or_else(Vec::new, |(_, owners)| owners)
    }
}

/// A request about a lock.
pub(super) struct Asked {
    pub ino: u64,
    pub handle: FileHandle,
    pub lock: FileLock,
    /// `F_RDLCK`, `F_WRLCK` or `F_UNLCK`.
    pub kind: i32,
}

impl Asked {
    pub fn new(ino: u64, handle: FileHandle, owner: u64, (first, last): (u64, u64), kind: i32, process: u32) -> Self {
        let exclusive = kind == i32::from(libc::F_WRLCK as i16);
        Self { ino, handle, lock: FileLock { owner, first, last, exclusive, process }, kind }
    }

    fn unlocks(&self) -> bool {
        self.kind == i32::from(libc::F_UNLCK as i16)
    }

    /// Sets or takes away a lock. One that is waited for, by a thread of a program, is waited for by a thread of its own here: those that serve requests are few.
    pub fn set<F: Files>(self, caller: &Caller<F>, held: &Arc<Held>, waiter: Option<u32>, reply: ReplyEmpty) {
        let (caller, held) = (caller.clone(), held.clone());
        let work = move || {
            let FileLock { owner, first, last, .. } = self.lock;
            let done = if self.unlocks() {
                caller.call("unlocking", self.ino, |files| files.unlock(self.ino, owner, first, last)).map(|()| true)
            } else {
                let goes_on = || !waiter.is_some_and(signals::are_pending);
                let wait: Option<&dyn Fn() -> bool> = if waiter.is_some() { Some(&goes_on) } else { None };
                caller.call("locking", self.ino, |files| files.lock(self.ino, &self.lock, wait))
            };
            match done {
                Ok(true) => {
                    if !self.unlocks() {
                        held.add(self.handle, self.ino, owner);
                    }
                    reply.ok();
                }
                // The kernel has it asked again if the program goes on after the signal. Without one, a program would see a number that it does not know.
                Ok(false) if waiter.is_some_and(signals::are_pending) => reply.error(Errno::EINTR),
                Ok(false) => reply.error(Errno::EAGAIN),
                Err(error) => reply.error(error),
            }
        };
        if waiter.is_some() {
            std::thread::spawn(work);
        } else {
            work();
        }
    }

    /// Tells which lock is in the way.
    pub fn test<F: Files>(&self, caller: &Caller<F>, reply: ReplyLock) {
        match caller.call("testing a lock of", self.ino, |files| files.conflicting_lock(self.ino, &self.lock)) {
            Ok(None) => reply.locked(0, 0, i32::from(libc::F_UNLCK as i16), 0),
            Ok(Some(found)) => {
                let kind = if found.exclusive { libc::F_WRLCK } else { libc::F_RDLCK };
                reply.locked(found.first, found.last, i32::from(kind as i16), found.process);
            }
            Err(error) => reply.error(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_opening_ends_the_locks_that_were_not_given_up_before() {
        let held = Held::default();
        let (first, second) = (held.handle(), held.handle());
        assert_ne!(first, second);
        held.add(first, 5, 70);
        held.add(first, 5, 70);
        held.add(first, 5, 71);
        held.add(second, 6, 70);
        // The first owner gives up its locks of one file, and gets another one through another opening.
        held.forget(5, 70);
        held.add(second, 5, 72);
        assert_eq!((held.end(first), held.end(second), held.end(second)), (vec![71], vec![70, 72], vec![]));
    }
}
