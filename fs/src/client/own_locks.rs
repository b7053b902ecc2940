//! The locks that this client has, and those that it lost.

use crate::ranks::ClientLocks;
use ::volume::ranked::Ranked;
use plan::{Ino, SessionId};
use session::locks::{Lock, Locks};
use session::port::FileLock;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::RangeInclusive;
use std::sync::Condvar;
use std::sync::atomic::{AtomicBool, Ordering};

/// The locks of this client, to the byte: exactly these are reclaimed from a restarted server.
#[derive(Default)]
pub(crate) struct OwnLocks {
    own: Ranked<Own, ClientLocks>,
    /// Whether `lost` is not empty.
    any_lost: AtomicBool,
    /// An owner's locks are settled.
    settled: Condvar,
}

#[derive(Default)]
struct Own {
    locks: Locks,
    /// How often the locks were reclaimed.
    reclaims: u64,
    /// Files and owners of lost locks that were not reported yet.
    lost: Vec<(Ino, u64)>,
    /// What owners may have at the server beyond `locks`: the answers to requests got lost.
    unsure: Locks,
    /// The files and owners with requests under way, each with their number.
    under_way: HashMap<(Ino, u64), u32>,
    /// The file and owner whose locks are being settled.
    settling: Option<(Ino, u64)>,
}

/// A request for a lock, or to give one up, that is under way.
pub(super) struct UnderWay<'a> {
    locks: &'a OwnLocks,
    of: (Ino, u64),
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut own = self.locks.own.lock();
        if let Entry::Occupied(mut count) = own.under_way.entry(self.of) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

/// The locks of an owner at the server and here are being made the same.
pub(super) struct Settling<'a> {
    locks: &'a OwnLocks,
    /// The file and the owner.
    pub of: (Ino, u64),
    /// What it may have at the server only.
    pub beyond: Vec<RangeInclusive<u64>>,
    /// What it has here, and may have in another way at the server.
    pub held: Vec<FileLock>,
}

impl Settling<'_> {
    /// They are the same.
    pub fn done(self) {
        let (ino, owner) = self.of;
        self.locks.own.lock().unsure.unlock(ino, (OWN, owner), &(0..=u64::MAX));
    }
}

impl Drop for Settling<'_> {
    fn drop(&mut self) {
        self.locks.own.lock().settling = None;
        self.locks.settled.notify_all();
    }
}

/// How often the locks had been reclaimed when a request for a new one was sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Asked(u64);

/// The client's own list uses no session number.
const OWN: SessionId = SessionId::NONE;

/// A lock as the server is told of it.
fn told(Lock { owner, range, exclusive, process }: Lock) -> FileLock {
    FileLock { owner: owner.1, first: *range.start(), last: *range.end(), exclusive, process }
}

impl OwnLocks {
    pub(super) fn asking(&self) -> Asked {
        Asked(self.own.lock().reclaims)
    }

    /// An owner is about to lock a range of a file or to unlock one. Waits while its locks are
    /// settled.
    pub(super) fn begin(&self, ino: Ino, owner: u64) -> UnderWay<'_> {
        let of = (ino, owner);
        let mut own = self.own.lock().wait_while(&self.settled, |own| own.settling == Some(of));
        *own.under_way.entry(of).or_default() += 1;
        UnderWay { locks: self, of }
    }

    /// The answer to a request of that owner got lost: the server may have locked the range, or may
    /// not have unlocked it.
    pub(super) fn is_unsure(&self, ino: Ino, owner: u64, range: RangeInclusive<u64>) {
        let unsure = Lock { owner: (OWN, owner), range, exclusive: false, process: 0 };
        self.own.lock().unsure.lock(ino, unsure);
    }

    /// Begins to settle the locks of an owner, if there is one that is unsure and has no request
    /// under way. One caller at a time.
    pub(super) fn settle(&self) -> Option<Settling<'_>> {
        let mut own = self.own.lock();
        let all = own.unsure.all();
        let (ino, owner) = all.iter().map(|(ino, of)| (*ino, of.owner.1)).find(|of| !own.under_way.contains_key(of))?;
        let is_its = |(file, of): &(Ino, Lock)| *file == ino && of.owner.1 == owner;
        let own_locks: Vec<Lock> = own.locks.all().into_iter().filter(is_its).map(|(_, lock)| lock).collect();
        let mut beyond = Locks::default();
        all.into_iter().filter(is_its).for_each(|(_, lock)| _ = beyond.lock(ino, lock));
        let is_unsure = |held: &&Lock| own.unsure.has(ino, held.owner, &held.range);
        let held = own_locks.iter().filter(is_unsure).map(|held| told(held.clone())).collect();
        own_locks.iter().for_each(|held| beyond.unlock(ino, held.owner, &held.range));
        own.settling = Some((ino, owner));
        let beyond = beyond.all().into_iter().map(|(_, lock)| lock.range).collect();
        Some(Settling { locks: self, of: (ino, owner), beyond, held })
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
        own.unsure = Locks::default();
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
        // The server takes over exactly these.
        own.unsure = Locks::default();
        own.locks.all().into_iter().map(|(ino, held)| (ino, told(held))).collect()
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

    #[test]
    fn what_an_owner_may_have_beyond_its_locks_is_given_up_between_its_requests() {
        let own = OwnLocks::default();
        assert!(own.settle().is_none());
        let under_way = own.begin(Ino(7), 3);
        own.is_unsure(Ino(7), 3, 0..=99);
        assert!(own.settle().is_none(), "a request is under way");
        drop(under_way);
        let held = FileLock { owner: 3, first: 10, last: 19, exclusive: true, process: 1 };
        assert!(own.got(own.asking(), Ino(7), &held));
        std::thread::scope(|scope| {
            let settling = own.settle().unwrap();
            assert_eq!((&settling.beyond[..], settling.of), (&[0..=9, 20..=99][..], (Ino(7), 3)));
            assert_eq!(settling.held, [held]);
            // The server does not answer.
            drop(settling);
            let settling = own.settle().unwrap();
            let next = scope.spawn(|| drop(own.begin(Ino(7), 3)));
            drop(own.begin(Ino(7), 4));
            std::thread::yield_now();
            assert!(!next.is_finished());
            settling.done();
        });
        assert!(own.settle().is_none());
        own.is_unsure(Ino(7), 3, 0..=99);
        own.lose_all();
        assert!(own.settle().is_none());
    }
}
