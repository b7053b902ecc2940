//! Locks in mounts that others share: of byte ranges (`fcntl`), and of whole files (`flock`), which are locks of all bytes whose owner is what was opened. The two
//! meet, as they do on NFS: fuser does not hand on which of them a request is about.

use super::call::Caller;
use crate::files::Files;
use fs::FileLock;
use fuser::{Errno, ReplyEmpty, ReplyLock};

/// A request about a lock.
pub(super) struct Asked {
    pub ino: u64,
    pub lock: FileLock,
    /// `F_RDLCK`, `F_WRLCK` or `F_UNLCK`.
    pub kind: i32,
}

impl Asked {
    pub fn new(ino: u64, owner: u64, (first, last): (u64, u64), kind: i32, process: u32) -> Self {
        let exclusive = kind == i32::from(libc::F_WRLCK as i16);
        Self { ino, lock: FileLock { owner, first, last, exclusive, process }, kind }
    }

    fn unlocks(&self) -> bool {
        self.kind == i32::from(libc::F_UNLCK as i16)
    }

    /// Sets or takes away a lock. One that is waited for is waited for by a thread of its own: those that serve requests are few.
    pub fn set<F: Files>(self, caller: &Caller<F>, wait: bool, reply: ReplyEmpty) {
        let caller = caller.clone();
        let work = move || {
            let FileLock { owner, first, last, .. } = self.lock;
            let done = if self.unlocks() {
                caller.call("unlocking", self.ino, |files| files.unlock(self.ino, owner, first, last)).map(|()| true)
            } else {
                caller.call("locking", self.ino, |files| files.lock(self.ino, &self.lock, wait))
            };
            match done {
                Ok(true) => reply.ok(),
                Ok(false) => reply.error(Errno::EAGAIN),
                Err(error) => reply.error(error),
            }
        };
        if wait {
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
