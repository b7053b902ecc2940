//! What a session tells a server that does not know it: all at once, and instead of what the server
//! may have heard before.

use super::removals::MAX_KEPT_FILES;
use super::{Client, MAX_FILES, MAX_MEMBER_FILES, MIN_SESSION_FILES, Owed, Table};
use crate::port::Held;
use meta::{Error, Result};
use plan::SessionId;
use std::time::Instant;

/// The most locks that are taken over in addition. More are refused.
const MAX_LOCKS: usize = 1 << 14;

impl Table {
    /// A session that joins may tell what it has.
    pub fn let_reclaim(&mut self, session: SessionId, now: Instant) {
        if let Some(client) = self.clients.get_mut(&session).filter(|client| client.joins) {
            (client.reclaims, client.heard) = (true, now);
        }
    }

    /// Records a sign of life of a session that tells what it has. Returns whether there is such a
    /// session.
    pub fn hear_reclaiming(&mut self, session: SessionId, now: Instant) -> bool {
        let client = self.clients.get_mut(&session).filter(|client| client.reclaims);
        client.map(|client| client.heard = now).is_some()
    }

    /// Whether some session has come back and has not told yet what it has. One that falls silent
    /// does not count for longer than its lease.
    pub fn any_is_reclaiming(&self, now: Instant) -> bool {
        let tells = |client: &Client| client.joins && !client.reclaim_complete;
        let speaks = |client: &Client| now.saturating_duration_since(client.heard) <= self.lease;
        self.clients.values().any(|client| tells(client) && speaks(client))
    }

    /// Adds a part of what a session has. With the last part, returns the whole. What does not fit
    /// into the limits is left out.
    ///
    /// # Errors
    /// `Invalid` for a part that does not follow the last one.
    pub fn collect(&mut self, session: SessionId, part: u32, last: bool, held: &Held) -> Result<Option<Held>> {
        let peer = self.clients.get(&session).map_or("", |client| &client.peer).to_owned();
        let of_member = if peer.is_empty() { 0 } else { self.files_of_member(&peer) };
        let Some(client) = self.clients.get_mut(&session) else { return Ok(None) };
        if part == 0 {
            client.parts = (Held::default(), 0);
        }
        if part != client.parts.1 {
            client.parts = (Held::default(), 0);
            return Err(Error::Invalid("a part of a session's state that does not follow the one before".into()));
        }
        client.parts.1 += 1;
        let most = if peer.is_empty() { usize::MAX } else { MAX_MEMBER_FILES.saturating_sub(of_member) };
        let own = client.parts.0.count();
        let allowance =
            most.max(MIN_SESSION_FILES.saturating_sub(own)).min((2 * MAX_FILES + MAX_LOCKS).saturating_sub(own));
        match held.count() <= allowance {
            true => client.parts.0.add(held),
            false => client.parts.0.add(&held.clone().split(allowance)),
        }
        Ok(last.then(|| std::mem::take(&mut client.parts).0))
    }

    /// A session has these files open, uncommitted and kept, and no others.
    pub fn reclaim(&mut self, session: SessionId, held: &Held) {
        let Some(client) = self.clients.get_mut(&session) else { return };
        // More writers than openers: the opener that closed may have been one that only read.
        let open = held.open.iter().filter(|(_, all, _)| *all > 0);
        client.open = open.map(|&(ino, all, writers)| (ino, (all, writers.min(all)))).collect();
        client.dirty = held.dirty.iter().copied().collect();
        for (ino, _) in client.open.iter().filter(|(_, (_, writers))| *writers > 0) {
            client.dirty.entry(*ino).or_default();
        }
        // What is closed is owed.
        client.owed = client.dirty.iter().map(|(&ino, &number)| (ino, Owed { number, failed: false })).collect();
        client.owed.retain(|ino, _| client.open.get(ino).is_none_or(|(_, writers)| *writers == 0));
        for &(ino, number) in &held.owed {
            client.owe(ino, number, true);
        }
        client.kept = held.kept.iter().copied().take(MAX_KEPT_FILES).collect();
        for &(ino, end) in &held.reserved {
            let _ = self.reserve(session, ino, end, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::files::Whose;
    use super::*;
    use plan::Ino;
    use std::time::Duration;

    const LEASE: Duration = Duration::from_secs(30);
    const SESSION: SessionId = SessionId(7);

    fn table(now: Instant) -> Table {
        let mut table = Table::new(LEASE, SessionId(8));
        table.begin(Some(SESSION), "a", false, now).unwrap();
        table
    }

    fn files(range: std::ops::Range<u64>) -> Held {
        Held { open: range.map(|ino| (Ino(ino), 1, 0)).collect(), ..Held::default() }
    }

    #[test]
    fn a_session_is_admitted_when_it_has_told_all() {
        let now = Instant::now();
        let mut table = table(now);
        assert!(table.any_is_reclaiming(now) && !table.any_is_reclaiming(now + 2 * LEASE));
        assert!(!table.hear_reclaiming(SESSION, now), "others may not know yet that it is there");
        table.let_reclaim(SESSION, now);
        assert!(table.hear_reclaiming(SESSION, now) && !table.hear(SESSION, now));
        assert_eq!(table.overdue(now + 2 * LEASE), [SESSION], "it may fall silent");
        table.complete_reclaim(SESSION);
        table.let_in(SESSION, now);
        assert!(!table.hear_reclaiming(SESSION, now) && table.hear(SESSION, now) && !table.any_is_reclaiming(now));
        table.let_reclaim(SESSION, now);
        assert!(!table.hear_reclaiming(SESSION, now), "it is in already");
    }

    #[test]
    fn parts_count_as_a_whole() {
        let mut table = table(Instant::now());
        assert_eq!(table.collect(SESSION, 0, false, &files(0..5)), Ok(None));
        assert!(table.collect(SESSION, 2, true, &files(9..10)).is_err(), "one is missing");
        assert!(table.collect(SESSION, 1, true, &files(9..10)).is_err(), "it begins anew");
        assert_eq!(table.collect(SESSION, 0, false, &files(0..3)), Ok(None));
        assert_eq!(table.collect(SESSION, 1, false, &files(3..4)), Ok(None));
        assert_eq!(table.collect(SESSION, 2, true, &files(4..6)), Ok(Some(files(0..6))));
        assert_eq!(table.collect(SESSION, 0, true, &files(8..9)), Ok(Some(files(8..9))), "again, from the first");
        assert_eq!(table.collect(SessionId(99), 0, true, &files(8..9)), Ok(None));
    }

    #[test]
    fn what_is_told_replaces_what_was_known() {
        let mut table = table(Instant::now());
        table.open(SESSION, Ino(1), 1);
        let held = Held {
            open: vec![(Ino(2), 1, 5), (Ino(3), 0, 9), (Ino(4), 2, 0)],
            dirty: vec![(Ino(5), 6)],
            reserved: vec![(Ino(2), 100), (Ino(4), 0)],
            ..Held::default()
        };
        for _ in 0..2 {
            table.reclaim(SESSION, &held);
            assert!(!table.is_open(Ino(1)) && table.is_open(Ino(2)) && !table.is_open(Ino(3)) && table.is_open(Ino(4)));
            assert_eq!(
                [1, 2, 4, 5].map(|ino| table.writers(SessionId(8), Ino(ino), Whose::All)),
                [vec![], vec![SESSION], vec![], vec![SESSION]]
            );
        }
        assert_eq!(table.reserve(SESSION, Ino(2), 50, 10), Some(100));
        assert!(table.close(SESSION, Ino(2), 0), "one opener, however many writers there were");
        assert!(!table.close(SESSION, Ino(4), 0) && table.close(SESSION, Ino(4), 0));
    }

    #[test]
    fn more_than_the_limits_is_left_out() {
        let mut table = table(Instant::now());
        table.belongs(SESSION, "member");
        let all = files(0..MAX_MEMBER_FILES as u64 / 2);
        assert_eq!(table.collect(SESSION, 0, false, &all), Ok(None));
        assert_eq!(table.clients[&SESSION].parts.0.count(), all.count().min(2 * MAX_FILES + MAX_LOCKS));
        table.collect(SESSION, 1, false, &all).unwrap();
        assert!(table.clients[&SESSION].parts.0.count() <= 2 * MAX_FILES + MAX_LOCKS);
    }
}
