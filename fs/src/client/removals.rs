//! How a client handles files that lost their last name: it has the server keep those that its own
//! kernel knows, for as long as the kernel knows them.

use crate::Result;
use plan::Ino;
use session::REMOVED_AT_A_TIME;
use std::collections::BTreeSet;
use std::sync::Mutex;
use volume::lock;

/// The most requests about removals with one heartbeat, so that the next heartbeat is not late.
const MAX_ROUNDS: u32 = 8;

/// What a client knows about removals.
#[derive(Debug, Default)]
pub(crate) struct Removals(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The last removal that the server has reported.
    last: u64,
    /// The last one that this client has processed.
    noted: u64,
    /// Reported files, the last removal among them, and the kernel's last lookup at that time: the
    /// kernel may still learn of these files by the answer to such a lookup.
    reported: Option<(Vec<Ino>, u64, u64)>,
    /// Files that the server keeps for this client.
    kept: BTreeSet<Ino>,
}

/// A report to the server.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Note {
    pub noted: u64,
    pub kept: Vec<Ino>,
    pub forgotten: Vec<Ino>,
}

impl State {
    /// The next report to the server, if there is anything to report. `have_ended` says whether the
    /// kernel's lookups up to a number have ended, `knows` whether the kernel knows a file.
    fn note(&mut self, have_ended: impl Fn(u64) -> bool, knows: impl Fn(Ino) -> bool) -> Option<Note> {
        let mut note = Note { noted: self.noted, ..Note::default() };
        if let Some((reported, last, question)) = &self.reported {
            if !have_ended(*question) {
                return None;
            }
            note.kept = reported.iter().copied().filter(|&ino| knows(ino)).collect();
            note.noted = *last;
            self.kept.extend(&note.kept);
        }
        note.forgotten = self.kept.iter().copied().filter(|&ino| !knows(ino)).collect();
        (note.noted < self.last || note.noted > self.noted || !note.forgotten.is_empty()).then_some(note)
    }

    /// The server got the report and answered with further removals.
    fn was_reported(&mut self, note: &Note, last: u64, removed: Vec<Ino>, question: u64) {
        self.noted = note.noted;
        note.forgotten.iter().for_each(|ino| _ = self.kept.remove(ino));
        self.last = self.last.max(last);
        self.reported = (last > note.noted).then_some((removed, last, question));
    }
}

impl Removals {
    /// The server announced the number of the last removal.
    pub fn hear(&self, last: u64) {
        let mut state = lock(&self.0);
        state.last = state.last.max(last);
    }

    /// Reports to the server and gets further removals. Repeats this as long as full lists arrive,
    /// but does not wait for new removals to end. `ask` returns the server's answer and the
    /// kernel's last lookup at that time.
    pub(super) fn tell(
        &self,
        have_ended: impl Fn(u64) -> bool,
        knows: impl Fn(Ino) -> bool,
        ask: impl Fn(&Note) -> Result<((u64, Vec<Ino>), u64)>,
    ) -> Result<()> {
        for round in 1..=MAX_ROUNDS {
            let Some(note) = lock(&self.0).note(&have_ended, &knows) else { return Ok(()) };
            let ((last, removed), question) = ask(&note)?;
            let has_more = removed.len() >= REMOVED_AT_A_TIME;
            lock(&self.0).was_reported(&note, last, removed, question);
            // Process the first answer at once, so that the server can delete files.
            if round > 1 && !has_more {
                break;
            }
        }
        Ok(())
    }

    /// Files that the server keeps for this client.
    pub fn kept(&self) -> Vec<Ino> {
        lock(&self.0).kept.iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn the_server_hears_of_what_the_kernel_knows_when_that_is_sure() {
        let mut state = State::default();
        assert_eq!(state.note(|_| true, |_| true), None);
        state.last = 12;
        let first = state.note(|_| true, |_| true).unwrap();
        assert_eq!(first, Note::default());
        state.was_reported(&first, 12, vec![Ino(5), Ino(6)], 3);
        // The answer to a lookup of the kernel is on its way, and it may name one of the two files.
        assert_eq!(state.note(|question| question < 3, |_| false), None);
        let second = state.note(|question| question <= 3, |ino| ino == Ino(6)).unwrap();
        assert_eq!(second, Note { noted: 12, kept: vec![Ino(6)], forgotten: vec![] });
        // The report was lost.
        assert_eq!(state.note(|_| true, |ino| ino == Ino(6)), Some(second));
        let third = state.note(|_| true, |_| false).unwrap();
        assert_eq!(third, Note { noted: 12, kept: vec![], forgotten: vec![Ino(6)] });
        state.was_reported(&third, 12, vec![], 4);
        assert_eq!(state.note(|_| true, |_| false), None);
    }

    /// Other clients remove files all the time. What they remove meanwhile waits for the next
    /// heartbeat, unless it is very much.
    #[test]
    fn a_heartbeat_does_not_wait_for_others_to_stop_removing() {
        for (at_a_time, expected) in [(1, 2), (REMOVED_AT_A_TIME, MAX_ROUNDS)] {
            let removals = Removals::default();
            let (asked, removed) = (Cell::new(0), Cell::new(at_a_time as u64));
            for _ in 0..3 {
                asked.set(0);
                removals.hear(removed.get());
                let ask = |note: &Note| {
                    asked.set(asked.get() + 1);
                    assert!(asked.get() <= 100, "it goes on");
                    let last = removed.replace(removed.get() + at_a_time as u64);
                    Ok(((last, (note.noted + 1..=last).map(Ino).take(REMOVED_AT_A_TIME).collect()), 0))
                };
                removals.tell(|_| true, |_| false, ask).unwrap();
                assert_eq!(asked.get(), expected, "{at_a_time} at a time");
            }
        }
    }
}
