//! Unsynced changes of a client, by file and directory. They may be lost with the machine of the
//! server, although the client continues.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

/// The most files that are tracked one by one; with more, any file may be affected.
const MOST: usize = 1 << 16;

/// A moment: changes before it have lower numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment(u64);

/// Changes that are not durable yet, and those that may be lost.
#[derive(Debug, Default)]
pub(super) struct Unsynced {
    changes: u64,
    /// The last change of each file.
    changed: HashMap<u64, u64>,
    /// The last change of files that are not tracked one by one.
    others: Option<u64>,
    /// Since when there are, or may be, unsynced changes.
    since: Option<Instant>,
    /// Files whose changes may be lost, until a sync reports it. The value says whether a close has
    /// reported it; the program that closed need not be the one that wrote.
    lost: HashMap<u64, bool>,
    /// Set when any file may be affected: the files whose sync has reported it.
    any_lost: Option<HashSet<u64>>,
}

impl Unsynced {
    /// Records that these files are about to be changed, or were changed just now.
    pub fn change(&mut self, inos: impl IntoIterator<Item = u64>) -> Moment {
        self.changes += 1;
        self.since.get_or_insert_with(Instant::now);
        for ino in inos {
            if self.changed.len() >= MOST && !self.changed.contains_key(&ino) {
                self.changed = HashMap::new();
                self.others = Some(self.changes);
            }
            self.changed.insert(ino, self.changes);
        }
        Moment(self.changes)
    }

    /// The change that began at that moment is durable itself. Its files are clean, unless they
    /// were changed again since.
    pub fn durable(&mut self, inos: impl IntoIterator<Item = u64>, begun: Moment) {
        for ino in inos {
            if self.changed.get(&ino) == Some(&begun.0) {
                self.changed.remove(&ino);
            }
        }
    }

    /// The current moment, for the beginning of a sync.
    pub fn now(&self) -> Moment {
        Moment(self.changes)
    }

    /// Everything that was changed before is durable.
    pub fn synced(&mut self, before: Moment) {
        self.changed.retain(|_, number| *number > before.0);
        self.others = self.others.filter(|&number| number > before.0);
        // The remaining changes are newer than that.
        let is_left = self.others.is_some() || !self.changed.is_empty();
        self.since = is_left.then(Instant::now);
    }

    /// Whether there are unsynced changes of at least this age.
    pub fn is_older_than(&self, age: Duration) -> bool {
        self.since.is_some_and(|since| since.elapsed() >= age)
    }

    /// Unsynced changes may be lost. Returns whether there are any.
    pub fn lose(&mut self) -> bool {
        let fits = self.lost.len() + self.changed.len() <= MOST;
        let lost = std::mem::take(&mut self.changed);
        let any = self.others.take().is_some() || !fits;
        let has_lost = any || !lost.is_empty();
        if any {
            self.any_lost = Some(HashSet::new());
        }
        if fits {
            self.lost.extend(lost.into_keys().map(|ino| (ino, false)));
        }
        self.since = None;
        has_lost
    }

    /// Whether changes of a file or directory may be lost, and no close or no sync, respectively,
    /// has reported it yet.
    pub fn tell(&mut self, ino: u64, at_close: bool) -> bool {
        if at_close {
            return self.lost.get_mut(&ino).is_some_and(|told| !std::mem::replace(told, true));
        }
        let it_is = self.lost.remove(&ino).is_some();
        let it_may_be = self.any_lost.as_mut().is_some_and(|told| told.insert(ino));
        if self.any_lost.as_ref().is_some_and(|told| told.len() > MOST) {
            self.any_lost = None;
        }
        it_is || it_may_be
    }

    /// Whether changes of this very file may be lost and no sync has reported it. It counts as
    /// reported then.
    pub fn take_certain(&mut self, ino: u64) -> bool {
        self.lost.remove(&ino).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_changed_since_the_last_sync_is_lost_and_told_once() {
        let mut unsynced = Unsynced::default();
        assert!(!unsynced.lose() && !unsynced.tell(1, false) && !unsynced.is_older_than(Duration::ZERO));
        unsynced.change([1, 2]);
        let sync = unsynced.now();
        // While the sync runs.
        unsynced.change([2, 3]);
        unsynced.synced(sync);
        assert!(unsynced.is_older_than(Duration::ZERO) && !unsynced.is_older_than(Duration::from_secs(60)));
        assert!(unsynced.lose());
        // A close reports it and does not take the report from a later sync.
        assert_eq!([1, 2, 2].map(|ino| unsynced.tell(ino, true)), [false, true, false]);
        assert_eq!([1, 2, 3, 2].map(|ino| unsynced.tell(ino, false)), [false, true, true, false]);
        assert!(!unsynced.lose() && !unsynced.tell(3, true) && !unsynced.is_older_than(Duration::ZERO));
        unsynced.change([5]);
        unsynced.synced(unsynced.now());
        assert!(!unsynced.lose());
        let durable = unsynced.change([6, 7]);
        unsynced.change([7]);
        unsynced.durable([6, 7], durable);
        assert!(unsynced.lose() && !unsynced.tell(6, false) && unsynced.tell(7, false));
    }

    #[test]
    fn of_very_many_it_may_be_any() {
        let mut unsynced = Unsynced::default();
        for ino in 0..2 * MOST as u64 {
            unsynced.change([ino]);
            assert!(unsynced.changed.len() <= MOST);
        }
        assert!(unsynced.lose());
        // The first sync of each file reports it, and only that.
        assert!([7, 8, u64::MAX].iter().all(|&ino| unsynced.tell(ino, false) && !unsynced.tell(ino, false)));
        for round in 0..3 {
            unsynced.change(round * 30_000..(round + 1) * 30_000);
            assert!(unsynced.lose() && unsynced.lost.len() <= MOST);
        }
        for ino in 0..2 * MOST as u64 {
            unsynced.tell(ino, false);
            assert!(unsynced.any_lost.as_ref().is_none_or(|told| told.len() <= MOST));
        }
        assert!(!unsynced.tell(u64::MAX - 1, false), "not for ever");
    }
}
