//! The table of sessions: which files they have open and which sets they own. It is the state
//! behind [`Sessions`](super::Sessions), without a clock and without waiting.

use crate::session::{EXCLUSIVE_FOR, KERNEL_VALID_FOR, REMOVED_AT_A_TIME};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

/// The most removed files that are kept for clients that have not processed their removal yet. With
/// more, the oldest are dropped.
const MOST_REMOVED: usize = 1 << 17;
/// The most files without a name that are kept for the kernel of one client.
const MOST_KEPT: usize = 1 << 16;
/// The most files that a client can have open or uncommitted. More are not recorded.
const MOST_FILES: usize = 1 << 20;
/// The same for all sessions of one cluster member, identified by its certificate, and the number
/// that each session may have in any case.
const MOST_FILES_OF_MEMBER: usize = 4 << 20;
const FEW_FILES: usize = 1024;
/// The most sessions of a member: all processes of a large job may share one certificate.
const MOST_SESSIONS_OF_MEMBER: usize = 4096;
/// The most chunk sets of a session, and of all sessions of a member together.
const MOST_SETS: usize = 4096;
const MOST_SETS_OF_MEMBER: usize = 1 << 16;

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
    /// It has completed its reclaim, or needs none.
    told: bool,
    /// The end of its exclusive lease, including caches in its kernel.
    exclusive_until: Instant,
    /// The last answer to it said that there are other clients.
    told_of_others: bool,
    /// Chunk sets that it may write to.
    sets: BTreeSet<u64>,
    /// Open files: the number of all openers, and of those that write.
    open: HashMap<u64, (u32, u32)>,
    /// Files that it may have uncommitted data of, each with the number of the last open or close
    /// by a writer.
    dirty: HashMap<u64, u64>,
    /// Files with recalls.
    asked: HashMap<u64, Asked>,
    /// Files without a name that its kernel knows.
    kept: HashSet<u64>,
    /// The last removal that it has processed.
    noted: u64,
}

/// The recalls of a file from a client.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    waiting: u32,
    /// The last question that was answered, and with it all earlier ones.
    answered: u64,
}

impl Client {
    /// The number of files that are recorded for it.
    fn files(&self) -> usize {
        self.open.len() + self.dirty.len() + self.kept.len()
    }

    /// Records that it writes to a file, or did until now. Without space for one more file, nothing
    /// is recorded.
    fn write(&mut self, ino: u64, number: u64, room: usize) {
        if room == 0 && !self.dirty.contains_key(&ino) {
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
    next: u64,
    /// The number of the last question. Questions from before a restart had lower numbers.
    questions: u64,
    clients: BTreeMap<u64, Client>,
    /// The ends of append reservations in open files.
    ends: HashMap<u64, u64>,
    /// Files that are being truncated, and the number of truncations so far.
    being_cut: HashSet<u64>,
    cuts: u64,
    /// The number of the last removal. Removals from before a restart had lower numbers.
    removals: u64,
    /// Files without a name that are not open, each with its removal, until all clients have
    /// reported whether their kernels know them.
    removed: VecDeque<(u64, u64)>,
}

/// What an ended session leaves behind.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Left {
    pub name: String,
    /// Sets that it no longer writes to.
    pub sets: Vec<u64>,
    /// Files that are no longer open.
    pub closed: Vec<u64>,
}

impl Table {
    /// `first` is the number of the first session.
    pub fn new(lease: Duration, first: u64) -> Self {
        let (clients, ends, being_cut, removed) = Default::default();
        Self { lease, next: first, questions: first, clients, ends, being_cut, cuts: 0, removals: first, removed }
    }

    /// Sets the time that a session lives without a heartbeat.
    pub fn set_lease(&mut self, lease: Duration) {
        self.lease = lease;
    }

    /// Begins a session, or reclaims one whose number this server may have lost. Returns whether it
    /// is new or has not completed its reclaim; its requests are then not accepted until it is
    /// admitted. None for a number that was never given out.
    pub fn begin(&mut self, reclaimed: Option<u64>, name: &str, now: Instant) -> Option<(u64, bool)> {
        let session = reclaimed.unwrap_or(self.next);
        match reclaimed {
            Some(session) => self.was_given_out(session).then_some(())?,
            None => self.next = self.next.checked_add(1)?,
        }
        let new = || Client {
            name: name.into(),
            peer: String::new(),
            allowed: FEW_FILES,
            heard: now,
            joins: true,
            told: reclaimed.is_none(),
            // A reclaimed session may have an exclusive lease from the earlier server.
            exclusive_until: if reclaimed.is_some() { now + EXCLUSIVE_FOR + KERNEL_VALID_FOR } else { now },
            told_of_others: false,
            sets: BTreeSet::new(),
            open: HashMap::new(),
            dirty: HashMap::new(),
            asked: HashMap::new(),
            kept: HashSet::new(),
            // A new client cannot know files that were removed before.
            noted: if reclaimed.is_some() { 0 } else { self.removals },
        };
        let client = self.clients.entry(session).or_insert_with(new);
        client.heard = now;
        Some((session, client.joins || !client.told))
    }

    /// Whether a member may begin one more session. Clients without a certificate have no limit.
    pub fn admits(&self, peer: &str) -> bool {
        peer.is_empty() || self.of_member(peer).count() < MOST_SESSIONS_OF_MEMBER
    }

    /// Assigns a session to a member.
    pub fn belongs(&mut self, session: u64, peer: &str) {
        if let Some(client) = self.clients.get_mut(&session) {
            client.peer = peer.into();
        }
    }

    fn of_member(&self, peer: &str) -> impl Iterator<Item = &Client> {
        self.clients.values().filter(move |client| client.peer == peer)
    }

    /// Whether a session may get another chunk set.
    pub fn may_hold_more(&self, session: u64) -> bool {
        self.clients.get(&session).is_none_or(|client| {
            let of_member = || self.of_member(&client.peer).map(|client| client.sets.len()).sum::<usize>();
            client.sets.len() < MOST_SETS && (client.peer.is_empty() || of_member() < MOST_SETS_OF_MEMBER)
        })
    }

    /// The number of files of all sessions of a member.
    fn files_of_member(&self, peer: &str) -> usize {
        self.of_member(peer).map(Client::files).sum()
    }

    /// The number of further files that may be recorded for a session, at least; 0 when the limit
    /// is reached.
    fn room(&mut self, session: u64) -> usize {
        let Some(client) = self.clients.get(&session) else { return 0 };
        let files = client.files();
        let mut allowed = client.allowed.clamp(FEW_FILES, files + FEW_FILES);
        // Count the files of all sessions only once for many files.
        let may = || client.peer.is_empty() || self.files_of_member(&client.peer) < MOST_FILES_OF_MEMBER;
        if files >= allowed && may() {
            allowed += FEW_FILES;
        }
        self.clients.get_mut(&session).into_iter().for_each(|client| client.allowed = allowed);
        allowed.min(2 * MOST_FILES).saturating_sub(files)
    }

    /// Whether there is a session of that number.
    pub fn has(&self, session: u64) -> bool {
        self.clients.contains_key(&session)
    }

    /// Whether a session of that number was ever begun.
    pub fn was_given_out(&self, session: u64) -> bool {
        (1..self.next).contains(&session)
    }

    /// Admits a session: its requests are accepted from now on.
    pub fn let_in(&mut self, session: u64, now: Instant) {
        if let Some(client) = self.clients.get_mut(&session) {
            (client.joins, client.heard) = (false, now);
        }
    }

    /// A session completed its reclaim.
    pub fn has_told(&mut self, session: u64) {
        if let Some(client) = self.clients.get_mut(&session) {
            client.told = true;
        }
    }

    /// The number of other clients, for an answer to this session. 0 extends its exclusive lease.
    /// That the client received a nonzero number is certain only at its next request: it sends one
    /// request at a time, and an answer may take long.
    pub fn tell_of_others(&mut self, session: u64, now: Instant) -> usize {
        let others = self.clients.len().saturating_sub(1);
        if let Some(client) = self.clients.get_mut(&session) {
            if others == 0 {
                client.exclusive_until = now + EXCLUSIVE_FOR + KERNEL_VALID_FOR;
            } else if client.told_of_others {
                client.exclusive_until = client.exclusive_until.min(now + KERNEL_VALID_FOR);
            }
            client.told_of_others = others > 0;
        }
        others
    }

    /// The end of the longest exclusive lease of other sessions that may not know of this one, with
    /// the list of those sessions.
    pub fn unaware_of(&self, session: u64, now: Instant) -> Option<(Instant, Vec<u64>)> {
        let unaware = self.clients.iter().filter(|(other, client)| **other != session && client.exclusive_until > now);
        let until = unaware.clone().map(|(_, client)| client.exclusive_until).max()?;
        Some((until, unaware.map(|(&other, _)| other).collect()))
    }

    /// Records a sign of life. Returns whether the session exists and is admitted.
    pub fn hear(&mut self, session: u64, now: Instant) -> bool {
        self.clients.get_mut(&session).filter(|client| !client.joins).map(|client| client.heard = now).is_some()
    }

    /// Records a sign of life for all sessions.
    pub fn hear_all(&mut self, now: Instant) {
        self.clients.values_mut().for_each(|client| client.heard = now);
    }

    /// Sessions whose lease has expired.
    pub fn overdue(&self, now: Instant) -> Vec<u64> {
        let late = |client: &Client| !client.joins && now.saturating_duration_since(client.heard) > self.lease;
        self.clients.iter().filter(|(_, client)| late(client)).map(|(&session, _)| session).collect()
    }

    /// Ends a session whose lease has expired, if that is still so.
    pub fn end_overdue(&mut self, session: u64, now: Instant) -> Option<Left> {
        self.overdue(now).contains(&session).then(|| self.end(session))
    }

    /// Ends a session.
    pub fn end(&mut self, session: u64) -> Left {
        let Some(client) = self.clients.remove(&session) else { return Left::default() };
        let mut closed: Vec<u64> = client.open.keys().chain(&client.kept).copied().collect();
        closed.sort_unstable();
        closed.dedup();
        closed.retain(|&ino| !self.is_open(ino));
        self.forget_reservations();
        Left { name: client.name, sets: client.sets.into_iter().collect(), closed }
    }

    /// The number of sessions.
    pub fn count(&self) -> usize {
        self.clients.len()
    }

    /// The number of the next session, and the living sessions, in order.
    pub fn living(&self) -> (u64, Vec<u64>) {
        (self.next, self.clients.keys().copied().collect())
    }

    /// The names of all clients, by session.
    pub fn names(&self) -> Vec<(u64, String)> {
        self.clients.iter().map(|(&session, client)| (session, client.name.clone())).collect()
    }

    /// Records that a session owns these sets.
    pub fn hold(&mut self, session: u64, sets: impl IntoIterator<Item = u64>) {
        if let Some(client) = self.clients.get_mut(&session) {
            client.sets.extend(sets);
        }
    }

    /// The sets of all sessions.
    pub fn all_sets(&self) -> Vec<(u64, BTreeSet<u64>)> {
        self.clients.iter().map(|(&session, client)| (session, client.sets.clone())).collect()
    }

    /// The sets of a session.
    pub fn sets(&self, session: u64) -> Vec<u64> {
        self.clients.get(&session).map_or_else(Vec::new, |client| client.sets.iter().copied().collect())
    }

    /// Takes back sets from a session. Returns those that it owned.
    pub fn release(&mut self, session: u64, sets: &[u64]) -> Vec<u64> {
        let Some(client) = self.clients.get_mut(&session) else { return Vec::new() };
        sets.iter().copied().filter(|set| client.sets.remove(set)).collect()
    }

    /// Whether any session writes to a set or may name it in a transaction.
    pub fn is_held(&self, set: u64) -> bool {
        self.clients.values().any(|client| client.sets.contains(&set))
    }

    /// Whether this session owns the set.
    pub fn holds(&self, session: u64, set: u64) -> bool {
        self.clients.get(&session).is_some_and(|client| client.sets.contains(&set))
    }

    /// Records that a session opened a file; `writes` is not 0 if it may write.
    pub fn open(&mut self, session: u64, ino: u64, writes: u64) {
        let room = self.room(session);
        let Some(client) = self.clients.get_mut(&session) else { return };
        if room == 0 && !client.open.contains_key(&ino) {
            return;
        }
        let (all, writers) = client.open.entry(ino).or_default();
        *all = all.saturating_add(1);
        if writes > 0 {
            *writers = writers.saturating_add(1);
            client.write(ino, writes, room);
        }
    }

    /// Records that a session closed a file. The request does not say which of its openers closed:
    /// writers are counted until the last opener closes. Returns whether no client has the file
    /// open any more.
    pub fn close(&mut self, session: u64, ino: u64, wrote: u64) -> bool {
        let room = if wrote > 0 { self.room(session) } else { 0 };
        let Some(client) = self.clients.get_mut(&session) else { return false };
        if wrote > 0 {
            client.write(ino, wrote, room);
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

    /// Drops reservations of files that no client has open or uncommitted: the metadata has their
    /// size.
    fn forget_reservations(&mut self) {
        let clients = &self.clients;
        self.ends.retain(|ino, _| clients.values().any(|c| c.open.contains_key(ino) || c.dirty.contains_key(ino)));
    }

    /// Whether a client has a file open, or a kernel knows it without a name.
    pub fn is_open(&self, ino: u64) -> bool {
        self.clients.values().any(|client| client.open.contains_key(&ino) || client.kept.contains(&ino))
    }

    /// A file lost its last name and is not open: it is kept until all clients have reported
    /// whether their kernels know it.
    pub fn set_aside(&mut self, ino: u64) {
        self.removals += 1;
        self.removed.push_back((self.removals, ino));
    }

    /// The number of the last removal.
    pub fn last_removal(&self) -> u64 {
        self.removals
    }

    /// Records that a session has processed the removals up to a number: its kernel knows the files
    /// `kept`, and has forgotten files that it kept before. Returns the next removals, the number
    /// of the last of them, and the forgotten files that no client needs any more.
    pub fn note(&mut self, session: u64, noted: u64, kept: &[u64], forgotten: &[u64]) -> (u64, Vec<u64>, Vec<u64>) {
        let last = self.removals;
        let peer = self.clients.get(&session).map_or("", |client| &client.peer).to_owned();
        let limited = !kept.is_empty() && !peer.is_empty();
        let room = if limited { MOST_FILES_OF_MEMBER.saturating_sub(self.files_of_member(&peer)) } else { MOST_KEPT };
        let Some(client) = self.clients.get_mut(&session) else { return (last, Vec::new(), Vec::new()) };
        client.noted = client.noted.max(noted.min(last));
        let room = MOST_KEPT.saturating_sub(client.kept.len()).min(room);
        client.kept.extend(kept.iter().take(room));
        let mut given_up: Vec<u64> = forgotten.iter().copied().filter(|ino| client.kept.remove(ino)).collect();
        given_up.retain(|&ino| !self.is_open(ino));
        let first = self.removed.partition_point(|(number, _)| *number <= noted);
        let next: Vec<(u64, u64)> = self.removed.iter().skip(first).take(REMOVED_AT_A_TIME).copied().collect();
        let told = if next.len() < REMOVED_AT_A_TIME { last } else { next[next.len() - 1].0 };
        (told, next.into_iter().map(|(_, ino)| ino).collect(), given_up)
    }

    /// Takes the removed files that no client keeps.
    pub fn take_settled(&mut self) -> Vec<u64> {
        let noted = self.clients.values().map(|client| client.noted).min().unwrap_or(u64::MAX);
        let settled = self.removed.partition_point(|(number, _)| *number <= noted);
        let settled = settled.max(self.removed.len().saturating_sub(MOST_REMOVED));
        let gone: Vec<u64> = self.removed.drain(..settled).map(|(_, ino)| ino).collect();
        gone.into_iter().filter(|&ino| !self.is_open(ino)).collect()
    }

    /// Records that a session has no uncommitted data of these files from before the given numbers.
    pub fn clean(&mut self, session: u64, files: &[(u64, u64)]) {
        let Some(client) = self.clients.get_mut(&session) else { return };
        for (ino, number) in files {
            let writes = client.open.get(ino).is_some_and(|(_, writers)| *writers > 0);
            if !writes && client.dirty.get(ino).is_some_and(|last| last <= number) {
                client.dirty.remove(ino);
            }
        }
        self.forget_reservations();
    }

    /// The other sessions that may have uncommitted data of a file; with `closed`, only those that
    /// no longer have it open for writing.
    pub fn writers(&self, session: u64, ino: u64, closed: bool) -> Vec<u64> {
        let writes = |client: &Client| client.open.get(&ino).is_some_and(|(_, writers)| *writers > 0);
        let others = self.clients.iter().filter(|(other, _)| **other != session);
        others
            .filter(|(_, client)| client.dirty.contains_key(&ino) && !(closed && writes(client)))
            .map(|(&other, _)| other)
            .collect()
    }

    /// Records a recall of a file from a session; returns the number of the question. Each recall
    /// has its own: what was committed for an earlier one may lack later writes.
    pub fn ask(&mut self, session: u64, ino: u64) -> u64 {
        self.questions += 1;
        let client = self.clients.get_mut(&session);
        client.into_iter().for_each(|client| client.asked.entry(ino).or_default().waiting += 1);
        self.questions
    }

    /// Records the answer to a question. The numbers in it go to `clean`.
    pub fn answer(&mut self, session: u64, ino: u64, question: u64) {
        let asked = self.clients.get_mut(&session).and_then(|client| client.asked.get_mut(&ino));
        asked.into_iter().for_each(|asked| asked.answered = question.max(asked.answered));
    }

    /// Whether a question has no answer yet and there may still be uncommitted data.
    pub fn is_asked(&self, session: u64, ino: u64, question: u64) -> bool {
        let client = self.clients.get(&session).filter(|client| client.dirty.contains_key(&ino));
        client.and_then(|client| client.asked.get(&ino)).is_some_and(|asked| asked.answered < question)
    }

    /// A thread no longer waits for a recall.
    pub fn asked(&mut self, session: u64, ino: u64) {
        let Some(client) = self.clients.get_mut(&session) else { return };
        let Some(asked) = client.asked.get_mut(&ino) else { return };
        asked.waiting -= 1;
        if asked.waiting == 0 {
            client.asked.remove(&ino);
        }
    }

    /// Reserves `length` bytes at the end of a file whose size is at least `size`; returns the
    /// offset where they begin.
    pub fn reserve(&mut self, ino: u64, size: u64, length: u64) -> Option<u64> {
        let before = self.ends.get(&ino).copied().unwrap_or(0);
        let from = size.max(before);
        let end = from.checked_add(length).filter(|&end| end <= meta::MAX_SIZE)?;
        self.ends.insert(ino, end);
        Some(from)
    }

    /// Begins a truncation: until it ends, the end of the file is unknown. Only one truncation of a
    /// file at a time.
    pub fn begin_cut(&mut self, ino: u64) {
        self.being_cut.insert(ino);
    }

    /// Ends a truncation to this size; None if it failed.
    pub fn end_cut(&mut self, ino: u64, size: Option<u64>) {
        self.being_cut.remove(&ino);
        self.cuts += 1;
        if let (Some(end), Some(size)) = (self.ends.get_mut(&ino), size) {
            *end = size.min(*end);
        }
    }

    /// Whether a file is being truncated: no reservations are given out meanwhile.
    pub fn is_being_cut(&self, ino: u64) -> bool {
        self.being_cut.contains(&ino)
    }

    /// The number of truncations so far. A size that was read before the last one may be outdated.
    pub fn cuts(&self) -> u64 {
        self.cuts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(30);

    fn begin(table: &mut Table, reclaimed: Option<u64>, name: &str, now: Instant) -> (u64, bool) {
        table.begin(reclaimed, name, now).expect("a number that was given out")
    }

    #[test]
    fn only_numbers_that_were_given_out_are_taken_up() {
        let now = Instant::now();
        let mut table = Table::new(LEASE, 7);
        for never in [0, 7, 8, u64::MAX - 1, u64::MAX] {
            assert_eq!(table.begin(Some(never), "x", now), None, "{never}");
        }
        assert_eq!(table.begin(None, "a", now), Some((7, true)), "the counter is as it was");
        assert_eq!(table.begin(Some(7), "a", now), Some((7, true)));
        let mut last = Table::new(LEASE, u64::MAX);
        assert_eq!(last.begin(None, "a", now), None);
    }

    #[test]
    fn a_member_has_no_more_than_its_share_however_many_sessions_it_has() {
        let now = Instant::now();
        let mut table = Table::new(LEASE, 1);
        let mut sessions = Vec::new();
        while table.admits("a") {
            let (session, _) = begin(&mut table, None, "x", now);
            table.belongs(session, "a");
            sessions.push(session);
        }
        assert_eq!(sessions.len(), MOST_SESSIONS_OF_MEMBER);
        assert!(table.admits("b") && table.admits(""));
        table.end(sessions.pop().unwrap());
        assert!(table.admits("a"));
        // Files that are open.
        let (first, second, last) = (sessions[0], sessions[1], *sessions.last().unwrap());
        let other = begin(&mut table, None, "x", now).0;
        table.belongs(other, "b");
        let client = table.clients.get_mut(&first).unwrap();
        client.open = (0..MOST_FILES_OF_MEMBER as u64).map(|ino| (ino, (1, 0))).collect();
        for session in [last, other] {
            (0..3 * FEW_FILES as u64).for_each(|ino| table.open(session, ino, 0));
        }
        let open = |session: u64| table.clients[&session].open.len();
        assert_eq!((open(last), open(other)), (FEW_FILES, 3 * FEW_FILES), "another member has its own share");
        table.clients.get_mut(&first).unwrap().open.clear();
        (0..3 * FEW_FILES as u64).for_each(|ino| table.open(last, ino, 1));
        assert_eq!(table.clients[&last].files(), 6 * FEW_FILES);
        let first = sessions[2];
        // Chunk sets.
        assert!(table.may_hold_more(first));
        table.hold(first, 0..MOST_SETS as u64);
        assert!(!table.may_hold_more(first) && table.may_hold_more(second));
        for (at, &session) in sessions[1..MOST_SETS_OF_MEMBER / MOST_SETS].iter().enumerate() {
            table.hold(session, (at * MOST_SETS) as u64..((at + 1) * MOST_SETS) as u64);
        }
        assert!(!table.may_hold_more(last) && table.may_hold_more(other));
    }

    #[test]
    fn a_session_that_is_silent_for_too_long_is_overdue_and_leaves_what_it_had() {
        let start = Instant::now();
        let mut table = Table::new(LEASE, 7);
        let (a, b) = (begin(&mut table, None, "a", start).0, begin(&mut table, None, "b", start).0);
        assert_eq!((a, b), (7, 8));
        assert!(table.overdue(start + 2 * LEASE).is_empty(), "who is not let in yet is not silent");
        [a, b].iter().for_each(|&session| table.let_in(session, start));
        table.hold(a, [1, 2]);
        table.open(a, 50, 1);
        table.open(b, 50, 0);
        table.open(a, 51, 0);
        assert!(table.hear(b, start + LEASE));
        assert!(table.overdue(start + LEASE).is_empty());
        assert_eq!(table.overdue(start + LEASE + Duration::from_millis(1)), [a]);
        assert_eq!(table.end(a), Left { name: "a".into(), sets: vec![1, 2], closed: vec![51] });
        assert!(!table.hear(a, start) && !table.is_held(1));
        assert_eq!(table.end(b).closed, [50]);
    }

    #[test]
    fn a_session_can_be_taken_up_after_the_server_forgot_it() {
        let start = Instant::now();
        let mut table = Table::new(LEASE, 21);
        assert_eq!(begin(&mut table, Some(20), "a", start), (20, true));
        // Its requests wait until it is admitted, even if the answer to its begin got lost.
        assert!(!table.hear(20, start));
        table.let_in(20, start);
        assert!(table.hear(20, start));
        assert_eq!(begin(&mut table, Some(20), "a", start), (20, true));
        table.has_told(20);
        assert_eq!(begin(&mut table, Some(20), "a", start), (20, false));
        assert_eq!(begin(&mut table, None, "b", start), (21, true));
        table.let_in(21, start);
        assert_eq!(begin(&mut table, Some(21), "b", start), (21, false));
    }

    /// A joining client waits for a client with the exclusive lease, until that one has confirmed
    /// and the caches in its kernel have expired, or until its lease is over.
    #[test]
    fn who_joins_waits_for_those_who_believe_to_be_alone() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut table = Table::new(LEASE, 91);
        let a = begin(&mut table, None, "a", start).0;
        assert_eq!(table.tell_of_others(a, at(100)), 0);
        let b = begin(&mut table, None, "b", at(200)).0;
        let believed = at(100) + EXCLUSIVE_FOR + KERNEL_VALID_FOR;
        assert_eq!(table.unaware_of(b, at(200)), Some((believed, vec![a])));
        // A third client waits for the same.
        let c = begin(&mut table, None, "c", at(210)).0;
        assert_eq!(table.unaware_of(c, at(210)), Some((believed, vec![a])));
        // The answer may not have arrived yet: that is certain only at its next request.
        assert_eq!(table.tell_of_others(a, at(215)), 2);
        assert_eq!(table.unaware_of(b, at(215)), Some((believed, vec![a])));
        assert_eq!(table.tell_of_others(a, at(220)), 2);
        let heard = at(220) + KERNEL_VALID_FOR;
        assert_eq!(table.unaware_of(b, at(220)), Some((heard, vec![a])));
        assert_eq!(table.unaware_of(b, heard), None);
        // Repeating the answer does not extend the time.
        assert_eq!(table.tell_of_others(a, at(300)), 2);
        assert_eq!(table.unaware_of(b, heard), None);
        // A session that may have an exclusive lease from the earlier server.
        let d = begin(&mut table, Some(90), "d", at(5000)).0;
        assert_eq!(table.unaware_of(a, at(5000)), Some((at(5000) + EXCLUSIVE_FOR + KERNEL_VALID_FOR, vec![d])));
    }

    #[test]
    fn writers_are_asked_until_they_answer() {
        let start = Instant::now();
        let mut table = Table::new(LEASE, 1);
        let (a, b) = (begin(&mut table, None, "a", start).0, begin(&mut table, None, "b", start).0);
        table.open(a, 9, 1);
        assert_eq!(table.writers(b, 9, false), [a]);
        assert_eq!((table.writers(b, 9, true), table.writers(a, 9, false)), (vec![], vec![]));
        let (first, second) = (table.ask(a, 9), table.ask(a, 9));
        assert!(table.is_asked(a, 9, first) && table.is_asked(a, 9, second));
        // A report without a question is no answer: the client may still write. The answer to the
        // first question does not answer the second.
        table.clean(a, &[(9, 1)]);
        assert!(table.is_asked(a, 9, first));
        table.answer(a, 9, first);
        assert!(!table.is_asked(a, 9, first) && table.is_asked(a, 9, second));
        table.answer(a, 9, second);
        assert!(!table.is_asked(a, 9, second));
        [0; 2].iter().for_each(|_| table.asked(a, 9));
        // A late answer does not answer the current question.
        let third = table.ask(a, 9);
        table.answer(a, 9, second);
        assert!(table.is_asked(a, 9, third));
        // The file is still open for writing: there may be more.
        assert_eq!(table.writers(b, 9, false), [a]);
        assert!(table.close(a, 9, 1));
        assert_eq!(table.writers(b, 9, true), [a]);
        assert!(table.is_asked(a, 9, third));
        table.clean(a, &[(9, 1)]);
        assert!(table.writers(b, 9, false).is_empty());
        assert!(!table.is_asked(a, 9, third), "nothing is uncommitted");
    }

    /// A report from before the file was opened or closed again does not cover later writes, though
    /// it arrives after them.
    #[test]
    fn what_is_overtaken_says_nothing() {
        let mut table = Table::new(LEASE, 1);
        let a = begin(&mut table, None, "a", Instant::now()).0;
        let b = begin(&mut table, None, "b", Instant::now()).0;
        table.open(a, 9, 1);
        table.close(a, 9, 2);
        table.clean(a, &[(9, 1)]);
        assert_eq!(table.writers(b, 9, false), [a]);
        table.open(a, 9, 3);
        table.close(a, 9, 4);
        table.clean(a, &[(9, 2)]);
        assert_eq!(table.writers(b, 9, false), [a]);
        table.clean(a, &[(9, 4)]);
        assert!(table.writers(b, 9, false).is_empty());
    }

    #[test]
    fn a_removed_file_is_kept_until_no_kernel_knows_it() {
        let start = Instant::now();
        let mut table = Table::new(LEASE, 7);
        let (a, b) = (begin(&mut table, None, "a", start).0, begin(&mut table, None, "b", start).0);
        table.set_aside(50);
        table.set_aside(51);
        let last = table.last_removal();
        assert_eq!(table.note(a, 0, &[], &[]), (last, vec![50, 51], vec![]), "told is not noted");
        assert!(table.take_settled().is_empty());
        assert_eq!(table.note(a, last, &[50], &[]), (last, vec![], vec![]));
        assert!(table.take_settled().is_empty(), "the other one may know them");
        table.note(b, last, &[50], &[]);
        assert_eq!(table.take_settled(), [51]);
        assert!(table.is_open(50) && !table.is_open(51));
        // A client that joins later cannot know them. A client that reclaims its session may.
        let c = begin(&mut table, None, "c", start).0;
        table.set_aside(52);
        assert_eq!(table.note(c, 0, &[], &[]).1, [52]);
        let d = begin(&mut table, Some(6), "d", start).0;
        [a, b, c].iter().for_each(|&session| _ = table.note(session, last + 1, &[], &[]));
        assert!(table.take_settled().is_empty());
        table.note(d, u64::MAX, &[], &[]);
        assert_eq!(table.take_settled(), [52]);
        // A file that a kernel forgets is removed when no other client needs it. A session cannot
        // give up what another one keeps.
        assert!(table.note(c, 0, &[], &[50]).2.is_empty());
        assert!(table.note(a, 0, &[], &[50]).2.is_empty());
        table.open(a, 50, 0);
        assert!(table.note(b, 0, &[], &[50]).2.is_empty());
        assert!(table.close(a, 50, 0));
        // An ended session keeps nothing.
        table.set_aside(53);
        table.note(d, last + 2, &[53], &[]);
        [a, b, c].iter().for_each(|&session| _ = table.note(session, last + 2, &[], &[]));
        assert!(table.take_settled().is_empty());
        assert_eq!(table.end(d).closed, [53]);
    }

    #[test]
    fn no_more_removed_files_are_kept_than_there_is_room_for() {
        let mut table = Table::new(LEASE, 1);
        let a = begin(&mut table, None, "a", Instant::now()).0;
        (0..MOST_REMOVED as u64 + 3).for_each(|ino| table.set_aside(ino));
        assert_eq!(table.take_settled(), [0, 1, 2]);
        let (told, inos, _) = table.note(a, 0, &[], &[]);
        assert_eq!((inos.len(), inos[0]), (REMOVED_AT_A_TIME, 3));
        assert_eq!(table.note(a, told, &[], &[]).1[0], 3 + REMOVED_AT_A_TIME as u64);
        assert_eq!(table.take_settled().len(), REMOVED_AT_A_TIME);
        let many: Vec<u64> = (0..2 * MOST_KEPT as u64).collect();
        table.note(a, 0, &many, &[]);
        assert_eq!(table.end(a).closed.len(), MOST_KEPT);
    }

    #[test]
    fn appends_never_meet() {
        let mut table = Table::new(LEASE, 1);
        let a = begin(&mut table, None, "a", Instant::now()).0;
        table.open(a, 9, 1);
        assert_eq!(table.reserve(9, 100, 10), Some(100));
        assert_eq!(table.reserve(9, 100, 10), Some(110));
        assert_eq!(table.reserve(9, 500, 10), Some(500));
        table.begin_cut(9);
        assert!(table.is_being_cut(9) && !table.is_being_cut(8));
        table.end_cut(9, None);
        assert_eq!((table.reserve(9, 0, 5), table.is_being_cut(9), table.cuts()), (Some(510), false, 1));
        table.begin_cut(9);
        table.end_cut(9, Some(0));
        assert_eq!((table.reserve(9, 0, 5), table.cuts()), (Some(0), 2));
        assert_eq!(table.reserve(9, u64::MAX, 5), None);
        table.reserve(9, 3, 5);
        table.close(a, 9, 1);
        // The appended data is not committed yet.
        assert_eq!(table.reserve(9, 3, 5), Some(10));
        table.clean(a, &[(9, 1)]);
        assert_eq!(table.reserve(9, 3, 5), Some(3));
    }
}
