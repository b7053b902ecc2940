//! The state of the sessions, as maintenance needs it, and what of it outlives this process:
//! settings in the metadata.

use super::openings::Openings;
use super::table::Table;
use crate::caller::{new_id, new_key};
use crate::locks;
use crate::port::Opening;
use crate::ranks::{
    FileLocks, SessionEnds, SessionKey, SessionNotes, SessionOpenings, SessionTable, SessionsBefore, SetsBefore,
};
use meta::{Error, Meta, Result};
use plan::{Ino, SessionId, SetId, TxId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Condvar;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use volume::ranked::{Guard, Ranked, RankedRw, ReadGuard};

/// The setting with the current sessions: after a crash only these may be reclaimed.
pub(super) const SESSIONS: &str = "sessions";
/// The setting with the sets of each session: after a crash, a session gets back only its own sets.
pub(super) const SETS: &str = "sets of sessions";
/// The setting with what is superseded: sessions and files.
pub(super) const SUPERSEDED: &str = "superseded files";
/// The setting with the number of the last opening that ended with everything durable.
pub(super) const CLOSED: &str = "closed opening";
/// The setting with the openings.
const OPENINGS: &str = "history of openings";
/// The setting of the volume with the key that signs session numbers.
const KEY: &str = "session key";
/// The session numbers that one opening of a volume can give out.
const SESSIONS_PER_OPENING: u64 = 1 << 32;

/// The sessions' state, as maintenance needs it: which client holds what.
pub struct Leases {
    pub(super) table: Ranked<Table, SessionTable>,
    pub(super) changed: Condvar,
    pub(super) locks: Ranked<locks::Locks, FileLocks>,
    pub(super) unlocked: Condvar,
    /// The grace period: sessions from before a restart may still be reclaimed, and nothing is
    /// freed.
    pub(super) in_grace: AtomicBool,
    /// A thread ends the grace period, and notes which clients are gone.
    giving_up: AtomicBool,
    /// The sessions from before the restart that have neither ended nor completed their reclaim.
    /// What other sessions had was given up before.
    pub(super) before: Ranked<BTreeSet<SessionId>, SessionsBefore>,
    /// The sets that those sessions had.
    pub(super) owned: Ranked<BTreeMap<SessionId, BTreeSet<SetId>>, SetsBefore>,
    /// The key that signs session numbers.
    pub(super) key: Ranked<[u8; 32], SessionKey>,
    /// A transaction that names stripes of a session's sets holds it for reading, the end of a
    /// session for writing: sets that were given up are not named afterwards.
    pub(super) naming: RankedRw<(), SessionEnds>,
    /// Held while the list of sessions is written.
    pub(super) noting: Ranked<(), SessionNotes>,
    /// This opening of the volume, and those before.
    pub(super) openings: Ranked<Openings, SessionOpenings>,
}

impl Default for Leases {
    fn default() -> Self {
        Self {
            table: Ranked::new(Table::new(Duration::MAX, SessionId(1))),
            changed: Condvar::new(),
            locks: Ranked::default(),
            unlocked: Condvar::new(),
            in_grace: AtomicBool::new(false),
            giving_up: AtomicBool::new(false),
            before: Ranked::default(),
            owned: Ranked::default(),
            key: Ranked::default(),
            naming: RankedRw::default(),
            noting: Ranked::default(),
            openings: Ranked::default(),
        }
    }
}

impl Leases {
    /// Begins with a new opening of the volume after `opening` others, which found the transactions
    /// up to `found`. If it `serves` clients, the sessions from before may be reclaimed, with the
    /// sets that they had and what is superseded of their files.
    ///
    /// # Errors
    /// When the metadata cannot be read, or the system has no random bytes.
    pub fn begin(&self, meta: &Meta, opening: u64, found: TxId, serves: bool) -> Result<Began> {
        let known: BTreeSet<SessionId> = meta.setting(SESSIONS)?.unwrap_or_default();
        let ended = !serves && !known.is_empty();
        let before = if serves { known } else { BTreeSet::new() };
        let mut owned: BTreeMap<SessionId, BTreeSet<SetId>> = meta.setting(SETS)?.unwrap_or_default();
        let mut openings: Openings = meta.setting(OPENINGS)?.unwrap_or_default();
        let id = new_id().map_err(|why| Error::Invalid(why.to_string().into()))?;
        let closed = meta.setting(CLOSED)?.unwrap_or(0);
        openings.begin(Opening { number: opening + 1, id }, found, closed);
        let mut superseded: BTreeSet<(SessionId, Ino)> = meta.setting(SUPERSEDED)?.unwrap_or_default();
        *self.openings.lock() = openings.clone();
        owned.retain(|session, _| before.contains(session));
        *self.owned.lock() = owned;
        superseded.retain(|(session, _)| before.contains(session));
        let mut table = Table::new(Duration::MAX, SessionId(opening * SESSIONS_PER_OPENING + 1));
        table.begin_superseded(superseded);
        *self.table() = table;
        self.in_grace.store(!before.is_empty(), Ordering::Relaxed);
        *self.before.lock() = before.clone();
        Ok(Began { openings, before, ended })
    }

    /// Signs session numbers with the key that the volume keeps, or with a new one. Returns the
    /// transaction that stored it, or `seq`.
    ///
    /// # Errors
    /// When the metadata cannot be read or written, or the system has no random bytes.
    pub fn sign(&self, meta: &Meta, seq: TxId) -> Result<TxId> {
        let (key, seq) = match meta.setting(KEY)? {
            Some(key) => (key, seq),
            None => {
                let key = new_key().map_err(|why| Error::Invalid(why.to_string().into()))?;
                (key, meta.put_setting(KEY, &key)?)
            }
        };
        *self.key.lock() = key;
        Ok(seq)
    }

    /// This opening of the volume.
    pub fn opening(&self) -> Opening {
        self.openings.lock().current()
    }

    /// The sessions from before the restart that were not reclaimed have ended. The caller notes
    /// that before it drops what this returns: the grace period ends then. None if there is no such
    /// period, or another thread ends it.
    pub(super) fn give_up_before(&self) -> Option<GraceEnd<'_>> {
        // A thread that reclaims a session holds the table.
        let table = self.table();
        if !self.is_in_grace() || self.giving_up.swap(true, Ordering::Relaxed) {
            return None;
        }
        let gone = std::mem::take(&mut *self.before.lock());
        drop(table);
        Some(GraceEnd { leases: self, are_gone: !gone.is_empty() })
    }

    /// Whether clients other than this one may have, from before the restart, what the server does
    /// not know. What those had that are gone is free when that is noted.
    pub(super) fn awaits_others(&self, session: SessionId) -> bool {
        let is_other = |before: &SessionId| *before != session;
        self.is_in_grace() && (self.giving_up.load(Ordering::Relaxed) || self.before.lock().iter().any(is_other))
    }

    /// Held while a transaction names stripes of a session's sets: no session ends meanwhile.
    pub(super) fn naming(&self) -> ReadGuard<'_, (), SessionEnds> {
        self.naming.read()
    }

    pub(super) fn table(&self) -> Guard<'_, Table, SessionTable> {
        self.table.lock()
    }

    /// Whether a client may still write to a set or name it in a transaction.
    pub fn is_held(&self, set: SetId) -> bool {
        self.is_in_grace() || self.table().is_held(set)
    }

    /// Whether the server does not know yet what clients hold.
    pub fn is_in_grace(&self) -> bool {
        self.in_grace.load(Ordering::Relaxed)
    }
}

/// The end of a grace period, which is when this is dropped.
pub(super) struct GraceEnd<'a> {
    leases: &'a Leases,
    /// Some clients did not come back.
    pub are_gone: bool,
}

impl Drop for GraceEnd<'_> {
    fn drop(&mut self) {
        let mut table = self.leases.table();
        table.end_superseded();
        self.leases.in_grace.store(false, Ordering::Relaxed);
        self.leases.giving_up.store(false, Ordering::Relaxed);
        self.leases.owned.lock().clear();
        drop(table);
        self.leases.changed.notify_all();
    }
}

/// What an opening of the volume found of the sessions before it.
pub struct Began {
    openings: Openings,
    before: BTreeSet<SessionId>,
    ended: bool,
}

impl Began {
    /// Notes the opening in the metadata, for those after it.
    ///
    /// # Errors
    /// When the metadata cannot be written.
    pub fn note(&self, meta: &Meta) -> Result<()> {
        meta.put_setting(OPENINGS, &self.openings).map(drop)
    }

    /// Ends the sessions from before that may not be reclaimed. What their clients did not commit
    /// is lost.
    ///
    /// # Errors
    /// When the metadata cannot be written.
    pub fn end_others(&self, meta: &Meta) -> Result<()> {
        if self.ended {
            let seq = meta.put_setting(SESSIONS, &self.before)?;
            meta.sync(seq)?;
        }
        // Only these sessions can retry a request: drop the idempotency keys of all others.
        meta.forget_requests(&self.before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Others go on when it is noted who is gone, and only one thread ends the grace period.
    #[test]
    fn the_grace_period_lasts_until_the_note() {
        let leases = Leases::default();
        assert!(leases.give_up_before().is_none());
        leases.in_grace.store(true, Ordering::Relaxed);
        *leases.before.lock() = [SessionId(1), SessionId(2)].into();
        assert!(leases.awaits_others(SessionId(1)) && leases.awaits_others(SessionId(3)));
        leases.before.lock().remove(&SessionId(1));
        assert!(!leases.awaits_others(SessionId(2)));
        let end = leases.give_up_before().unwrap();
        assert!(end.are_gone && leases.before.lock().is_empty());
        assert!(leases.give_up_before().is_none(), "another thread ends it");
        assert!(leases.is_in_grace() && leases.awaits_others(SessionId(2)));
        drop(end);
        assert!(!leases.is_in_grace() && !leases.awaits_others(SessionId(2)));
        assert!(leases.give_up_before().is_none());
    }
}
