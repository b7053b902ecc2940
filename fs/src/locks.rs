//! Locks of byte ranges that hold across clients. Where nobody else has the volume open they are the kernel's business.

use crate::client::Client;
use crate::mutex::lock;
use crate::{Error, FileSystem, Result};
use meta::port::{FileLock, Session};

impl FileSystem {
    fn locker(&self) -> Result<&Client> {
        self.client.as_ref().ok_or(Error::Unsupported("the kernel keeps the locks of this volume"))
    }

    /// Locks a range for an owner. Returns whether that could be; with `wait`, which is asked from time to time, it is waited for as long as that says so.
    ///
    /// # Errors
    /// When the metadata server does not answer, or the volume is not shared.
    pub fn lock(&self, ino: u64, wanted: &FileLock, wait: Option<&dyn Fn() -> bool>) -> Result<bool> {
        let client = self.locker()?;
        loop {
            if client.session.lock(ino, wanted.clone(), wait.is_some())? {
                lock(&client.locks).push((ino, wanted.clone()));
                return Ok(true);
            }
            if self.is_closed() || wait.is_none_or(|goes_on| !goes_on()) {
                return Ok(false);
            }
        }
    }

    /// Unlocks a range of what an owner has locked.
    ///
    /// # Errors
    /// As `lock`.
    pub fn unlock(&self, ino: u64, owner: u64, first: u64, last: u64) -> Result<()> {
        let client = self.locker()?;
        let had = {
            let mut locks = lock(&client.locks);
            let mine = |(of, lock): &(u64, FileLock)| *of == ino && lock.owner == owner;
            let had = locks.iter().any(mine);
            // What is cut is kept whole: to lock too much after a restart of the server is safe.
            locks.retain(|entry| !(mine(entry) && first <= entry.1.first && entry.1.last <= last));
            had
        };
        if had { Ok(client.session.unlock(ino, owner, first, last)?) } else { Ok(()) }
    }

    /// The lock that keeps a range from being locked.
    ///
    /// # Errors
    /// As `lock`.
    pub fn conflicting_lock(&self, ino: u64, wanted: &FileLock) -> Result<Option<FileLock>> {
        Ok(self.locker()?.session.conflicting_lock(ino, wanted.clone())?)
    }
}

impl Client {
    /// Locks again, at a server that was restarted, what was locked. Returns how many are lost.
    pub fn lock_again(&self, session: &dyn Session) -> meta::Result<usize> {
        let mut lost = 0;
        for (ino, wanted) in lock(&self.locks).clone() {
            lost += usize::from(!session.lock(ino, wanted, false)?);
        }
        Ok(lost)
    }
}
