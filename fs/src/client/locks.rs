//! Locks of byte ranges that hold across clients. Without other clients, the kernel handles them
//! alone.
//!
//! The rules are those of NFS: data written under a lock is committed before the lock is given up,
//! and the size of a file is read again after a lock on it was granted. So the next holder sees
//! what the one before wrote.

use crate::client::Client;
use crate::error::lost;
use crate::{Error, FileSystem, Result};
use plan::Ino;
use session::port::{FileLock, within_session};
use std::ops::RangeInclusive;

impl FileSystem {
    fn locker(&self) -> Result<&Client> {
        self.client().ok_or(Error::Unsupported("the kernel keeps the locks of this volume"))
    }

    /// Locks a range for an owner. Returns whether the lock was granted. With `wait`, waits for it
    /// as long as `wait`, which is called from time to time, returns true.
    ///
    /// # Errors
    /// When the metadata server does not answer, the volume is not shared, or what was written
    /// before cannot be committed.
    pub fn lock(&self, ino: Ino, wanted: &FileLock, wait: Option<&dyn Fn() -> bool>) -> Result<bool> {
        let client = self.locker()?;
        // The new lock may cover less than the owner held so far, so commit first.
        self.publish(ino)?;
        loop {
            // Between two requests, what is unsure of this owner can be settled: the holder that is
            // waited for may wait for that.
            let under_way = client.locks.begin(ino, wanted.owner);
            let asked = client.locks.asking();
            let locked = client.session.lock(ino, wanted.clone(), wait.is_some());
            let unsure = |_: &_| client.locks.is_unsure(ino, wanted.owner, wanted.first..=wanted.last);
            if locked.inspect_err(unsure)? {
                if client.locks.got(asked, ino, wanted) {
                    self.look_anew(ino);
                    return Ok(true);
                }
                continue;
            }
            drop(under_way);
            if self.is_closed() || wait.is_none_or(|goes_on| !goes_on()) {
                return Ok(false);
            }
        }
    }

    /// Unlocks a range of what an owner has locked. Commits what was written to the file before.
    ///
    /// # Errors
    /// As `lock`, and when something that was written before is lost. If the server answers, the
    /// range is unlocked even after an error. Then the data is committed later, unless another
    /// client asks for the file before.
    pub fn unlock(&self, ino: Ino, owner: u64, first: u64, last: u64) -> Result<()> {
        let client = self.locker()?;
        let range = first..=last;
        let _under_way = client.locks.begin(ino, owner);
        if !client.locks.has(ino, owner, &range) {
            return Ok(());
        }
        let losses = self.losses(ino);
        let published = self.publish(ino);
        client.locks.gave_up(ino, owner, &range);
        // The server takes the data of those that go on without it from then on.
        let owed = published.is_err().then(|| client.owe(ino));
        // Otherwise a reclaim in progress could lock the range again afterwards.
        client.cache.wait_for_reclaim();
        let unlocked = match owed {
            Some(number) => client.session.unlock_owing(ino, owner, first, last, number),
            None => client.session.unlock(ino, owner, first, last),
        };
        unlocked.inspect_err(|_| client.locks.is_unsure(ino, owner, range))?;
        if self.losses(ino) > losses { published.and(Err(lost())) } else { published }
    }

    /// Whether an owner has any lock of a file that no session end took from it.
    pub fn holds_lock(&self, ino: Ino, owner: u64) -> bool {
        self.client().is_some_and(|client| client.locks.has(ino, owner, &(0..=u64::MAX)))
    }

    /// Makes the locks of owners at the server the same as here, where answers to their requests
    /// got lost: they may never ask again.
    ///
    /// # Errors
    /// When the server does not answer.
    pub(crate) fn settle_locks(&self, client: &Client) -> Result<()> {
        loop {
            // In another session the owner has lost all of it.
            let session = client.number();
            let Some(settling) = client.locks.settle() else { return Ok(()) };
            let (ino, owner) = settling.of;
            let unlock = |range: &RangeInclusive<u64>| client.session.unlock(ino, owner, *range.start(), *range.end());
            let settled = within_session(Some(session), || {
                let mut refused = Ok(true);
                for range in &settling.beyond {
                    match unlock(range) {
                        Err(why @ meta::Error::Unavailable(_)) => return Err(why),
                        Err(why) => refused = Err(why),
                        Ok(()) => {}
                    }
                }
                for held in &settling.held {
                    let (asked, range) = (client.locks.asking(), held.first..=held.last);
                    // The last request may have been one for a weaker lock.
                    if !client.session.lock(ino, held.clone(), false)? {
                        client.locks.lose_some(&[(ino, held.clone())]);
                        // As in `unlock`.
                        client.cache.wait_for_reclaim();
                        unlock(&range)?;
                    } else if client.locks.asking() != asked {
                        // What the owner has is being reclaimed from another server.
                        client.locks.is_unsure(ino, owner, range);
                        return Ok(false);
                    }
                }
                refused
            });
            match settled {
                Ok(false) => return Ok(()),
                Err(why @ meta::Error::Unavailable(_)) => return Err(why.into()),
                // It would be refused again.
                Err(why) => {
                    self.volume.warn(&format!("a lock whose answer got lost stays until this client ends: {why}"))
                }
                Ok(true) => {}
            }
            settling.done();
        }
    }

    /// Commits what was written to a file, so that other clients see it.
    pub(crate) fn publish(&self, ino: Ino) -> Result<()> {
        match self.table.find(ino) {
            Some(file) if !file.state().buffer.is_clean() => self.hand_over(&file),
            _ => Ok(()),
        }
    }

    /// Drops the known size of a file, which may have changed: it is read again.
    fn look_anew(&self, ino: Ino) {
        let Some(file) = self.table.find(ino) else { return };
        let mut state = file.state();
        if state.buffer.is_clean() && !state.changing {
            state.buffer.size = None;
        }
    }

    /// The lock that conflicts with `wanted`.
    ///
    /// # Errors
    /// As `lock`.
    pub fn conflicting_lock(&self, ino: Ino, wanted: &FileLock) -> Result<Option<FileLock>> {
        Ok(self.locker()?.session.conflicting_lock(ino, wanted.clone())?)
    }
}
