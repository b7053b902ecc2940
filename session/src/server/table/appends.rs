//! Append reservations in open files, and truncations, which change where the files end.

use super::{Client, Table};
use plan::{Ino, SessionId};

impl Table {
    /// Reserves `length` bytes for a session at the end of a file whose size is at least `size`;
    /// returns the offset where they begin.
    pub fn reserve(&mut self, session: SessionId, ino: Ino, size: u64, length: u64) -> Option<u64> {
        let before = self.ends.get(&ino).map_or(0, |reserved| reserved.end);
        let from = size.max(before);
        let end = from.checked_add(length).filter(|&end| end <= meta::MAX_SIZE)?;
        let reserved = self.ends.entry(ino).or_default();
        reserved.end = end;
        reserved.of.insert(session, self.questions);
        Some(from)
    }

    /// A session answered a question about a file, and what was written before it is committed.
    pub(super) fn settle_reservations(&mut self, session: SessionId, ino: Ino, question: u64) {
        let Some(reserved) = self.ends.get_mut(&ino) else { return };
        if reserved.of.get(&session).is_some_and(|last| *last < question) {
            reserved.of.remove(&session);
        }
    }

    /// Begins a truncation: until it ends, the end of the file is unknown. Only one truncation of a
    /// file at a time.
    pub fn begin_cut(&mut self, ino: Ino) {
        self.being_cut.insert(ino);
    }

    /// Ends a truncation by a session to this size; None if it failed. Its own reservations end
    /// with the file. Those in which others have uncommitted bytes stay: these bytes get there
    /// later, and nobody else may have committed anything there by then.
    pub fn end_cut(&mut self, session: SessionId, ino: Ino, size: Option<u64>) {
        self.being_cut.remove(&ino);
        self.cuts += 1;
        if let (Some(reserved), Some(size)) = (self.ends.get_mut(&ino), size) {
            reserved.of.remove(&session);
            if reserved.of.is_empty() {
                reserved.end = size.min(reserved.end);
            }
        }
    }

    /// Whether a file is being truncated: no reservations are given out meanwhile.
    pub fn is_being_cut(&self, ino: Ino) -> bool {
        self.being_cut.contains(&ino)
    }

    /// The number of truncations so far. A size that was read before the last one may be outdated.
    pub fn cuts(&self) -> u64 {
        self.cuts
    }

    /// Drops reservations of files that no client has open or uncommitted: the metadata has their
    /// size.
    pub(super) fn forget_reservations(&mut self) {
        let clients = &self.clients;
        let has = |client: &Client, ino: &Ino| client.open.contains_key(ino) || client.dirty.contains_key(ino);
        self.ends.retain(|ino, reserved| {
            reserved.of.retain(|session, _| clients.get(session).is_some_and(|client| has(client, ino)));
            clients.values().any(|client| has(client, ino))
        });
    }
}
