//! Locks of byte ranges that hold across clients. Without other clients, the kernel handles them
//! alone.
//!
//! The rules are those of NFS: data written under a lock is committed before the lock is given up,
//! and the size of a file is read again after a lock on it was granted. So the next holder sees
//! what the one before wrote.

use crate::client::Client;
use crate::error::lost;
use crate::ranks::ClientLocks;
use crate::{Error, FileSystem, Result};
use ::volume::ranked::Ranked;
use session::locks::{Lock, Locks};
use session::port::FileLock;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};

/// The locks of this client, to the byte: exactly these are reclaimed from a restarted server.
#[derive(Default)]
pub(crate) struct OwnLocks {
    own: Ranked<Own, ClientLocks>,
    /// Whether `lost` is not empty.
    any_lost: AtomicBool,
}

#[derive(Default)]
struct Own {
    locks: Locks,
    /// How often the locks were reclaimed.
    reclaims: u64,
    /// Files and owners of lost locks that were not reported yet.
    lost: Vec<(u64, u64)>,
}

/// How often the locks had been reclaimed when a request for a new one was sent.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Asked(u64);

/// The client's own list uses no session number.
const OWN: u64 = 0;

impl OwnLocks {
    fn asking(&self) -> Asked {
        Asked(self.own.lock().reclaims)
    }

    /// Records a lock that a server granted. Returns false if locks were reclaimed since the
    /// request: the restarted server does not know this one.
    fn got(&self, asked: Asked, ino: u64, wanted: &FileLock) -> bool {
        let FileLock { owner, first, last, exclusive, process } = *wanted;
        let mut own = self.own.lock();
        Asked(own.reclaims) == asked
            && own.locks.lock(ino, Lock { owner: (OWN, owner), range: first..=last, exclusive, process })
    }

    fn has(&self, ino: u64, owner: u64, range: &RangeInclusive<u64>) -> bool {
        self.own.lock().locks.has(ino, (OWN, owner), range)
    }

    fn gave_up(&self, ino: u64, owner: u64, range: &RangeInclusive<u64>) {
        self.own.lock().locks.unlock(ino, (OWN, owner), range);
    }

    /// Marks all locks as lost. Returns how many there were.
    pub fn lose_all(&self) -> usize {
        let mut own = self.own.lock();
        own.reclaims += 1;
        let lost = std::mem::take(&mut own.locks).all();
        own.lost.extend(lost.iter().map(|(ino, held)| (*ino, held.owner.1)));
        self.any_lost.store(!own.lost.is_empty(), Ordering::Release);
        lost.len()
    }

    /// Marks one lock as lost.
    fn lose(&self, ino: u64, held: &FileLock) {
        let mut own = self.own.lock();
        own.locks.unlock(ino, (OWN, held.owner), &(held.first..=held.last));
        own.lost.push((ino, held.owner));
        self.any_lost.store(true, Ordering::Release);
    }

    pub fn any_is_lost(&self) -> bool {
        self.any_lost.load(Ordering::Acquire)
    }

    pub fn take_lost(&self) -> Vec<(u64, u64)> {
        let mut own = self.own.lock();
        self.any_lost.store(false, Ordering::Release);
        std::mem::take(&mut own.lost)
    }

    /// The locks to reclaim.
    pub fn tell(&self) -> Vec<(u64, FileLock)> {
        let mut own = self.own.lock();
        own.reclaims += 1;
        let reclaims = |Lock { owner, range, exclusive, process }: Lock| FileLock {
            owner: owner.1,
            first: *range.start(),
            last: *range.end(),
            exclusive,
            process,
        };
        own.locks.all().into_iter().map(|(ino, held)| (ino, reclaims(held))).collect()
    }

    /// Marks locks as lost that a server refused. Returns how many.
    pub fn lose_some(&self, refused: &[(u64, FileLock)]) -> usize {
        refused.iter().for_each(|(ino, held)| self.lose(*ino, held));
        refused.len()
    }
}

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
    pub fn lock(&self, ino: u64, wanted: &FileLock, wait: Option<&dyn Fn() -> bool>) -> Result<bool> {
        let client = self.locker()?;
        // The new lock may cover less than the owner held so far, so commit first.
        self.publish(ino)?;
        loop {
            let asked = client.locks.asking();
            if client.session.lock(ino, wanted.clone(), wait.is_some())? {
                if client.locks.got(asked, ino, wanted) {
                    self.look_anew(ino);
                    return Ok(true);
                }
                continue;
            }
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
    pub fn unlock(&self, ino: u64, owner: u64, first: u64, last: u64) -> Result<()> {
        let client = self.locker()?;
        let range = first..=last;
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
        match owed {
            Some(number) => client.session.unlock_owing(ino, owner, first, last, number)?,
            None => client.session.unlock(ino, owner, first, last)?,
        }
        if self.losses(ino) > losses { published.and(Err(lost())) } else { published }
    }

    /// Commits what was written to a file, so that other clients see it.
    pub(crate) fn publish(&self, ino: u64) -> Result<()> {
        match self.table.find(ino) {
            Some(file) if !file.state().buffer.is_clean() => self.hand_over(&file),
            _ => Ok(()),
        }
    }

    /// Drops the known size of a file, which may have changed: it is read again.
    fn look_anew(&self, ino: u64) {
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
    pub fn conflicting_lock(&self, ino: u64, wanted: &FileLock) -> Result<Option<FileLock>> {
        Ok(self.locker()?.session.conflicting_lock(ino, wanted.clone())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_another_server_refuses_is_lost_and_no_other() {
        let own = OwnLocks::default();
        let held = |first| FileLock { owner: 3, first, last: first + 9, exclusive: true, process: 1 };
        assert!(own.got(own.asking(), 7, &held(0)) && own.got(own.asking(), 7, &held(20)));
        let before = own.asking();
        assert_eq!(own.tell().len(), 2);
        assert!(!own.got(before, 7, &held(40)), "the server before granted it");
        assert_eq!(own.lose_some(&[(7, held(0))]), 1);
        assert!(!own.has(7, 3, &(0..=9)) && own.has(7, 3, &(20..=29)));
        assert_eq!(own.take_lost(), [(7, 3)]);
    }
}
