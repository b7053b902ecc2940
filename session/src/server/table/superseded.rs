//! What sessions owe to others and did not commit in time, so that others went on without it.

use super::{Client, OpenQuestion, Owed, Table};
use plan::{Ino, SessionId};
use std::collections::BTreeSet;

impl Client {
    /// It owes what it wrote to a file before that number; `failed` says that it could not commit
    /// it when it should.
    pub(super) fn owe(&mut self, ino: Ino, number: u64, failed: bool) {
        if self.dirty.contains_key(&ino) {
            let owed = self.owed.entry(ino).or_default();
            *owed = Owed { number: number.max(owed.number), failed: failed || owed.failed };
        }
    }
}

impl Table {
    /// A session knows that content can be superseded, and what to do then. What others have not
    /// committed is not superseded: they would never learn of it.
    pub fn can_drop(&mut self, session: SessionId) {
        self.clients.get_mut(&session).into_iter().for_each(|client| client.drops = true);
    }

    /// A session could not commit what it wrote to a file before that number.
    pub fn owe(&mut self, session: SessionId, ino: Ino, number: u64) {
        let allowance = self.allowance(session);
        if let Some(client) = self.clients.get_mut(&session) {
            client.write(ino, number, allowance);
            client.owe(ino, number, true);
        }
    }

    /// Those of the asked sessions whose content of a file is superseded when another client goes
    /// on without it. If that one `changes` the file, that is all that was owed at the question:
    /// otherwise it is only what a program knows to have failed. What a session closed after the
    /// question was written at the same time as the other one goes on: that did not have to see it.
    pub fn owing(&self, asked: &[OpenQuestion], ino: Ino, changes: bool) -> Vec<SessionId> {
        let is_over = |client: &Client, due: u64| {
            let is_missing = client.asked.get(&ino).is_some_and(|asked| asked.clean < due);
            is_missing && client.owed.get(&ino).is_some_and(|owed| owed.failed || changes)
        };
        let owes = |one: &&OpenQuestion| {
            self.clients.get(&one.session).is_some_and(|client| client.drops && is_over(client, one.due))
        };
        asked.iter().filter(owes).map(|one| one.session).collect()
    }

    /// Another client goes on without what the asked sessions owe of a file, and `changes` it, or
    /// only reads it. Returns those whose content is superseded.
    pub fn supersede(&mut self, asked: &[OpenQuestion], ino: Ino, changes: bool) -> Vec<SessionId> {
        let owing = self.owing(asked, ino, changes);
        for session in &owing {
            self.superseded.insert((*session, ino));
            self.clients.get_mut(session).into_iter().for_each(|client| _ = client.owed.remove(&ino));
        }
        owing
    }

    /// Whether changes of a file by a session are refused.
    pub fn is_superseded(&self, session: SessionId, ino: Ino) -> bool {
        !self.superseded.is_empty() && self.superseded.contains(&(session, ino))
    }

    /// A session dropped what it had of these files. Returns whether anything was superseded.
    pub fn dropped(&mut self, session: SessionId, files: &[Ino]) -> bool {
        files.iter().filter(|ino| self.superseded.remove(&(session, **ino))).count() > 0
    }

    /// All sessions and files that are superseded.
    pub fn all_superseded(&self) -> &BTreeSet<(SessionId, Ino)> {
        &self.superseded
    }

    /// Begins with what was superseded before a restart.
    pub fn begin_superseded(&mut self, superseded: BTreeSet<(SessionId, Ino)>) {
        self.superseded = superseded;
    }

    /// Sessions that did not come back have ended.
    pub fn end_superseded(&mut self) {
        self.superseded.retain(|(session, _)| self.clients.contains_key(session));
    }
}

#[cfg(test)]
mod tests {
    use super::super::files::Whose;
    use super::*;
    use std::time::{Duration, Instant};

    /// Two sessions, of which the first has a file open for writing.
    fn two() -> (Table, SessionId, SessionId) {
        let now = Instant::now();
        let mut table = Table::new(Duration::from_secs(30), SessionId(1));
        let [a, b] = ["a", "b"].map(|name| table.begin(None, name, false, now).unwrap().0);
        table.can_drop(a);
        table.open(a, Ino(9), 1);
        (table, a, b)
    }

    /// Another session asks these, and goes on without an answer.
    fn goes_on(table: &mut Table, sessions: &[SessionId], changes: bool) -> Vec<SessionId> {
        let asked: Vec<_> = sessions.iter().map(|session| table.ask(*session, Ino(9))).collect();
        let superseded = table.supersede(&asked, Ino(9), changes);
        asked.iter().for_each(|question| table.asked(Ino(9), question));
        superseded
    }

    #[test]
    fn what_is_owed_and_not_committed_is_superseded_until_it_is_dropped() {
        let (mut table, a, b) = two();
        assert!(table.writers(b, Ino(9), Whose::Owed).is_empty(), "it has the file open");
        assert!(goes_on(&mut table, &[a, b], true).is_empty());
        table.owe(a, Ino(9), 2);
        assert_eq!(table.writers(b, Ino(9), Whose::Owed), [a]);
        table.clean(a, &[(Ino(9), 1)]);
        assert_eq!(goes_on(&mut table, &[a, b], false), [a]);
        assert!(table.is_superseded(a, Ino(9)) && !table.is_superseded(b, Ino(9)) && !table.is_superseded(a, Ino(8)));
        assert!(table.writers(b, Ino(9), Whose::All).is_empty(), "nobody waits for it again");
        assert!(table.dropped(a, &[Ino(8), Ino(9)]) && !table.dropped(a, &[Ino(8), Ino(9)]));
        assert_eq!((table.writers(b, Ino(9), Whose::All), table.writers(b, Ino(9), Whose::Owed)), (vec![a], vec![]));
    }

    #[test]
    fn what_is_committed_is_not_owed() {
        let (mut table, a, b) = two();
        table.owe(a, Ino(9), 2);
        table.clean(a, &[(Ino(9), 2)]);
        assert_eq!((table.writers(b, Ino(9), Whose::All), table.writers(b, Ino(9), Whose::Owed)), (vec![a], vec![]));
        assert!(goes_on(&mut table, &[a], true).is_empty());
        // What was closed is owed, by a session that knows what that means.
        table.close(a, Ino(9), 3);
        assert_eq!(table.writers(b, Ino(9), Whose::Owed), [a]);
        table.open(b, Ino(9), 1);
        table.close(b, Ino(9), 2);
        assert!(goes_on(&mut table, &[a, b], false).is_empty(), "who only reads overwrites nothing");
        assert_eq!(goes_on(&mut table, &[a, b], true), [a]);
        table.end(a);
        assert!(table.all_superseded().is_empty());
    }

    /// The client answered before it closed the file, or has not answered yet.
    #[test]
    fn what_is_closed_after_the_question_is_not_superseded() {
        let (mut table, a, _) = two();
        let early = table.ask(a, Ino(9));
        table.close(a, Ino(9), 2);
        assert!(table.owing(&[early], Ino(9), true).is_empty(), "it owed nothing");
        let asked = table.ask(a, Ino(9));
        assert_eq!(table.owing(&[asked], Ino(9), true), [a]);
        table.open(a, Ino(9), 3);
        table.close(a, Ino(9), 4);
        assert_eq!(table.owing(&[asked], Ino(9), true), [a]);
        table.clean(a, &[(Ino(9), 2)]);
        assert!(table.owing(&[asked], Ino(9), true).is_empty());
        let later = table.ask(a, Ino(9));
        assert_eq!(table.owing(&[asked, later], Ino(9), true), [a]);
        table.clean(a, &[(Ino(9), 4)]);
        table.open(a, Ino(9), 5);
        table.close(a, Ino(9), 6);
        assert!(table.owing(&[early, asked, later], Ino(9), true).is_empty());
    }
}
