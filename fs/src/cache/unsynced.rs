//! What a client changed and did not sync, by the files and directories that it concerns: that may be lost with the machine of its server, though the client
//! goes on.

use std::collections::{HashMap, HashSet};

/// So many are told apart; with more, it may be any.
const MOST: usize = 1 << 16;

/// A moment: what was changed before it has a lower number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment(u64);

/// Changes that are not durable yet, and those that may be lost.
#[derive(Debug, Default)]
pub(super) struct Unsynced {
    changes: u64,
    /// When each was changed last.
    changed: HashMap<u64, u64>,
    /// The last change of those that are not told apart.
    others: Option<u64>,
    lost: HashSet<u64>,
    /// Any may be lost, which nobody was told.
    any_lost: bool,
}

impl Unsynced {
    /// These are about to be changed, or were changed just now.
    pub fn change(&mut self, inos: impl IntoIterator<Item = u64>) -> Moment {
        self.changes += 1;
        for ino in inos {
            if self.changed.len() >= MOST && !self.changed.contains_key(&ino) {
                self.changed = HashMap::new();
                self.others = Some(self.changes);
            }
            self.changed.insert(ino, self.changes);
        }
        Moment(self.changes)
    }

    /// The change that began then is durable itself: of these nothing is left, unless there was another one since.
    pub fn durable(&mut self, inos: impl IntoIterator<Item = u64>, begun: Moment) {
        for ino in inos {
            if self.changed.get(&ino) == Some(&begun.0) {
                self.changed.remove(&ino);
            }
        }
    }

    /// A sync begins.
    pub fn now(&self) -> Moment {
        Moment(self.changes)
    }

    /// What was changed before is durable.
    pub fn synced(&mut self, before: Moment) {
        self.changed.retain(|_, number| *number > before.0);
        self.others = self.others.filter(|&number| number > before.0);
    }

    /// What is not durable may be lost. Returns whether there is something.
    pub fn lose(&mut self) -> bool {
        let any = self.others.take().is_some() || self.lost.len() + self.changed.len() > MOST;
        let lost = std::mem::take(&mut self.changed);
        let has_lost = any || !lost.is_empty();
        self.any_lost |= any;
        if !any {
            self.lost.extend(lost.into_keys());
        }
        has_lost
    }

    /// Whether something of a file or directory may be lost, which nobody was told so far.
    pub fn tell(&mut self, ino: u64) -> bool {
        self.lost.remove(&ino) || std::mem::take(&mut self.any_lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_changed_since_the_last_sync_is_lost_and_told_once() {
        let mut unsynced = Unsynced::default();
        assert!(!unsynced.lose() && !unsynced.tell(1));
        unsynced.change([1, 2]);
        let sync = unsynced.now();
        // While it goes on.
        unsynced.change([2, 3]);
        unsynced.synced(sync);
        assert!(unsynced.lose());
        assert_eq!([1, 2, 3, 2].map(|ino| unsynced.tell(ino)), [false, true, true, false]);
        assert!(!unsynced.lose());
        unsynced.change([5]);
        unsynced.synced(unsynced.now());
        assert!(!unsynced.lose());
        let durable = unsynced.change([6, 7]);
        unsynced.change([7]);
        unsynced.durable([6, 7], durable);
        assert!(unsynced.lose() && !unsynced.tell(6) && unsynced.tell(7));
    }

    #[test]
    fn of_very_many_it_may_be_any() {
        let mut unsynced = Unsynced::default();
        for ino in 0..2 * MOST as u64 {
            unsynced.change([ino]);
            assert!(unsynced.changed.len() <= MOST);
        }
        assert!(unsynced.lose());
        assert!(unsynced.tell(7) && !unsynced.tell(7));
        unsynced.change([1]);
        assert!(unsynced.lose() && !unsynced.tell(2) && unsynced.tell(1));
        for round in 0..3 {
            unsynced.change(round * 30_000..(round + 1) * 30_000);
            assert!(unsynced.lose() && unsynced.lost.len() <= MOST);
        }
        assert!(unsynced.tell(u64::MAX));
    }
}
