//! Locks in mounts that others share: of byte ranges (`fcntl`), and of whole files (`flock`), which
//! are locks of all bytes whose owner is what was opened. The two meet, as they do on NFS: fuser
//! does not hand on which of them a request is about.
//!
//! A program that gets a lock sees what earlier holders wrote: the kernel drops what it has of the
//! file before the program learns that it has the lock.

use super::call::Caller;
use super::{signals, thread};
use crate::files::Files;
use fs::lock;
use fs::{FileLock, Ino};
use fuser::{Errno, FileHandle, INodeNo, Notifier, ReplyEmpty, ReplyLock};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

/// The bit of the handles whose reads go past the kernel's pages.
const DIRECT: u64 = 1 << 63;

/// Whether reads through a handle go past the kernel's pages.
pub(super) fn is_direct(handle: FileHandle) -> bool {
    handle.0 & DIRECT != 0
}

/// The openings of files through which owners got locks. The kernel says when a process gives up
/// its own locks, but nothing of those that belong to an opening (`F_OFD_SETLK`): these end with
/// it.
#[derive(Default)]
pub(super) struct Held {
    opened: AtomicU64,
    owners: Mutex<HashMap<u64, (Ino, Vec<u64>)>>,
    /// In which time without other clients the kernel dropped what it had of the file of an
    /// opening.
    fresh: Mutex<HashMap<u64, u64>>,
}

impl Held {
    fn owners(&self) -> MutexGuard<'_, HashMap<u64, (Ino, Vec<u64>)>> {
        lock(&self.owners)
    }

    fn fresh(&self) -> MutexGuard<'_, HashMap<u64, u64>> {
        lock(&self.fresh)
    }

    /// The handle of a new opening, which begins without pages of the file in the kernel, in a time
    /// without other clients if there are none. `direct`: its reads go past the kernel's pages.
    pub fn handle(&self, alone: Option<u64>, direct: bool) -> FileHandle {
        let handle = (1 + self.opened.fetch_add(1, Ordering::Relaxed)) | if direct { DIRECT } else { 0 };
        alone.map(|alone| self.fresh().insert(handle, alone));
        FileHandle(handle)
    }

    /// Whether the kernel may have pages of an opened file that others have changed since. Notes
    /// that it drops them.
    fn is_stale(&self, handle: FileHandle, alone: Option<u64>) -> bool {
        let Some(alone) = alone else { return true };
        self.fresh().insert(handle.0, alone) != Some(alone)
    }

    /// An owner got a lock of a file through an opening.
    fn add(&self, handle: FileHandle, ino: Ino, owner: u64) {
        let mut all = self.owners();
        let (_, owners) = all.entry(handle.0).or_insert((ino, Vec::new()));
        if !owners.contains(&owner) {
            owners.push(owner);
        }
    }

    /// An owner has no lock of a file any more. Locks that it gets from now on through another
    /// opening must not end with this one.
    pub fn forget(&self, ino: Ino, owner: u64) {
        self.owners().retain(|_, (of, owners)| {
            owners.retain(|other| *of != ino || *other != owner);
            !owners.is_empty()
        });
    }

    /// An owner lost its locks of a file. Returns the openings through which it had got them.
    pub fn lose(&self, ino: Ino, owner: u64) -> Vec<u64> {
        let got = |(of, owners): &(Ino, Vec<u64>)| *of == ino && owners.contains(&owner);
        let handles = self.owners().iter().filter(|(_, of)| got(of)).map(|(&handle, _)| handle).collect();
        self.forget(ino, owner);
        handles
    }

    /// The owners of what ends with an opening.
    pub fn end(&self, handle: FileHandle) -> Vec<u64> {
        self.fresh().remove(&handle.0);
        self.owners().remove(&handle.0).map_or_else(Vec::new, |(_, owners)| owners)
    }
}

/// A request about a lock.
pub(super) struct Asked {
    pub ino: Ino,
    pub handle: FileHandle,
    pub lock: FileLock,
    /// `F_RDLCK`, `F_WRLCK` or `F_UNLCK`.
    pub kind: i32,
}

impl Asked {
    pub fn new(ino: Ino, handle: FileHandle, owner: u64, (first, last): (u64, u64), kind: i32, process: u32) -> Self {
        let exclusive = kind == i32::from(libc::F_WRLCK as i16);
        Self { ino, handle, lock: FileLock { owner, first, last, exclusive, process }, kind }
    }

    fn unlocks(&self) -> bool {
        self.kind == i32::from(libc::F_UNLCK as i16)
    }

    /// Sets or takes away a lock. A wait has a thread of its own, as the threads that serve
    /// requests are few: a wait for a lock that a program wants, and a wait for the kernel, which
    /// may need answers before it drops pages.
    pub fn set<F: Files>(
        self,
        caller: &Caller<F>,
        held: &Arc<Held>,
        kernel: &Arc<OnceLock<Notifier>>,
        waiter: Option<u32>,
        reply: ReplyEmpty,
    ) {
        let (caller, held, kernel) = (caller.clone(), held.clone(), kernel.clone());
        let work = move |may_wait: bool| {
            if !may_wait {
                return reply.error(Errno::ENOLCK);
            }
            match self.try_set(&caller, waiter) {
                Ok(true) if self.unlocks() => reply.ok(),
                Ok(true) => {
                    held.add(self.handle, self.ino, self.lock.owner);
                    // Before pages are dropped: what the kernel gets from then on is at least as
                    // new.
                    if !held.is_stale(self.handle, caller.files().alone()) {
                        return reply.ok();
                    }
                    let drop_pages = move |_| {
                        // It fails when the kernel has forgotten the file, or the mount is gone.
                        let _ = kernel.get().map(|kernel| kernel.inval_inode(INodeNo(self.ino.0), 0, 0));
                        reply.ok();
                    };
                    if waiter.is_some() { drop_pages(true) } else { thread::start("weft-lock", drop_pages) }
                }
                // The kernel repeats the request if the program goes on after the signal. Without a
                // signal, a program would see a number that it does not know.
                Ok(false) if waiter.is_some_and(signals::are_pending) => reply.error(Errno::EINTR),
                Ok(false) => reply.error(Errno::EAGAIN),
                Err(error) => reply.error(error),
            }
        };
        if waiter.is_some() {
            thread::start("weft-lock", work);
        } else {
            work(true);
        }
    }

    fn try_set<F: Files>(&self, caller: &Caller<F>, waiter: Option<u32>) -> Result<bool, Errno> {
        let FileLock { owner, first, last, .. } = self.lock;
        if self.unlocks() {
            return caller
                .call("unlocking", self.ino, |files| files.unlock(self.ino, owner, first, last))
                .map(|()| true);
        }
        let goes_on = || !waiter.is_some_and(signals::are_pending);
        let wait: Option<&dyn Fn() -> bool> = if waiter.is_some() { Some(&goes_on) } else { None };
        caller.call("locking", self.ino, |files| files.lock(self.ino, &self.lock, wait))
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
        let (first, second) = (held.handle(None, false), held.handle(None, true));
        assert_ne!(first, second);
        assert!(!is_direct(first) && is_direct(second));
        held.add(first, Ino(5), 70);
        held.add(first, Ino(5), 70);
        held.add(first, Ino(5), 71);
        held.add(second, Ino(6), 70);
        // The first owner gives up its locks of one file, and gets another one through another
        // opening.
        held.forget(Ino(5), 70);
        held.add(second, Ino(5), 72);
        assert_eq!((held.end(first), held.end(second), held.end(second)), (vec![71], vec![70, 72], vec![]));
    }

    #[test]
    fn pages_are_kept_while_nobody_else_can_have_changed_the_file() {
        let held = Held::default();
        let (shared, alone) = (held.handle(None, false), held.handle(Some(4), false));
        assert!(held.is_stale(shared, None) && held.is_stale(shared, None));
        assert!(!held.is_stale(alone, Some(4)), "it was opened in this time");
        assert!(held.is_stale(alone, None));
        // Others came and went.
        assert!(held.is_stale(alone, Some(5)) && !held.is_stale(alone, Some(5)));
        held.end(alone);
        assert!(held.fresh().is_empty());
    }
}
