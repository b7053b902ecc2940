//! Who has what open, and which sets are whose: the state behind [`Sessions`](super::Sessions), without a clock and without waiting.

use crate::session::{EXCLUSIVE_FOR, KERNEL_VALID_FOR, REMOVED_AT_A_TIME};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

/// Removed files that are kept for clients that did not take note of their removal yet; of more, the oldest go.
const MOST_REMOVED: usize = 1 << 17;
/// Files without a name that are kept for the kernel of one client.
const MOST_KEPT: usize = 1 << 16;
/// Files that a client has open, or something uncommitted of. More are not believed.
const MOST_FILES: usize = 1 << 20;
/// The same of all sessions of a member of the cluster together, which has a certificate. A session has this many whatever the others have.
const MOST_FILES_OF_MEMBER: usize = 4 << 20;
const FEW_FILES: usize = 1024;
/// Sessions of a member: one certificate may be that of all processes of a large job.
const MOST_SESSIONS_OF_MEMBER: usize = 4096;
/// Chunk sets of a session, and of all sessions of a member together.
const MOST_SETS: usize = 4096;
const MOST_SETS_OF_MEMBER: usize = 1 << 16;

/// A client.
#[derive(Debug)]
struct Client {
    name: String,
    /// The name in its certificate; empty without certificates.
    peer: String,
    /// Files that something may be kept of before it is looked what the other sessions of its member have.
    allowed: usize,
    heard: Instant,
    /// It is not let in yet.
    joins: bool,
    /// It said what it has, since this server knows it.
    told: bool,
    /// Until when it may believe that there are no others.
    exclusive_until: Instant,
    /// It was told of others last.
    told_of_others: bool,
    /// Chunk sets that it may write to.
    sets: BTreeSet<u64>,
    /// Files that it has open: all openers, and those that write.
    open: HashMap<u64, (u32, u32)>,
    /// Files that it may have uncommitted data of, each with the number of the last opening or closing by a writer.
    dirty: HashMap<u64, u64>,
    /// Files that it was asked to commit.
    asked: HashMap<u64, Asked>,
    /// Files without a name that its kernel knows.
    kept: HashSet<u64>,
    /// The last removal that it took note of.
    noted: u64,
}

/// Who waits for a client to commit a file.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    waiting: u32,
    /// The last question that was answered, and with it all before.
    answered: u64,
}

impl Client {
    /// The files that something is kept of.
    fn files(&self) -> usize {
        self.open.len() + self.dirty.len() + self.kept.len()
    }

    /// It writes to a file, or did until now. Without room for one more file that is not believed.
    fn write(&mut self, ino: u64, number: u64, room: usize) {
        if room == 0 && !self.dirty.contains_key(&ino) {
            return;
        }
        let last = self.dirty.entry(ino).or_default();
        *last = number.max(*last);
    }
}

/// All clients.
#[derive(Debug)]
pub(super) struct Table {
    lease: Duration,
    next: u64,
    /// The last question that was asked; none of before a restart had as high a number.
    questions: u64,
    clients: BTreeMap<u64, Client>,
    /// Ends of files that were reserved by appends, as far as they are open.
    ends: HashMap<u64, u64>,
    /// Files that are being cut off, and how many were so far.
    being_cut: HashSet<u64>,
    cuts: u64,
    /// The last removal; none of before a restart had as high a number.
    removals: u64,
    /// Files without a name that nobody has open, each with its removal, until all clients said whether their kernels know them.
    removed: VecDeque<(u64, u64)>,
}

/// What a client leaves behind.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Left {
    pub name: String,
    /// Sets that nobody writes to any more.
    pub sets: Vec<u64>,
    /// Files that nobody has open any more.
    pub closed: Vec<u64>,
}

impl Table {
    /// `first` is the number of the first session.
    pub fn new(lease: Duration, first: u64) -> Self {
        let (clients, ends, being_cut, removed) = Default::default();
        Self { lease, next: first, questions: first, clients, ends, being_cut, cuts: 0, removals: first, removed }
    }

    /// Sessions live so long without being heard of.
    pub fn set_lease(&mut self, lease: Duration) {
        self.lease = lease;
    }

    /// Begins a session, or takes one up whose number this server may have forgotten; returns whether that is new, or did not say yet what it has. Then it is not
    /// heard before it is let in. None for a number that was never given out.
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
            // One that comes back may have heard so from the server of before.
            exclusive_until: if reclaimed.is_some() { now + EXCLUSIVE_FOR + KERNEL_VALID_FOR } else { now },
            told_of_others: false,
            sets: BTreeSet::new(),
            open: HashMap::new(),
            dirty: HashMap::new(),
            asked: HashMap::new(),
            kept: HashSet::new(),
            // A new one cannot know what was removed before.
            noted: if reclaimed.is_some() { 0 } else { self.removals },
        };
        let client = self.clients.entry(session).or_insert_with(new);
        client.heard = now;
        Some((session, client.joins || !client.told))
    }

    /// Whether a member may begin one more session. Who has no name has no limit.
    pub fn admits(&self, peer: &str) -> bool {
        peer.is_empty() || self.of_member(peer).count() < MOST_SESSIONS_OF_MEMBER
    }

    /// A session is that of a member.
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

    /// What all sessions of a member have.
    fn files_of_member(&self, peer: &str) -> usize {
        self.of_member(peer).map(Client::files).sum()
    }

    /// Of how many more files something is kept for a session, at least; none if it is to have no more.
    fn room(&mut self, session: u64) -> usize {
        let Some(client) = self.clients.get(&session) else { return 0 };
        let files = client.files();
        let mut allowed = client.allowed.clamp(FEW_FILES, files + FEW_FILES);
        // All sessions are looked at once for many files.
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

    /// Lets a session in.
    pub fn let_in(&mut self, session: u64, now: Instant) {
        if let Some(client) = self.clients.get_mut(&session) {
            (client.joins, client.heard) = (false, now);
        }
    }

    /// A session said what it has.
    pub fn has_told(&mut self, session: u64) {
        if let Some(client) = self.clients.get_mut(&session) {
            client.told = true;
        }
    }

    /// How many others a session is told of; it believes that for some time. That it heard of others is known when it asks the next time: it asks one
    /// thing after the other, and an answer may be long on its way.
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

    /// Until when some session may believe that this one is not there, with those that may.
    pub fn unaware_of(&self, session: u64, now: Instant) -> Option<(Instant, Vec<u64>)> {
        let unaware = self.clients.iter().filter(|(other, client)| **other != session && client.exclusive_until > now);
        let until = unaware.clone().map(|(_, client)| client.exclusive_until).max()?;
        Some((until, unaware.map(|(&other, _)| other).collect()))
    }

    /// Whether there is such a session, which was let in; it was heard of.
    pub fn hear(&mut self, session: u64, now: Instant) -> bool {
        self.clients.get_mut(&session).filter(|client| !client.joins).map(|client| client.heard = now).is_some()
    }

    /// All sessions count as heard of.
    pub fn hear_all(&mut self, now: Instant) {
        self.clients.values_mut().for_each(|client| client.heard = now);
    }

    /// Sessions that were not heard of for too long.
    pub fn overdue(&self, now: Instant) -> Vec<u64> {
        let late = |client: &Client| !client.joins && now.saturating_duration_since(client.heard) > self.lease;
        self.clients.iter().filter(|(_, client)| late(client)).map(|(&session, _)| session).collect()
    }

    /// Ends a session that was not heard of for too long, if it still was not.
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

    /// How many sessions there are.
    pub fn count(&self) -> usize {
        self.clients.len()
    }

    /// The number of the next session, and those that live, in order.
    pub fn living(&self) -> (u64, Vec<u64>) {
        (self.next, self.clients.keys().copied().collect())
    }

    /// The names of all clients, by session.
    pub fn names(&self) -> Vec<(u64, String)> {
        self.clients.iter().map(|(&session, client)| (session, client.name.clone())).collect()
    }

    /// A session writes to these sets.
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

    /// A session gives sets back. Returns those that were its own.
    pub fn release(&mut self, session: u64, sets: &[u64]) -> Vec<u64> {
        let Some(client) = self.clients.get_mut(&session) else { return Vec::new() };
        sets.iter().copied().filter(|set| client.sets.remove(set)).collect()
    }

    /// Whether a session writes to a set, or may name it in a transaction.
    pub fn is_held(&self, set: u64) -> bool {
        self.clients.values().any(|client| client.sets.contains(&set))
    }

    /// Whether it is held by this session.
    pub fn holds(&self, session: u64, set: u64) -> bool {
        self.clients.get(&session).is_some_and(|client| client.sets.contains(&set))
    }

    /// A session opened a file, to write if it has a number for that.
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

    /// A session closed a file. Which of its openers that was is not told: writers are counted until the last one closes.
    /// Returns whether nobody has it open any more.
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

    /// Forgets the ends of files that nobody has open or something uncommitted of: they are as long as the metadata says.
    fn forget_reservations(&mut self) {
        let clients = &self.clients;
        self.ends.retain(|ino, _| clients.values().any(|c| c.open.contains_key(ino) || c.dirty.contains_key(ino)));
    }

    /// Whether anybody has a file open, or a kernel that knows it without a name.
    pub fn is_open(&self, ino: u64) -> bool {
        self.clients.values().any(|client| client.open.contains_key(&ino) || client.kept.contains(&ino))
    }

    /// A file lost its last name, and nobody has it open: it is kept until all clients said whether their kernels know it.
    pub fn set_aside(&mut self, ino: u64) {
        self.removals += 1;
        self.removed.push_back((self.removals, ino));
    }

    /// The last removal.
    pub fn last_removal(&self) -> u64 {
        self.removals
    }

    /// A session took note of the removals up to a number: its kernel knows `kept` of these files, and has forgotten others that it kept before. Returns the next
    /// removals and the number of the last of them, and which of the forgotten files nobody has any more.
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

    /// A session has no uncommitted data of these files from before those numbers.
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

    /// The other sessions that may have uncommitted data of a file; with `closed`, only those that have it no longer open for writing.
    pub fn writers(&self, session: u64, ino: u64, closed: bool) -> Vec<u64> {
        let writes = |client: &Client| client.open.get(&ino).is_some_and(|(_, writers)| *writers > 0);
        let others = self.clients.iter().filter(|(other, _)| **other != session);
        others
            .filter(|(_, client)| client.dirty.contains_key(&ino) && !(closed && writes(client)))
            .map(|(&other, _)| other)
            .collect()
    }

    /// Notes that somebody waits for a session to commit a file; returns the number of that question. Each has its own: what was committed for one before may
    /// be less than what was written until now.
    pub fn ask(&mut self, session: u64, ino: u64) -> u64 {
        self.questions += 1;
        let client = self.clients.get_mut(&session);
        client.into_iter().for_each(|client| client.asked.entry(ino).or_default().waiting += 1);
        self.questions
    }

    /// A session answered a question. What it says is taken in by `clean`.
    pub fn answer(&mut self, session: u64, ino: u64, question: u64) {
        let asked = self.clients.get_mut(&session).and_then(|client| client.asked.get_mut(&ino));
        asked.into_iter().for_each(|asked| asked.answered = question.max(asked.answered));
    }

    /// Whether a question is not answered, and something may be uncommitted still.
    pub fn is_asked(&self, session: u64, ino: u64, question: u64) -> bool {
        let client = self.clients.get(&session).filter(|client| client.dirty.contains_key(&ino));
        client.and_then(|client| client.asked.get(&ino)).is_some_and(|asked| asked.answered < question)
    }

    /// Somebody who asked waits no more.
    pub fn asked(&mut self, session: u64, ino: u64) {
        let Some(client) = self.clients.get_mut(&session) else { return };
        let Some(asked) = client.asked.get_mut(&ino) else { return };
        asked.waiting -= 1;
        if asked.waiting == 0 {
            client.asked.remove(&ino);
        }
    }

    /// Gives `length` bytes behind the end of a file, which is at `size` at least, to somebody; returns where they begin.
    pub fn reserve(&mut self, ino: u64, size: u64, length: u64) -> Option<u64> {
        let before = self.ends.get(&ino).copied().unwrap_or(0);
        let from = size.max(before);
        let end = from.checked_add(length).filter(|&end| end <= meta::MAX_SIZE)?;
        self.ends.insert(ino, end);
        Some(from)
    }

    /// A file is about to be cut off: until it is, nobody can tell where it ends. One cut of a file at a time.
    pub fn begin_cut(&mut self, ino: u64) {
        self.being_cut.insert(ino);
    }

    /// A file was cut off at this size; None if it could not be.
    pub fn end_cut(&mut self, ino: u64, size: Option<u64>) {
        self.being_cut.remove(&ino);
        self.cuts += 1;
        if let (Some(end), Some(size)) = (self.ends.get_mut(&ino), size) {
            *end = size.min(*end);
        }
    }

    /// Whether a file is being cut off: no place behind its end is given out then.
    pub fn is_being_cut(&self, ino: u64) -> bool {
        self.being_cut.contains(&ino)
    }

    /// How often files were cut off so far. A size that was read when there were fewer may be that of before.
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
        // Its requests wait until it is let in; that the answer to its beginning got lost changes nothing.
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

    /// A client that was told that it is alone is waited for, until it heard otherwise and what it told its kernel is over, or as long as it may believe it.
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
        // A third one waits for the same.
        let c = begin(&mut table, None, "c", at(210)).0;
        assert_eq!(table.unaware_of(c, at(210)), Some((believed, vec![a])));
        // Told is not heard: that is sure when it asks once more.
        assert_eq!(table.tell_of_others(a, at(215)), 2);
        assert_eq!(table.unaware_of(b, at(215)), Some((believed, vec![a])));
        assert_eq!(table.tell_of_others(a, at(220)), 2);
        let heard = at(220) + KERNEL_VALID_FOR;
        assert_eq!(table.unaware_of(b, at(220)), Some((heard, vec![a])));
        assert_eq!(table.unaware_of(b, heard), None);
        // Told again, it does not believe for longer what it was told before.
        assert_eq!(table.tell_of_others(a, at(300)), 2);
        assert_eq!(table.unaware_of(b, heard), None);
        // One that the server of before may have told so.
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
        // What it says by itself is no answer: it may write still. Nor is the answer to the first question one to the second.
        table.clean(a, &[(9, 1)]);
        assert!(table.is_asked(a, 9, first));
        table.answer(a, 9, first);
        assert!(!table.is_asked(a, 9, first) && table.is_asked(a, 9, second));
        table.answer(a, 9, second);
        assert!(!table.is_asked(a, 9, second));
        [0; 2].iter().for_each(|_| table.asked(a, 9));
        // One that comes too late is none to what is asked now.
        let third = table.ask(a, 9);
        table.answer(a, 9, second);
        assert!(table.is_asked(a, 9, third));
        // It is open for writing still: there may be more.
        assert_eq!(table.writers(b, 9, false), [a]);
        assert!(table.close(a, 9, 1));
        assert_eq!(table.writers(b, 9, true), [a]);
        assert!(table.is_asked(a, 9, third));
        table.clean(a, &[(9, 1)]);
        assert!(table.writers(b, 9, false).is_empty());
        assert!(!table.is_asked(a, 9, third), "nothing is uncommitted");
    }

    /// What was said before the file was opened or closed once more does not count for what was written since, though it arrives later.
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
        // One that comes later cannot know them. One that takes its session up may.
        let c = begin(&mut table, None, "c", start).0;
        table.set_aside(52);
        assert_eq!(table.note(c, 0, &[], &[]).1, [52]);
        let d = begin(&mut table, Some(6), "d", start).0;
        [a, b, c].iter().for_each(|&session| _ = table.note(session, last + 1, &[], &[]));
        assert!(table.take_settled().is_empty());
        table.note(d, u64::MAX, &[], &[]);
        assert_eq!(table.take_settled(), [52]);
        // What a kernel forgets goes when nobody else has it; what another session keeps it cannot give up.
        assert!(table.note(c, 0, &[], &[50]).2.is_empty());
        assert!(table.note(a, 0, &[], &[50]).2.is_empty());
        table.open(a, 50, 0);
        assert!(table.note(b, 0, &[], &[50]).2.is_empty());
        assert!(table.close(a, 50, 0));
        // A session that ends keeps nothing.
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
        // What was appended is not committed yet.
        assert_eq!(table.reserve(9, 3, 5), Some(10));
        table.clean(a, &[(9, 1)]);
        assert_eq!(table.reserve(9, 3, 5), Some(3));
    }
}
