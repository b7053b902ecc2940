//! Locks of byte ranges (`fcntl`) and of whole files (`flock`): which owner holds which bytes,
//! without a clock and without waiting. The server keeps the locks of all clients, a client keeps
//! its own.

use plan::{Ino, SessionId};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// The owner of a lock: the session, and the owner's id in that client's kernel.
pub type Owner = (SessionId, u64);

/// A lock of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lock {
    /// Who holds it.
    pub owner: Owner,
    /// The first and the last byte.
    pub range: RangeInclusive<u64>,
    /// No other owner may hold a lock on any of these bytes.
    pub exclusive: bool,
    /// The process id on the client.
    pub process: u32,
}

/// All locks, by file, and the number of locks of each session.
#[derive(Debug, Default)]
pub struct Locks {
    files: BTreeMap<Ino, Vec<Lock>>,
    held: BTreeMap<SessionId, usize>,
}

fn meet(a: &RangeInclusive<u64>, b: &RangeInclusive<u64>) -> bool {
    a.start() <= b.end() && b.start() <= a.end()
}

impl Locks {
    /// The lock of another owner that conflicts with `wanted`.
    pub fn conflict(&self, ino: Ino, wanted: &Lock) -> Option<&Lock> {
        let stands = |lock: &&Lock| {
            lock.owner != wanted.owner && (lock.exclusive || wanted.exclusive) && meet(&lock.range, &wanted.range)
        };
        self.files.get(&ino)?.iter().find(stands)
    }

    /// Grants a lock if none conflicts. It replaces what its owner held of the range.
    pub fn lock(&mut self, ino: Ino, wanted: Lock) -> bool {
        if self.conflict(ino, &wanted).is_some() {
            return false;
        }
        self.unlock(ino, wanted.owner, &wanted.range);
        *self.held.entry(wanted.owner.0).or_default() += 1;
        self.files.entry(ino).or_default().push(wanted);
        true
    }

    /// Removes a range from what an owner has locked.
    pub fn unlock(&mut self, ino: Ino, owner: Owner, range: &RangeInclusive<u64>) {
        let Some(locks) = self.files.get_mut(&ino) else { return };
        if !locks.iter().any(|lock| lock.owner == owner && meet(&lock.range, range)) {
            return;
        }
        let before = locks.len();
        let mut left = Vec::with_capacity(locks.len() + 1);
        for lock in locks.drain(..) {
            if lock.owner != owner || !meet(&lock.range, range) {
                left.push(lock);
                continue;
            }
            let (first, last) = lock.range.clone().into_inner();
            if let Some(end) = range.start().checked_sub(1).filter(|&end| end >= first) {
                left.push(Lock { range: first..=end, ..lock.clone() });
            }
            if let Some(begin) = range.end().checked_add(1).filter(|&begin| begin <= last) {
                left.push(Lock { range: begin..=last, ..lock });
            }
        }
        let held = self.held.entry(owner.0).or_default();
        *held = (*held + left.len()).saturating_sub(before);
        if *held == 0 {
            self.held.remove(&owner.0);
        }
        *locks = left;
        if locks.is_empty() {
            self.files.remove(&ino);
        }
    }

    /// Whether unlocking the range splits one lock into two.
    pub fn splits(&self, ino: Ino, owner: Owner, range: &RangeInclusive<u64>) -> bool {
        let within = |lock: &Lock| lock.range.start() < range.start() && range.end() < lock.range.end();
        self.files.get(&ino).is_some_and(|locks| locks.iter().any(|lock| lock.owner == owner && within(lock)))
    }

    /// How many locks the session would have after `wanted` is granted.
    pub fn held_with(&self, ino: Ino, wanted: &Lock) -> usize {
        let mut held = self.held(wanted.owner.0) + 1;
        let locks = self.files.get(&ino).map_or(&[][..], Vec::as_slice);
        for lock in locks.iter().filter(|lock| lock.owner == wanted.owner && meet(&lock.range, &wanted.range)) {
            held += usize::from(lock.range.start() < wanted.range.start());
            held += usize::from(wanted.range.end() < lock.range.end());
            held -= 1;
        }
        held
    }

    /// How many locks a session has. A lock that was unlocked in the middle counts as two.
    pub fn held(&self, session: SessionId) -> usize {
        self.held.get(&session).copied().unwrap_or(0)
    }

    /// Whether an owner holds any part of a range.
    pub fn has(&self, ino: Ino, owner: Owner, range: &RangeInclusive<u64>) -> bool {
        self.files
            .get(&ino)
            .is_some_and(|locks| locks.iter().any(|lock| lock.owner == owner && meet(&lock.range, range)))
    }

    /// All locks, each with its file.
    pub fn all(&self) -> Vec<(Ino, Lock)> {
        self.files.iter().flat_map(|(&ino, locks)| locks.iter().map(move |lock| (ino, lock.clone()))).collect()
    }

    /// Removes all locks of a session.
    pub fn end(&mut self, session: SessionId) {
        self.held.remove(&session);
        self.files.retain(|_, locks| {
            locks.retain(|lock| lock.owner.0 != session);
            !locks.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Owner = (SessionId(1), 7);
    const B: Owner = (SessionId(2), 7);

    fn lock(owner: Owner, range: RangeInclusive<u64>, exclusive: bool) -> Lock {
        Lock { owner, range, exclusive, process: 9 }
    }

    #[test]
    fn readers_share_and_writers_do_not() {
        let mut locks = Locks::default();
        assert!(locks.lock(Ino(5), lock(A, 0..=9, false)));
        assert!(locks.lock(Ino(5), lock(B, 5..=20, false)));
        assert!(!locks.lock(Ino(5), lock(A, 9..=9, true)));
        assert_eq!(locks.conflict(Ino(5), &lock(A, 9..=9, true)).unwrap().owner, B);
        // Another file, or bytes behind the lock.
        assert!(locks.lock(Ino(6), lock(A, 9..=9, true)));
        assert!(locks.lock(Ino(5), lock(A, 21..=u64::MAX, true)));
        locks.end(SessionId(2));
        assert!(locks.lock(Ino(5), lock(A, 0..=u64::MAX, true)));
    }

    proptest::proptest! {
        #[test]
        fn it_is_as_if_every_byte_had_a_lock_of_its_own(
            steps in proptest::collection::vec((0u64..3, 0u64..30, 0u64..12, 0u8..3), 1..80),
        ) {
            let mut locks = Locks::default();
            let mut bytes: Vec<BTreeMap<SessionId, bool>> = vec![BTreeMap::new(); 50];
            for (owner, first, more, what) in steps {
                let owner = SessionId(owner);
                let range = first..=first + more;
                if what == 2 {
                    locks.unlock(Ino(1), (owner, 0), &range);
                    range.for_each(|at| _ = bytes[at as usize].remove(&owner));
                    continue;
                }
                let exclusive = what == 1;
                let free = range.clone().all(|at| {
                    bytes[at as usize].iter().all(|(&other, &theirs)| other == owner || !(theirs || exclusive))
                });
                let held = locks.held_with(Ino(1), &lock((owner, 0), range.clone(), exclusive));
                proptest::prop_assert_eq!(locks.lock(Ino(1), lock((owner, 0), range.clone(), exclusive)), free);
                if free {
                    proptest::prop_assert_eq!(locks.held(owner), held);
                    range.for_each(|at| _ = bytes[at as usize].insert(owner, exclusive));
                }
            }
            let sessions = [0, 1, 2].map(SessionId);
            let each = sessions.map(|session| locks.held(session));
            let counted = |owner| {
                locks.files.get(&Ino(1)).map_or(0, |all| all.iter().filter(|lock| lock.owner.0 == owner).count())
            };
            proptest::prop_assert_eq!(each, sessions.map(counted));
            let held: usize = locks.files.get(&Ino(1)).map_or(0, |all| {
                all.iter().map(|l| (l.range.end() - l.range.start() + 1) as usize).sum()
            });
            proptest::prop_assert_eq!(held, bytes.iter().map(BTreeMap::len).sum::<usize>());
        }
    }
}
