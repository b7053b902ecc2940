//! Locks of byte ranges that hold across clients. Where nobody else has the volume open they are the kernel's business.
//!
//! As with NFS, what is written under a lock is committed before the lock is given up, and what is known of a file is asked for again when a lock of it is got: the
//! next holder sees what the one before wrote.

use crate::client::Client;
use crate::mutex::lock;
use crate::session::locks::{Lock, Locks};
use crate::{Error, FileSystem, Result};
use meta::port::{FileLock, Session};
use std::ops::RangeInclusive;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a client has locked, to the byte: a server that was restarted is told just that.
#[derive(Default)]
pub(crate) struct OwnLocks {
    own: Mutex<Own>,
    /// Whether `lost` has any.
    any_lost: AtomicBool,
}

#[derive(Default)]
struct Own {
    locks: Locks,
    /// How often a server was told.
    told: u64,
    /// Files and owners of those that were lost, and that nobody was told of yet.
    lost: Vec<(u64, u64)>,
}

/// How often a server was told of the locks, when one more was asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Asked(u64);

/// In a client's own list its session has no number.
const OWN: u64 = 0;

impl OwnLocks {
    fn asking(&self) -> Asked {
        Asked(lock(&self.own).told)
    }

    /// A server gave a lock that was asked for then. Returns false if a server was told meanwhile what is locked: it does not know of this one.
    fn got(&self, asked: Asked, ino: u64, wanted: &FileLock) -> bool {
        let FileLock { owner, first, last, exclusive, process } = *wanted;
        let mut own = lock(&self.own);
        Asked(own.told) == asked
            && own.locks.lock(ino, Lock { owner: (OWN, owner), range: first..=last, exclusive, process })
    }

    fn has(&self, ino: u64, owner: u64, range: &RangeInclusive<u64>) -> bool {
        lock(&self.own).locks.has(ino, (OWN, owner), range)
    }

    fn gave_up(&self, ino: u64, owner: u64, range: &RangeInclusive<u64>) {
        lock(&self.own).locks.unlock(ino, (OWN, owner), range);
    }

    /// All are lost. Returns how many there were.
    pub fn lose_all(&self) -> usize {
        let mut own = lock(&self.own);
        own.told += 1;
        let lost = std::mem::take(&mut own.locks).all();
        own.lost.extend(lost.iter().map(|(ino, held)| (*ino, held.owner.1)));
        self.any_lost.store(!own.lost.is_empty(), Ordering::Release);
        lost.len()
    }

    /// One is lost.
    fn lose(&self, ino: u64, held: &FileLock) {
        let mut own = lock(&self.own);
        own.locks.unlock(ino, (OWN, held.owner), &(held.first..=held.last));
        own.lost.push((ino, held.owner));
        self.any_lost.store(true, Ordering::Release);
    }

    pub fn any_is_lost(&self) -> bool {
        self.any_lost.load(Ordering::Acquire)
    }

    pub fn take_lost(&self) -> Vec<(u64, u64)> {
        let mut own = lock(&self.own);
        self.any_lost.store(false, Ordering::Release);
        std::mem::take(&mut own.lost)
    }

    /// What a server is to be told.
    fn tell(&self) -> Vec<(u64, FileLock)> {
        let mut own = lock(&self.own);
        own.told += 1;
        let told = |Lock { owner, range, exclusive, process }: Lock| FileLock {
            owner: owner.1,
            first: *range.start(),
            last: *range.end(),
            exclusive,
            process,
        };
        own.locks.all().into_iter().map(|(ino, held)| (ino, told(held))).collect()
    }

    /// Has a server that was restarted lock again what is locked. What it refuses is lost. Returns how many those are.
    fn lock_again(&self, session: &dyn Session) -> meta::Result<usize> {
        let mut lost = 0;
        for (ino, held) in self.tell() {
            match session.lock(ino, held.clone(), false) {
                Ok(true) => {}
                // There may be another answer later, or none is needed: the session ended.
                Err(error @ meta::Error::Unavailable(_)) => return Err(error),
                Ok(false) | Err(_) => {
                    self.lose(ino, &held);
                    lost += 1;
                }
            }
        }
        Ok(lost)
    }
}

impl FileSystem {
    fn locker(&self) -> Result<&Client> {
        self.client().ok_or(Error::Unsupported("the kernel keeps the locks of this volume"))
    }

    /// Locks a range for an owner. Returns whether that could be; with `wait`, which is asked from time to time, it is waited for as long as that says so.
    ///
    /// # Errors
    /// When the metadata server does not answer, the volume is not shared, or what was written before cannot be committed.
    pub fn lock(&self, ino: u64, wanted: &FileLock, wait: Option<&dyn Fn() -> bool>) -> Result<bool> {
        let client = self.locker()?;
        // This may be less than what the owner had until now.
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

    /// Unlocks a range of what an owner has locked. What was written to the file is committed before.
    ///
    /// # Errors
    /// As `lock`. The range is unlocked all the same if the server answers.
    pub fn unlock(&self, ino: u64, owner: u64, first: u64, last: u64) -> Result<()> {
        let client = self.locker()?;
        let range = first..=last;
        if !client.locks.has(ino, owner, &range) {
            return Ok(());
        }
        let published = self.publish(ino);
        client.locks.gave_up(ino, owner, &range);
        // Else a server that is being told of it would get it after this.
        client.cache.wait_for_reclaim();
        client.session.unlock(ino, owner, first, last)?;
        published
    }

    /// Commits what was written to a file, so that other clients see it.
    pub(crate) fn publish(&self, ino: u64) -> Result<()> {
        match self.table.find(ino) {
            Some(file) if !file.state().buffer.is_clean() => self.hand_over(&file),
            _ => Ok(()),
        }
    }

    /// How long a file is may have changed: it is asked for again.
    fn look_anew(&self, ino: u64) {
        let Some(file) = self.table.find(ino) else { return };
        let mut state = file.state();
        if state.buffer.is_clean() && !state.changing {
            state.buffer.size = None;
        }
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
    /// Locks again, at a server that was restarted, what is locked. Returns how many are lost.
    pub fn lock_again(&self, session: &dyn Session) -> meta::Result<usize> {
        self.locks.lock_again(session)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use meta::port::{Call, Remote};

    /// A server that answers every request with an error.
    struct Refuses(meta::Error);

    impl Call for Refuses {
        fn call(&self, _: u16, _: &[u8]) -> meta::Result<Vec<u8>> {
            Err(self.0.clone())
        }
    }

    #[test]
    fn a_lock_that_a_restarted_server_refuses_is_lost_and_one_that_it_does_not_answer_for_is_not() {
        let own = OwnLocks::default();
        let held = FileLock { owner: 3, first: 0, last: 9, exclusive: true, process: 1 };
        assert!(own.got(own.asking(), 7, &held));
        assert!(own.lock_again(&Remote(Refuses(meta::Error::Unavailable("it is away".into())))).is_err());
        assert!(own.has(7, 3, &(0..=9)) && !own.any_is_lost());
        assert_eq!(own.lock_again(&Remote(Refuses(meta::Error::TooManyLocks))), Ok(1));
        assert!(!own.has(7, 3, &(0..=9)));
        assert_eq!(own.take_lost(), [(7, 3)]);
    }
}
