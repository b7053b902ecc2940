//! Unsynced changes of a client, by file and directory. They may be lost with their server although
//! the client continues with another one: client and server compare openings and transactions.

use plan::{Ino, TxId};
use session::port::Opening;
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

/// The most files that are tracked one by one; with more, any file may be affected.
const MAX_TRACKED_FILES: usize = 1 << 16;
/// The most takeovers for which an answer from before can still be judged. No request takes longer.
const TAKEOVERS: usize = 16;

/// A moment: changes before it have lower numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment(u64);

/// The answer to a change: the number of the opening whose server gave it, 0 if that is not known,
/// and the number of the transaction in that opening.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Answered {
    pub opening: u64,
    pub seq: TxId,
}

/// The changes of a file.
#[derive(Clone, Copy, Debug, Default)]
struct Changes {
    /// The number of the last one.
    last: u64,
    /// The number of the last one that was answered, and the answer. One without an answer is sent
    /// to the next server, too.
    answered: Option<(u64, Answered)>,
}

/// Changes that are not durable yet, and those that may be lost.
#[derive(Debug, Default)]
pub(super) struct Unsynced {
    changes: u64,
    /// The changes of each file.
    changed: HashMap<Ino, Changes>,
    /// The changes of files that are not tracked one by one.
    others: Option<Changes>,
    /// Since when there are, or may be, unsynced changes.
    since: Option<Instant>,
    /// The current opening, and for each earlier one the last transaction of it that the next one
    /// had.
    opening: Opening,
    takeovers: Vec<(u64, TxId)>,
    /// Files whose changes may be lost, until a sync reports it. The value says whether a close has
    /// reported it; the program that closed need not be the one that wrote.
    lost: HashMap<Ino, bool>,
    /// Set when any file may be affected: the files whose sync has reported it.
    any_lost: Option<HashSet<Ino>>,
}

impl Changes {
    fn note(&mut self, number: u64, answered: Option<Answered>) {
        self.last = number;
        if let Some(answer) = answered {
            let before = self.answered.map_or(Answered::default(), |(_, before)| before);
            self.answered = Some((number, before.max(answer)));
        }
    }

    /// Removes what is lost by a takeover. Returns whether anything is.
    fn lose(&mut self, is_lost: impl Fn(Answered) -> bool) -> bool {
        self.answered.take_if(|(_, answer)| is_lost(*answer)).is_some()
    }

    /// Whether there is nothing but changes that were lost.
    fn is_over(&self, lost_until: u64) -> bool {
        self.answered.is_none() && self.last <= lost_until
    }
}

impl Unsynced {
    /// Begins with the opening of the first server.
    pub fn new(opening: Opening) -> Self {
        Self { opening, ..Self::default() }
    }

    /// The current opening.
    pub fn opening(&self) -> Opening {
        self.opening
    }

    /// Records that these files are about to be changed.
    pub fn change(&mut self, inos: impl IntoIterator<Item = Ino>) -> Moment {
        self.note(inos, None)
    }

    /// Records that these files were changed. Returns whether that is lost already, because another
    /// server took over meanwhile.
    pub fn changed(&mut self, inos: impl IntoIterator<Item = Ino>, mut answer: Answered) -> bool {
        if answer.opening == 0 {
            // The way to the server does not say which one answers, and has only one.
            answer.opening = self.opening.number;
        }
        if !self.is_lost(answer) {
            self.note(inos, Some(answer));
            return false;
        }
        for ino in inos {
            self.lose_file(ino);
        }
        true
    }

    fn note(&mut self, inos: impl IntoIterator<Item = Ino>, answered: Option<Answered>) -> Moment {
        self.changes += 1;
        self.since.get_or_insert_with(Instant::now);
        for ino in inos {
            if self.changed.len() >= MAX_TRACKED_FILES && !self.changed.contains_key(&ino) {
                let mut others = self.others.unwrap_or_default();
                for all in std::mem::take(&mut self.changed).into_values() {
                    others.note(self.changes, all.answered.map(|(_, answer)| answer));
                }
                self.others = Some(others);
            }
            self.changed.entry(ino).or_default().note(self.changes, answered);
        }
        Moment(self.changes)
    }

    /// The change that began at that moment is durable itself. Its files are clean, unless they
    /// were changed again since.
    pub fn durable(&mut self, inos: impl IntoIterator<Item = Ino>, begun: Moment) {
        for ino in inos {
            if self.changed.get(&ino).is_some_and(|changes| changes.last == begun.0) {
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
        let is_newer = |changes: &Changes| changes.last > before.0;
        self.changed.retain(|_, changes| is_newer(changes));
        self.others = self.others.filter(is_newer);
        // The remaining changes are newer than that.
        let is_left = self.others.is_some() || !self.changed.is_empty();
        self.since = is_left.then(Instant::now);
    }

    /// Whether there are unsynced changes of at least this age.
    pub fn is_older_than(&self, age: Duration) -> bool {
        self.since.is_some_and(|since| since.elapsed() >= age)
    }

    /// Whether the answer is from an opening whose transactions up to that number were not all
    /// there at a later one.
    fn is_lost(&self, answer: Answered) -> bool {
        if answer.opening == self.opening.number {
            return false;
        }
        let since = self.takeovers.iter().filter(|(opening, _)| *opening >= answer.opening);
        let recovered = since.map(|(_, recovered)| *recovered).min().unwrap_or_default();
        let is_known = self.takeovers.first().is_some_and(|(first, _)| *first <= answer.opening);
        !is_known || answer.seq > recovered
    }

    fn lose_file(&mut self, ino: Ino) {
        if self.lost.len() < MAX_TRACKED_FILES || self.lost.contains_key(&ino) {
            self.lost.insert(ino, false);
        } else {
            self.any_lost = Some(HashSet::new());
        }
    }

    /// Another server took over, in this opening. Of the transactions of the opening so far it has
    /// those up to `recovered`. Returns whether changes are lost.
    pub fn take_over(&mut self, opening: Opening, recovered: TxId) -> bool {
        if opening == self.opening {
            return false;
        }
        self.takeovers.push((self.opening.number, recovered));
        let old = self.takeovers.len().saturating_sub(TAKEOVERS);
        self.takeovers.drain(..old);
        self.opening = opening;
        let mut lost = Vec::new();
        let mut changed = std::mem::take(&mut self.changed);
        changed.retain(|&ino, changes| {
            let until = changes.answered.map_or(0, |(number, _)| number);
            if changes.lose(|answer| self.is_lost(answer)) {
                lost.push(ino);
            }
            !changes.is_over(until)
        });
        self.changed = changed;
        let any = self.others.is_some_and(|mut others| others.lose(|answer| self.is_lost(answer)));
        if any {
            self.others = None;
            self.any_lost = Some(HashSet::new());
        }
        let has_lost = any || !lost.is_empty();
        lost.into_iter().for_each(|ino| self.lose_file(ino));
        has_lost
    }

    /// Whether changes of a file or directory may be lost, and no close or no sync, respectively,
    /// has reported it yet.
    pub fn tell(&mut self, ino: Ino, at_close: bool) -> bool {
        if at_close {
            return self.lost.get_mut(&ino).is_some_and(|reported| !std::mem::replace(reported, true));
        }
        let it_is = self.lost.remove(&ino).is_some();
        let it_may_be = self.any_lost.as_mut().is_some_and(|reported| reported.insert(ino));
        if self.any_lost.as_ref().is_some_and(|reported| reported.len() > MAX_TRACKED_FILES) {
            self.any_lost = None;
        }
        it_is || it_may_be
    }

    /// Whether changes of this very file may be lost and no sync has reported it. It counts as
    /// reported then.
    pub fn take_certain(&mut self, ino: Ino) -> bool {
        self.lost.remove(&ino).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opening(number: u64) -> Opening {
        Opening { number, id: [0; 16] }
    }

    /// A change that was answered.
    fn change(unsynced: &mut Unsynced, inos: &[Ino], seq: TxId) -> Moment {
        let begun = unsynced.change(inos.iter().copied());
        unsynced.changed(inos.iter().copied(), Answered { opening: unsynced.opening.number, seq });
        begun
    }

    #[test]
    fn what_was_changed_since_the_last_sync_is_lost_and_told_once() {
        let mut unsynced = Unsynced::new(opening(1));
        assert!(!unsynced.take_over(opening(2), TxId(0)) && !unsynced.tell(Ino(1), false));
        assert!(!unsynced.is_older_than(Duration::ZERO));
        change(&mut unsynced, &[Ino(1), Ino(2)], TxId(10));
        let sync = unsynced.now();
        // While the sync runs.
        change(&mut unsynced, &[Ino(2), Ino(3)], TxId(11));
        unsynced.synced(sync);
        assert!(unsynced.is_older_than(Duration::ZERO) && !unsynced.is_older_than(Duration::from_secs(60)));
        assert!(!unsynced.take_over(opening(2), TxId(0)), "it is the same");
        assert!(unsynced.take_over(opening(3), TxId(10)));
        // A close reports it and does not take the report from a later sync.
        assert_eq!([1, 2, 2].map(|ino| unsynced.tell(Ino(ino), true)), [false, true, false]);
        assert_eq!([1, 2, 3, 2].map(|ino| unsynced.tell(Ino(ino), false)), [false, true, true, false]);
        assert!(!unsynced.take_over(opening(4), TxId(0)) && !unsynced.tell(Ino(3), true));
        change(&mut unsynced, &[Ino(5)], TxId(12));
        unsynced.synced(unsynced.now());
        assert!(!unsynced.take_over(opening(5), TxId(0)));
    }

    #[test]
    fn a_takeover_loses_what_the_next_server_has_not_and_nothing_else() {
        let mut unsynced = Unsynced::new(opening(1));
        change(&mut unsynced, &[Ino(1)], TxId(10));
        change(&mut unsynced, &[Ino(2)], TxId(11));
        // It has no answer yet, and goes to the next server.
        unsynced.change([Ino(3)]);
        change(&mut unsynced, &[Ino(4)], TxId(12));
        unsynced.change([Ino(4)]);
        assert!(unsynced.take_over(opening(2), TxId(10)));
        assert_eq!([1, 2, 3, 4].map(|ino| unsynced.tell(Ino(ino), false)), [false, true, false, true]);
        // The answers come late: one from the next server, and two from the one before.
        assert!(!unsynced.changed([Ino(3)], Answered { opening: 2, seq: TxId(11) }));
        assert!(!unsynced.changed([Ino(5)], Answered { opening: 1, seq: TxId(9) }));
        assert!(unsynced.changed([Ino(6)], Answered { opening: 1, seq: TxId(11) }));
        assert_eq!([3, 4, 5, 6].map(|ino| unsynced.tell(Ino(ino), false)), [false, false, false, true]);
        // What the second server had, and the third has not, is lost, too.
        assert!(unsynced.take_over(opening(3), TxId(8)));
        assert_eq!([1, 3, 4, 5].map(|ino| unsynced.tell(Ino(ino), false)), [true, true, false, true]);
        assert!(unsynced.changed([Ino(7)], Answered { opening: 1, seq: TxId(9) }));
        assert!(!unsynced.changed([Ino(8)], Answered { opening: 1, seq: TxId(8) }));
        assert!(!unsynced.changed([Ino(9)], Answered { opening: 0, seq: TxId(99) }), "from the only server");
    }

    #[test]
    fn what_is_durable_itself_is_not_lost() {
        let mut unsynced = Unsynced::new(opening(1));
        let durable = unsynced.change([Ino(6), Ino(7)]);
        change(&mut unsynced, &[Ino(7)], TxId(5));
        unsynced.durable([Ino(6), Ino(7)], durable);
        assert!(
            unsynced.take_over(opening(2), TxId(1)) && !unsynced.tell(Ino(6), false) && unsynced.tell(Ino(7), false)
        );
    }

    #[test]
    fn of_very_many_it_may_be_any() {
        let mut unsynced = Unsynced::new(opening(1));
        for ino in 0..2 * MAX_TRACKED_FILES as u64 {
            change(&mut unsynced, &[Ino(ino)], TxId(ino));
            assert!(unsynced.changed.len() <= MAX_TRACKED_FILES);
        }
        assert!(unsynced.take_over(opening(2), TxId(0)));
        // The first sync of each file reports it, and only that.
        assert!([7, 8, u64::MAX].map(Ino).iter().all(|&ino| unsynced.tell(ino, false) && !unsynced.tell(ino, false)));
        for round in 0..3 {
            let files: Vec<Ino> = (round * 30_000..(round + 1) * 30_000).map(Ino).collect();
            change(&mut unsynced, &files, TxId(10));
            assert!(unsynced.take_over(opening(3 + round), TxId(0)) && unsynced.lost.len() <= MAX_TRACKED_FILES);
        }
        for ino in 0..2 * MAX_TRACKED_FILES as u64 {
            unsynced.tell(Ino(ino), false);
            assert!(unsynced.any_lost.as_ref().is_none_or(|reported| reported.len() <= MAX_TRACKED_FILES));
        }
        assert!(!unsynced.tell(Ino(u64::MAX - 1), false), "not for ever");
    }
}
