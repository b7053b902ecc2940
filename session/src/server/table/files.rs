//! Open files and what is uncommitted of them, and recalls.

use super::{Client, OpenQuestion, Table};
use plan::{Ino, SessionId};

/// Which sessions are to commit a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum Whose {
    /// All that may have uncommitted data.
    All,
    /// Only those that no longer have it open for writing.
    Closed,
    /// Only those that owe it to others.
    Owed,
}

impl Table {
    /// Records that a session opened a file; `writes` is not 0 if it may write. Returns false when
    /// the file is being deleted: nothing is recorded then.
    pub fn open(&mut self, session: SessionId, ino: Ino, writes: u64) -> bool {
        if self.being_deleted.contains(&ino) {
            return false;
        }
        let allowance = self.allowance(session);
        let Some(client) = self.clients.get_mut(&session) else { return true };
        if allowance == 0 && !client.open.contains_key(&ino) {
            return true;
        }
        let (all, writers) = client.open.entry(ino).or_default();
        *all = all.saturating_add(1);
        if writes > 0 {
            *writers = writers.saturating_add(1);
            client.write(ino, writes, allowance);
        }
        true
    }

    /// Records that a session closed a file. The request does not say which of its openers closed:
    /// writers are counted until the last opener closes. Returns whether no client has the file
    /// open any more.
    pub fn close(&mut self, session: SessionId, ino: Ino, wrote: u64) -> bool {
        let allowance = if wrote > 0 { self.allowance(session) } else { 0 };
        let Some(client) = self.clients.get_mut(&session) else { return false };
        if wrote > 0 {
            client.write(ino, wrote, allowance);
            client.owe(ino, wrote, false);
        }
        let Some((all, _)) = client.open.get_mut(&ino) else { return false };
        *all -= 1;
        if *all > 0 {
            return false;
        }
        client.open.remove(&ino);
        self.forget_reservations();
        !self.is_open(ino)
    }

    /// Whether a client has a file open, or a kernel knows it without a name.
    pub fn is_open(&self, ino: Ino) -> bool {
        self.clients.values().any(|client| client.open.contains_key(&ino) || client.kept.contains(&ino))
    }

    /// Records that a session has no uncommitted data of these files from before the given numbers.
    pub fn clean(&mut self, session: SessionId, files: &[(Ino, u64)]) {
        let Some(client) = self.clients.get_mut(&session) else { return };
        for (ino, number) in files {
            if client.owed.get(ino).is_some_and(|owed| owed.number <= *number) {
                client.owed.remove(ino);
            }
            client.asked.get_mut(ino).into_iter().for_each(|asked| asked.clean = asked.clean.max(*number));
            let writes = client.open.get(ino).is_some_and(|(_, writers)| *writers > 0);
            if !writes && client.dirty.get(ino).is_some_and(|last| last <= number) {
                client.dirty.remove(ino);
            }
        }
        self.forget_reservations();
    }

    /// The other sessions of these that may have uncommitted data of a file. What is superseded
    /// does not count.
    pub fn writers(&self, session: SessionId, ino: Ino, whose: Whose) -> Vec<SessionId> {
        let writes = |client: &Client| client.open.get(&ino).is_some_and(|(_, writers)| *writers > 0);
        let is_one = |client: &Client| match whose {
            Whose::All => true,
            Whose::Closed => !writes(client),
            Whose::Owed => client.owed.contains_key(&ino),
        };
        let others = self.clients.iter().filter(|(other, _)| **other != session);
        others
            .filter(|(other, client)| {
                client.dirty.contains_key(&ino) && is_one(client) && !self.is_superseded(**other, ino)
            })
            .map(|(&other, _)| other)
            .collect()
    }

    /// Records a recall of a file from a session. Each has its own question: what was committed for
    /// an earlier one may lack later writes.
    pub fn ask(&mut self, session: SessionId, ino: Ino) -> OpenQuestion {
        self.questions += 1;
        let number = self.questions;
        let Some(client) = self.clients.get_mut(&session) else { return OpenQuestion { session, number, due: 0 } };
        client.asked.entry(ino).or_default().waiting += 1;
        OpenQuestion { session, number, due: client.owed.get(&ino).map_or(0, |owed| owed.number) }
    }

    /// Records the answer to a question: what was written before this number is committed. If it is
    /// 0, there may be uncommitted data, or an append is under way.
    pub fn answer(&mut self, session: SessionId, ino: Ino, number: u64, question: u64) {
        let asked = self.clients.get_mut(&session).and_then(|client| client.asked.get_mut(&ino));
        asked.into_iter().for_each(|asked| asked.answered = question.max(asked.answered));
        if number > 0 {
            self.settle_reservations(session, ino, question);
        }
        self.clean(session, &[(ino, number)]);
    }

    /// Whether a question has no answer yet and there may still be uncommitted data.
    pub fn is_asked(&self, ino: Ino, question: &OpenQuestion) -> bool {
        let client = self.clients.get(&question.session).filter(|client| client.dirty.contains_key(&ino));
        client.and_then(|client| client.asked.get(&ino)).is_some_and(|asked| asked.answered < question.number)
    }

    /// A thread no longer waits for the answer to a question.
    pub fn asked(&mut self, ino: Ino, question: &OpenQuestion) {
        let Some(client) = self.clients.get_mut(&question.session) else { return };
        let Some(asked) = client.asked.get_mut(&ino) else { return };
        asked.waiting -= 1;
        if asked.waiting == 0 {
            client.asked.remove(&ino);
        }
    }
}
