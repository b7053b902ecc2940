//! The table of sessions: which files they have open and which sets they own. It is the state
//! behind [`Sessions`](super::Sessions), without a clock and without waiting.

mod appends;
pub(super) mod files;
mod reclaim;
mod removals;
mod superseded;
#[cfg(test)]
mod tests;

use crate::port::Held;
use crate::{EXCLUSIVE_LEASE, KERNEL_VALID_FOR};
use plan::{Ino, SessionId, SetId};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

/// The most files that a client can have open or uncommitted. More are not recorded.
const MAX_FILES: usize = 1 << 20;
/// The same for all sessions of one cluster member, identified by its certificate, and the number
/// that each session may have in any case.
const MAX_MEMBER_FILES: usize = 4 << 20;
const MIN_SESSION_FILES: usize = 1024;
/// The most sessions of a member: all processes of a large job may share one certificate.
const MAX_MEMBER_SESSIONS: usize = 4096;
/// The most chunk sets of a session, and of all sessions of a member together.
const MAX_SETS: usize = 4096;
const MAX_MEMBER_SETS: usize = 1 << 16;

/// A client.
#[derive(Debug)]
struct Client {
    name: String,
    /// The name in its certificate; empty without certificates.
    peer: String,
    /// The files that it may have recorded before the sessions of its member are counted again.
    allowed: usize,
    heard: Instant,
    /// It has not been admitted yet.
    joins: bool,
    /// It may tell what it has, and is admitted when it has told all.
    reclaims: bool,
    /// What it has told so far, and the number of parts.
    parts: (Held, u32),
    /// It has completed its reclaim, or needs none.
    reclaim_complete: bool,
    /// The end of its exclusive lease, including caches in its kernel.
    exclusive_until: Instant,
    /// The last answer to it said that there are other clients.
    knows_of_others: bool,
    /// Chunk sets that it may write to.
    sets: BTreeSet<SetId>,
    /// Open files: the number of all openers, and of those that write.
    open: HashMap<Ino, (u32, u32)>,
    /// Files that it may have uncommitted data of, each with the number of the last open or close
    /// by a writer.
    dirty: HashMap<Ino, u64>,
    /// Those of which it owes something to others.
    owed: HashMap<Ino, Owed>,
    /// It knows that content can be superseded.
    drops: bool,
    /// Files with recalls.
    asked: HashMap<Ino, Asked>,
    /// Files without a name that its kernel knows.
    kept: HashSet<Ino>,
    /// The last removal that it has processed.
    noted: u64,
}

/// What a client owes to others: what it wrote to a file before it closed or unlocked it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Owed {
    /// It was written before this number.
    number: u64,
    /// It could not be committed, and a program got an error for that.
    failed: bool,
}

/// The recalls of a file from a client.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    waiting: u32,
    /// The last question that was answered, and with it all earlier ones.
    answered: u64,
    /// What was written before this number is committed, as said since the first question.
    clean: u64,
}

/// A question to one session about one file.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenQuestion {
    pub session: SessionId,
    pub number: u64,
    /// The session owed what was written before this number when it was asked; 0 if nothing.
    due: u64,
}

/// The append reservations of a file.
#[derive(Debug, Default)]
struct Reservations {
    /// The end of the last one.
    end: u64,
    /// The sessions that may have uncommitted bytes in theirs, each with the number of the last
    /// question, about any file, that was asked before its last reservation.
    of: HashMap<SessionId, u64>,
}

impl Client {
    /// The number of files that are recorded for it.
    fn files(&self) -> usize {
        self.open.len() + self.dirty.len() + self.kept.len() + self.parts.0.count()
    }

    /// Records that it writes to a file, or did until now. Without space for one more file, nothing
    /// is recorded.
    fn write(&mut self, ino: Ino, number: u64, allowance: usize) {
        if allowance == 0 && !self.dirty.contains_key(&ino) {
            return;
        }
        let last = self.dirty.entry(ino).or_default();
        *last = number.max(*last);
    }
}

/// All sessions.
#[derive(Debug)]
pub(super) struct Table {
    lease: Duration,
    next: SessionId,
    /// The number of the last question. Questions from before a restart had lower numbers.
    questions: u64,
    clients: BTreeMap<SessionId, Client>,
    /// The append reservations in open files.
    ends: HashMap<Ino, Reservations>,
    /// Files that are being truncated, and the number of truncations so far.
    being_cut: HashSet<Ino>,
    cuts: u64,
    /// The number of the last removal. Removals from before a restart had lower numbers.
    removals: u64,
    /// Files without a name that are not open, each with its removal, until all clients have
    /// reported whether their kernels know them.
    removed: VecDeque<(u64, Ino)>,
    /// Files without a name whose metadata is being deleted. Nobody opens them any more.
    being_deleted: HashSet<Ino>,
    /// Sessions and files of which others did not wait for what the session had not committed.
    superseded: BTreeSet<(SessionId, Ino)>,
}

/// What an ended session leaves behind.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Left {
    pub name: String,
    /// Sets that it no longer writes to.
    pub sets: Vec<SetId>,
    /// Files that are no longer open.
    pub closed: Vec<Ino>,
}

impl Table {
    /// `first` is the number of the first session.
    pub fn new(lease: Duration, first: SessionId) -> Self {
        let (clients, ends, being_cut, removed, being_deleted, superseded) = Default::default();
        let (questions, cuts, removals, next) = (first.0, 0, first.0, first);
        Self { lease, next, questions, clients, ends, being_cut, cuts, removals, removed, being_deleted, superseded }
    }

    /// Sets the time that a session lives without a heartbeat.
    pub fn set_lease(&mut self, lease: Duration) {
        self.lease = lease;
    }

    /// Begins a session, or reclaims one whose number this server may have lost. Returns whether it
    /// is new or has not completed its reclaim; its requests are then not accepted until it is
    /// admitted. `alone` says whether a reclaimed session may have an exclusive lease from the
    /// earlier server. None for a number that was never given out.
    pub fn begin(
        &mut self,
        reclaimed: Option<SessionId>,
        name: &str,
        alone: bool,
        now: Instant,
    ) -> Option<(SessionId, bool)> {
        let session = reclaimed.unwrap_or(self.next);
        match reclaimed {
            Some(session) => self.was_given_out(session).then_some(())?,
            None => self.next = SessionId(self.next.0.checked_add(1)?),
        }
        let new = || Client {
            name: name.into(),
            peer: String::new(),
            allowed: MIN_SESSION_FILES,
            heard: now,
            joins: true,
            reclaims: false,
            parts: (Held::default(), 0),
            reclaim_complete: reclaimed.is_none(),
            exclusive_until: if reclaimed.is_some() && alone { now + EXCLUSIVE_LEASE + KERNEL_VALID_FOR } else { now },
            knows_of_others: false,
            sets: BTreeSet::new(),
            open: HashMap::new(),
            dirty: HashMap::new(),
            owed: HashMap::new(),
            drops: false,
            asked: HashMap::new(),
            kept: HashSet::new(),
            // A new client cannot know files that were removed before.
            noted: if reclaimed.is_some() { 0 } else { self.removals },
        };
        let client = self.clients.entry(session).or_insert_with(new);
        client.heard = now;
        Some((session, client.joins || !client.reclaim_complete))
    }

    /// Whether a member may begin one more session. Clients without a certificate have no limit.
    pub fn admits(&self, peer: &str) -> bool {
        peer.is_empty() || self.of_member(peer).count() < MAX_MEMBER_SESSIONS
    }

    /// Assigns a session to a member.
    pub fn belongs(&mut self, session: SessionId, peer: &str) {
        if let Some(client) = self.clients.get_mut(&session) {
            client.peer = peer.into();
        }
    }

    fn of_member(&self, peer: &str) -> impl Iterator<Item = &Client> {
        self.clients.values().filter(move |client| client.peer == peer)
    }

    /// Whether a session may get another chunk set.
    pub fn may_hold_more(&self, session: SessionId) -> bool {
        self.clients.get(&session).is_none_or(|client| {
            let of_member = || self.of_member(&client.peer).map(|client| client.sets.len()).sum::<usize>();
            client.sets.len() < MAX_SETS && (client.peer.is_empty() || of_member() < MAX_MEMBER_SETS)
        })
    }

    /// The number of files of all sessions of a member.
    fn files_of_member(&self, peer: &str) -> usize {
        self.of_member(peer).map(Client::files).sum()
    }

    /// The number of further files that may be recorded for a session, at least; 0 when the limit
    /// is reached.
    fn allowance(&mut self, session: SessionId) -> usize {
        let Some(client) = self.clients.get(&session) else { return 0 };
        let files = client.files();
        let mut allowed = client.allowed.clamp(MIN_SESSION_FILES, files + MIN_SESSION_FILES);
        // Count the files of all sessions only once for many files.
        let may = || client.peer.is_empty() || self.files_of_member(&client.peer) < MAX_MEMBER_FILES;
        if files >= allowed && may() {
            allowed += MIN_SESSION_FILES;
        }
        self.clients.get_mut(&session).into_iter().for_each(|client| client.allowed = allowed);
        allowed.min(2 * MAX_FILES).saturating_sub(files)
    }

    /// Whether there is a session of that number.
    pub fn has(&self, session: SessionId) -> bool {
        self.clients.contains_key(&session)
    }

    /// Whether a session of that number was ever begun.
    pub fn was_given_out(&self, session: SessionId) -> bool {
        (SessionId(1)..self.next).contains(&session)
    }

    /// Admits a session: its requests are accepted from now on.
    pub fn let_in(&mut self, session: SessionId, now: Instant) {
        if let Some(client) = self.clients.get_mut(&session) {
            (client.joins, client.reclaims, client.heard) = (false, false, now);
        }
    }

    /// A session completed its reclaim.
    pub fn complete_reclaim(&mut self, session: SessionId) {
        if let Some(client) = self.clients.get_mut(&session) {
            client.reclaim_complete = true;
        }
    }

    /// The number of other clients, for an answer to this session. 0 extends its exclusive lease.
    /// That the client received a nonzero number is certain only at its next request: it sends one
    /// request at a time, and an answer may take long.
    pub fn tell_of_others(&mut self, session: SessionId, now: Instant) -> usize {
        let others = self.clients.len().saturating_sub(1);
        if let Some(client) = self.clients.get_mut(&session) {
            if others == 0 {
                client.exclusive_until = now + EXCLUSIVE_LEASE + KERNEL_VALID_FOR;
            } else if client.knows_of_others {
                client.exclusive_until = client.exclusive_until.min(now + KERNEL_VALID_FOR);
            }
            client.knows_of_others = others > 0;
        }
        others
    }

    /// The end of the longest exclusive lease of other sessions that may not know of this one, with
    /// the list of those sessions.
    pub fn unaware_of(&self, session: SessionId, now: Instant) -> Option<(Instant, Vec<SessionId>)> {
        let unaware = self.clients.iter().filter(|(other, client)| **other != session && client.exclusive_until > now);
        let until = unaware.clone().map(|(_, client)| client.exclusive_until).max()?;
        Some((until, unaware.map(|(&other, _)| other).collect()))
    }

    /// Records a sign of life. Returns whether the session exists and is admitted.
    pub fn hear(&mut self, session: SessionId, now: Instant) -> bool {
        self.clients.get_mut(&session).filter(|client| !client.joins).map(|client| client.heard = now).is_some()
    }

    /// Records a sign of life for all sessions.
    pub fn hear_all(&mut self, now: Instant) {
        self.clients.values_mut().for_each(|client| client.heard = now);
    }

    /// Sessions whose lease has expired.
    pub fn overdue(&self, now: Instant) -> Vec<SessionId> {
        self.clients.keys().copied().filter(|session| self.is_overdue(*session, now)).collect()
    }

    /// Whether the lease of a session has expired.
    pub fn is_overdue(&self, session: SessionId, now: Instant) -> bool {
        let speaks = |client: &Client| !client.joins || client.reclaims;
        let late = |client: &Client| speaks(client) && now.saturating_duration_since(client.heard) > self.lease;
        self.clients.get(&session).is_some_and(late)
    }

    /// Ends a session whose lease has expired, if that is still so.
    pub fn end_overdue(&mut self, session: SessionId, now: Instant) -> Option<Left> {
        self.is_overdue(session, now).then(|| self.end(session))
    }

    /// Ends a session.
    pub fn end(&mut self, session: SessionId) -> Left {
        let Some(client) = self.clients.remove(&session) else { return Left::default() };
        let mut closed: Vec<Ino> = client.open.keys().chain(&client.kept).copied().collect();
        closed.sort_unstable();
        closed.dedup();
        closed.retain(|&ino| !self.is_open(ino));
        self.forget_reservations();
        self.superseded.retain(|(of, _)| *of != session);
        Left { name: client.name, sets: client.sets.into_iter().collect(), closed }
    }

    /// The number of sessions.
    pub fn count(&self) -> usize {
        self.clients.len()
    }

    /// The number of the next session, and the living sessions, in order.
    pub fn living(&self) -> (SessionId, Vec<SessionId>) {
        (self.next, self.clients.keys().copied().collect())
    }

    /// The names of all clients, by session.
    pub fn names(&self) -> Vec<(SessionId, String)> {
        self.clients.iter().map(|(&session, client)| (session, client.name.clone())).collect()
    }

    /// Records that a session owns these sets.
    pub fn hold(&mut self, session: SessionId, sets: impl IntoIterator<Item = SetId>) {
        if let Some(client) = self.clients.get_mut(&session) {
            client.sets.extend(sets);
        }
    }

    /// The sets of all sessions.
    pub fn all_sets(&self) -> Vec<(SessionId, BTreeSet<SetId>)> {
        self.clients.iter().map(|(&session, client)| (session, client.sets.clone())).collect()
    }

    /// The sets of a session.
    pub fn sets(&self, session: SessionId) -> Vec<SetId> {
        self.clients.get(&session).map_or_else(Vec::new, |client| client.sets.iter().copied().collect())
    }

    /// Takes back sets from a session. Returns those that it owned.
    pub fn release(&mut self, session: SessionId, sets: &[SetId]) -> Vec<SetId> {
        let Some(client) = self.clients.get_mut(&session) else { return Vec::new() };
        sets.iter().copied().filter(|set| client.sets.remove(set)).collect()
    }

    /// Whether any session writes to a set or may name it in a transaction.
    pub fn is_held(&self, set: SetId) -> bool {
        self.clients.values().any(|client| client.sets.contains(&set))
    }

    /// Whether this session owns the set.
    pub fn holds(&self, session: SessionId, set: SetId) -> bool {
        self.clients.get(&session).is_some_and(|client| client.sets.contains(&set))
    }
}
