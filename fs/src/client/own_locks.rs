//! The locks that this client has, and those that it lost.

use crate::ranks::ClientLocks;
use ::volume::ranked::Ranked;
use plan::{Ino, SessionId};
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
    lost: Vec<(Ino, u64)>,
}

/// How often the locks had been reclaimed when a request for a new one was sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Asked(u64);

/// The client's own list uses no session number.
const OWN: SessionId = SessionId::NONE;

impl OwnLocks {
    pub(super) fn asking(&self) -> Asked {
        Asked(self.own.lock().reclaims)
    }

    /// Records a lock that a server granted. Returns false if locks were reclaimed since the
    /// request: the restarted server does not know this one.
    pub(super) fn got(&self, asked: Asked, ino: Ino, wanted: &FileLock) -> bool {
        let FileLock { owner, first, last, exclusive, process } = *wanted;
        let mut own = self.own.lock();
        Asked(own.reclaims) == asked
            && own.locks.lock(ino, Lock { owner: (OWN, owner), range: first..=last, exclusive, process })
    }

    pub fn has(&self, ino: Ino, owner: u64, range: &RangeInclusive<u64>) -> bool {
        self.own.lock().locks.has(ino, (OWN, owner), range)
    }

    pub fn gave_up(&self, ino: Ino, owner: u64, range: &RangeInclusive<u64>) {
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
    fn lose(&self, ino: Ino, held: &FileLock) {
        let mut own = self.own.lock();
        own.locks.unlock(ino, (OWN, held.owner), &(held.first..=held.last));
        own.lost.push((ino, held.owner));
        self.any_lost.store(true, Ordering::Release);
    }

    pub fn any_is_lost(&self) -> bool {
        self.any_lost.load(Ordering::Acquire)
    }

    pub fn take_lost(&self) -> Vec<(Ino, u64)> {
        let mut own = self.own.lock();
        self.any_lost.store(false, Ordering::Release);
        std::mem::take(&mut own.lost)
    }

    /// The locks to reclaim.
    pub fn tell(&self) -> Vec<(Ino, FileLock)> {
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
    pub fn lose_some(&self, refused: &[(Ino, FileLock)]) -> usize {
        refused.iter().for_each(|(ino, held)| self.lose(*ino, held));
        refused.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_another_server_refuses_is_lost_and_no_other() {
        let own = OwnLocks::default();
        let held = |first| FileLock { owner: 3, first, last: first + 9, exclusive: true, process: 1 };
        assert!(own.got(own.asking(), Ino(7), &held(0)) && own.got(own.asking(), Ino(7), &held(20)));
        let before = own.asking();
        assert_eq!(own.tell().len(), 2);
        assert!(!own.got(before, Ino(7), &held(40)), "the server before granted it");
        assert_eq!(own.lose_some(&[(Ino(7), held(0))]), 1);
        assert!(!own.has(Ino(7), 3, &(0..=9)) && own.has(Ino(7), 3, &(20..=29)));
        assert_eq!(own.take_lost(), [(Ino(7), 3)]);
    }
}
