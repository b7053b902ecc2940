//! Recalls: other clients commit what they wrote to a file before one that opens or locks it goes
//! on. What a client closed or unlocked it owes to those. If it does not commit it in time, that is
//! superseded: it must not get into the volume later, over what others wrote since.

use super::leases::SUPERSEDED;
use super::sessions::{RECALL_TIMEOUT, Sessions};
use super::volume::Volume;
use crate::server::table::files::Whose;
use crate::server::table::{OpenQuestion, Table};
use meta::Result;
use plan::{Ino, SessionId};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// How often the recall is repeated: a message may be lost with its connection.
const REPEAT_INTERVAL: Duration = Duration::from_secs(1);

/// The most superseded files that are noted. Only so many survive a restart.
const MAX_NOTES: usize = 1024;

impl<V: Volume> Sessions<V> {
    /// Has other clients commit what they wrote to a file, and waits for that. Does not wait for a
    /// client longer than its lease.
    ///
    /// # Errors
    /// `Unavailable` when this server gives the volume away.
    pub(super) fn recall(&self, session: SessionId, ino: Ino, whose: Whose) -> Result<()> {
        let asked = self.ask(session, ino, whose)?;
        self.asked(ino, &asked);
        Ok(())
    }

    /// The questions are done with.
    fn asked(&self, ino: Ino, asked: &[OpenQuestion]) {
        let mut table = self.leases().table();
        asked.iter().for_each(|question| table.asked(ino, question));
    }

    /// Asks other clients to commit, and waits for the answers. Returns the questions.
    fn ask(&self, session: SessionId, ino: Ino, whose: Whose) -> Result<Vec<OpenQuestion>> {
        let leases = self.leases();
        let mut table = leases.table();
        let writers = table.writers(session, ino, whose);
        let asked: Vec<OpenQuestion> = writers.into_iter().map(|writer| table.ask(writer, ino)).collect();
        let (mut silent, mut next) = (asked.clone(), Instant::now());
        let end = next + RECALL_TIMEOUT.min(self.lease);
        loop {
            silent.retain(|question| table.is_asked(ino, question));
            let now = Instant::now();
            if silent.is_empty() || now >= end {
                break;
            }
            // The answers go to the next server.
            self.goes_on()?;
            if now >= next {
                drop(table);
                for question in &silent {
                    let recall = self.recalls.lock().get(&question.session).cloned();
                    recall.inspect(|recall| recall(&[(ino, question.number)]));
                }
                next = now + REPEAT_INTERVAL;
                table = leases.table();
                continue;
            }
            table = table.wait_timeout(&leases.changed, next.min(end) - now);
        }
        drop(table);
        let silent: Vec<SessionId> = silent.into_iter().map(|question| question.session).collect();
        self.tell_of(&silent, |name| {
            format!(
                "client {name} did not commit inode {ino} when another asked: that one sees what was committed before"
            )
        });
        Ok(asked)
    }

    /// The same for a client that opens or locks the file, to change it or only to read it. Where
    /// that matters to it, nothing that others owe of the file gets into the volume afterwards.
    ///
    /// # Errors
    /// `Unavailable` when this server gives the volume away.
    pub(super) fn await_commits(&self, session: SessionId, ino: Ino, whose: Whose, changes: bool) -> Result<()> {
        let leases = self.leases();
        let asked = self.ask(session, ino, whose)?;
        let owes = |table: &Table| !table.owing(&asked, ino, changes).is_empty();
        let superseded = if owes(&leases.table()) {
            // A change that is under way is done, or sees this.
            let _nobody_names = leases.naming.write();
            leases.table().supersede(&asked, ino, changes)
        } else {
            Vec::new()
        };
        self.asked(ino, &asked);
        if superseded.is_empty() {
            return Ok(());
        }
        self.tell_of(&superseded, |name| {
            format!(
                "client {name} did not commit what it wrote to inode {ino} before it closed or unlocked it, and \
                 another client goes on without: it is dropped"
            )
        });
        // Before the other client goes on.
        if let Err(error) = self.note_superseded(true) {
            self.volume.warn(&format!("cannot note whose content of inode {ino} is superseded: {error}"));
        }
        Ok(())
    }

    /// Warns about each of some clients.
    fn tell_of(&self, sessions: &[SessionId], warning: impl Fn(&str) -> String) {
        if sessions.is_empty() {
            return;
        }
        let names = self.leases().table().names();
        for (_, name) in names.iter().filter(|(session, _)| sessions.contains(session)) {
            self.volume.warn(&warning(name));
        }
    }

    /// Stores what is superseded; with `durable`, waits until it survives a crash.
    pub(super) fn note_superseded(&self, durable: bool) -> Result<()> {
        let meta = self.volume.meta()?;
        let seq = {
            let _one_at_a_time = self.leases().noting.lock();
            let all: BTreeSet<(SessionId, Ino)> =
                self.leases().table().all_superseded().iter().copied().take(MAX_NOTES).collect();
            meta.put_setting(SUPERSEDED, &all)?
        };
        if durable { meta.sync(seq) } else { Ok(()) }
    }
}
