//! The operations of a session: its life, its chunk sets, open files, append reservations and
//! locks.

use super::Handle;
use crate::caller;
use crate::port::{Entered, Entry, FileLock, Heartbeat, Held, Session, VERSION, Welcome};
use crate::server::Volume;
use crate::server::table::files::Whose;
use meta::{Attributes, Error, Result, SetRecord};
use plan::{Ino, SessionId, SetId, TargetId, TxId};
use std::time::{Duration, Instant};

/// The most sets that one request gets.
const MAX_SETS_PER_REQUEST: u32 = 16;
/// How long a request waits for a lock. Then the client sends it again, unless the waiting program
/// was interrupted.
const LOCK_WAITS: Duration = Duration::from_millis(500);
/// The most locks of a session. Each request scans all locks of its file.
const MAX_LOCKS: usize = 1 << 14;
/// The longest name of a client, in bytes.
const MAX_NAME_BYTES: usize = 255;
/// The longest append, in bytes.
const MAX_APPEND_BYTES: u64 = 4 << 30;

impl<V: Volume> Handle<V> {
    /// Begins a session or reclaims one; see [`Session`]. With `tells`, the client is admitted when
    /// it has told what it has.
    fn let_enter(&self, entry: &Entry, tells: bool) -> Result<Welcome> {
        let volume = &self.sessions.volume;
        let session = entry.session;
        if entry.name.len() > MAX_NAME_BYTES {
            return Err(Error::NameTooLong);
        }
        if session.is_some_and(|session| session != self.session) {
            return Err(Error::Unavailable("the session belongs to another client".into()));
        }
        // The sets of other sessions were given up.
        let own = session.map_or_else(|| Ok(Vec::new()), |session| self.sessions.owned(session, entry.sets.clone()))?;
        let (session, fresh, kept, lapsed) = {
            let mut table = volume.leases().table();
            // An ended session stays ended: work that its client began in it is not accepted in
            // another session.
            let lives = |number: SessionId| {
                table.has(number) || volume.leases().is_in_grace() && volume.leases().before.lock().contains(&number)
            };
            let lapsed = session.is_some_and(|number| table.was_given_out(number) && !lives(number));
            if session.is_none_or(|_| lapsed) && !table.admits(&self.peer) {
                return Err(Error::Unavailable(format!(
                    "{} has as many sessions with the metadata server as a member may have: end some mounts or jobs, \
                     or make more members (weft cluster init)",
                    self.peer
                )));
            }
            let begun = table.begin(session.filter(|_| !lapsed), &entry.name, entry.alone, Instant::now());
            let (session, fresh) =
                begun.ok_or_else(|| Error::Unavailable("a session of that number was never given out".into()))?;
            table.belongs(session, &self.peer);
            // Hold the sets at once: other requests of the client may arrive before its next
            // message. Do not hold sets that were given up because the client had not reclaimed
            // them in time.
            if volume.leases().is_in_grace() && !lapsed {
                table.hold(session, own);
            }
            (session, fresh, table.sets(session), lapsed)
        };
        volume.leases().changed.notify_all();
        self.grant_held(session);
        self.sessions.recalls.lock().insert(session, self.recall.clone());
        if fresh {
            self.sessions.join(session, tells);
        }
        let secret = caller::secret(&volume.leases().key.lock(), session, &self.peer);
        Ok(Welcome {
            session,
            secret,
            fresh,
            lapsed,
            label: volume.label(),
            first_stripe: volume.first_stripe(session),
            start: volume.leases().openings.lock().lossy(),
            lease_ms: u32::try_from(self.sessions.lease.as_millis()).unwrap_or(u32::MAX),
            kept,
        })
    }

    /// The session holds exactly these locks. Returns those that others are in the way of.
    fn lock_exactly(&self, wanted: Vec<(Ino, FileLock)>) -> Vec<(Ino, FileLock)> {
        let mut locks = self.sessions.leases().locks.lock();
        locks.end(self.session);
        let mut refused = Vec::new();
        for (ino, wanted) in wanted {
            if locks.held(self.session) >= MAX_LOCKS || !locks.lock(ino, self.own_lock(&wanted)) {
                refused.push((ino, wanted));
            }
        }
        refused
    }
}

impl<V: Volume> Session for Handle<V> {
    fn begin(&self, session: Option<SessionId>, name: String, sets: Vec<SetId>) -> Result<Welcome> {
        let entry = Entry { session, name, sets, alone: true, ..Entry::default() };
        self.let_enter(&entry, false)
    }

    fn enter(&self, version: u16, entry: &Entry) -> Result<Entered> {
        if version != VERSION {
            let ours = VERSION - 1;
            let why = format!(
                "the client speaks version {version} of the messages of a session, this metadata server {ours} and \
                 {VERSION}: update the older one"
            );
            return Err(Error::Invalid(why.into()));
        }
        let welcome = self.let_enter(entry, entry.session.is_some())?;
        self.sessions.leases().table().can_drop(welcome.session);
        let openings = self.sessions.leases().openings.lock();
        Ok(Entered { welcome, opening: openings.current(), recovered: openings.recovered(&entry.opening) })
    }

    fn reclaim(&self, part: u32, last: bool, held: &Held) -> Result<Vec<(Ino, FileLock)>> {
        let leases = self.sessions.leases();
        let Some(held) = leases.table().collect(self.session, part, last, held)? else { return Ok(Vec::new()) };
        leases.table().reclaim(self.session, &held);
        let refused = self.lock_exactly(held.locks);
        leases.table().complete_reclaim(self.session);
        leases.before.lock().remove(&self.session);
        leases.table().let_in(self.session, Instant::now());
        self.sessions.end_grace();
        leases.changed.notify_all();
        leases.unlocked.notify_all();
        Ok(refused)
    }

    fn heartbeat(&self) -> Result<Heartbeat> {
        let volume = &self.sessions.volume;
        // The connection on which the session began may be closed.
        self.sessions.recalls.lock().insert(self.session, self.recall.clone());
        self.grant_held(self.session);
        let (others, removed) = {
            let mut table = volume.leases().table();
            (table.tell_of_others(self.session, Instant::now()) as u32, table.last_removal())
        };
        let (total, free) = volume.space();
        Ok(Heartbeat { total, free, generation: volume.generation(), others, removed })
    }

    fn end(&self) -> Result<()> {
        self.sessions.leave(self.session, |table| Some(table.end(self.session)));
        Ok(())
    }

    fn new_sets(&self, count: u32, avoid: &[TargetId], known: &[SetId]) -> Result<Vec<(SetId, SetRecord)>> {
        let volume = &self.sessions.volume;
        let mut unknown = volume.leases().table().sets(self.session);
        unknown.retain(|set| !known.contains(set));
        self.release_sets(&unknown)?;
        // A client writes to several sets at a time: all targets should work for it.
        let mut beside: Vec<Vec<Option<TargetId>>> = Vec::new();
        let held = volume.leases().table().sets(self.session);
        for set in held {
            let record = self.meta()?.set(set)?;
            if !record.sealed {
                beside.push(record.places);
            }
        }
        let mut new = Vec::new();
        for _ in 0..count.clamp(1, MAX_SETS_PER_REQUEST) {
            if !volume.leases().table().may_hold_more(self.session) {
                if new.is_empty() {
                    return Err(Error::Unavailable("this client, or its member, has too many chunk sets".into()));
                }
                break;
            }
            match volume.place_set(avoid, &beside, &|set| volume.leases().table().hold(self.session, [set])) {
                Ok((set, record)) => {
                    beside.push(record.places.clone());
                    new.push((set, record));
                }
                Err(error) if new.is_empty() => return Err(error),
                Err(_) => break,
            }
        }
        // A client writes to the sets for a long time. The sets and their owner must survive a
        // crash.
        self.sessions.note_sets()?;
        self.meta()?.sync(TxId::MAX)?;
        self.grant(new.iter().map(|(set, _)| *set), true);
        Ok(new)
    }

    fn release_sets(&self, sets: &[SetId]) -> Result<()> {
        let released = self.sessions.leases().table().release(self.session, sets);
        if !released.is_empty() {
            // Before anything in them is freed: after a crash the session does not get them back.
            self.sessions.note_sets()?;
        }
        self.sessions.take_back(&released)
    }

    fn open(&self, ino: Ino, writes: u64) -> Result<Attributes> {
        // Count first: a removal or an append in between then sees that the file is open.
        self.count_open(ino, writes)?;
        self.wait_for_others()?;
        self.sessions.await_commits(self.session, ino, Whose::All, writes > 0)?;
        let found = self.meta()?.attributes(ino);
        if found.is_err() {
            let _ = Session::close(self, ino, 0);
        }
        found
    }

    fn close(&self, ino: Ino, wrote: u64) -> Result<()> {
        if self.sessions.leases().table().close(self.session, ino, wrote) {
            self.sessions.closed(ino);
        }
        Ok(())
    }

    fn clean(&self, files: &[(Ino, u64)]) -> Result<()> {
        self.sessions.leases().table().clean(self.session, files);
        self.sessions.leases().changed.notify_all();
        Ok(())
    }

    fn recalled(&self, ino: Ino, number: u64, question: u64) -> Result<()> {
        self.sessions.leases().table().answer(self.session, ino, number, question);
        self.sessions.leases().changed.notify_all();
        Ok(())
    }

    fn reclaim_open(&self, ino: Ino, writes: u64) -> Result<()> {
        self.sessions.leases().table().open(self.session, ino, writes);
        Ok(())
    }

    fn reclaim_append(&self, ino: Ino, end: u64) -> Result<()> {
        self.sessions.leases().table().reserve(self.session, ino, end, 0).map(drop).ok_or(Error::TooLarge)
    }

    fn reserve_append(&self, ino: Ino, length: u64) -> Result<u64> {
        if length > MAX_APPEND_BYTES {
            return Err(Error::TooLarge);
        }
        // Clients from before a restart may have reservations that this server does not know yet.
        self.wait_for_grace_end()?;
        let leases = self.sessions.leases();
        loop {
            let cuts = leases.table().cuts();
            let size = self.meta()?.attributes(ino)?.size;
            let mut table = leases.table();
            // The size may be from before a truncation.
            if table.cuts() == cuts && !table.is_being_cut(ino) {
                return table.reserve(self.session, ino, size, length).ok_or(Error::TooLarge);
            }
            while table.is_being_cut(ino) {
                table = table.wait(&leases.changed);
            }
        }
    }

    fn lock(&self, ino: Ino, wanted: FileLock, wait: bool) -> Result<bool> {
        let leases = self.sessions.leases();
        // Clients from before a restart may have locks that this server does not know yet. A client
        // that is reclaiming its own is not delayed.
        if !leases.before.lock().contains(&self.session) {
            self.wait_for_grace_end()?;
        }
        let end = Instant::now() + if wait { LOCK_WAITS } else { Duration::ZERO };
        let mut locks = leases.locks.lock();
        loop {
            // Check while the lock table is locked: the end of a session removes its locks
            // afterwards.
            self.still_lives()?;
            let own = self.own_lock(&wanted);
            // The lock adds one at least, unless it replaces existing ones, as when a client
            // reclaims again.
            if locks.held(self.session) + 2 > MAX_LOCKS && locks.held_with(ino, &own) > MAX_LOCKS {
                return Err(Error::TooManyLocks);
            }
            if locks.lock(ino, own) {
                drop(locks);
                self.sessions.await_commits(self.session, ino, Whose::Owed, wanted.exclusive)?;
                return Ok(true);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            locks = locks.wait_timeout(&leases.unlocked, left);
        }
    }

    fn unlock(&self, ino: Ino, owner: u64, first: u64, last: u64) -> Result<()> {
        if first > last {
            return Err(Error::Invalid("a range that ends before it begins".into()));
        }
        let mut locks = self.sessions.leases().locks.lock();
        let (owner, range) = ((self.session, owner), first..=last);
        if locks.held(self.session) >= MAX_LOCKS && locks.splits(ino, owner, &range) {
            return Err(Error::TooManyLocks);
        }
        locks.unlock(ino, owner, &range);
        drop(locks);
        self.sessions.leases().unlocked.notify_all();
        Ok(())
    }

    fn unlock_owing(&self, ino: Ino, owner: u64, first: u64, last: u64, number: u64) -> Result<()> {
        self.sessions.leases().table().owe(self.session, ino, number);
        self.unlock(ino, owner, first, last)
    }

    fn dropped(&self, files: &[Ino]) -> Result<()> {
        let any = self.sessions.leases().table().dropped(self.session, files);
        if any && let Err(error) = self.sessions.note_superseded(false) {
            self.sessions.volume.warn(&format!("cannot note that nothing is superseded any more: {error}"));
        }
        Ok(())
    }

    fn conflicting_lock(&self, ino: Ino, wanted: FileLock) -> Result<Option<FileLock>> {
        let locks = self.sessions.leases().locks.lock();
        Ok(locks.conflict(ino, &self.own_lock(&wanted)).map(|found| FileLock {
            owner: found.owner.1,
            first: *found.range.start(),
            last: *found.range.end(),
            exclusive: found.exclusive,
            // Process numbers of other machines mean nothing here.
            process: if found.owner.0 == self.session { found.process } else { 0 },
        }))
    }

    fn removed(&self, after: u64, kept: &[Ino], forgotten: &[Ino]) -> Result<(u64, Vec<Ino>)> {
        Ok(self.sessions.note(self.session, after, kept, forgotten))
    }

    fn reclaim_complete(&self) -> Result<()> {
        self.sessions.leases().table().complete_reclaim(self.session);
        self.sessions.leases().before.lock().remove(&self.session);
        Ok(())
    }

    fn label(&self) -> Result<String> {
        self.grant_held(self.session);
        Ok(self.sessions.volume.label())
    }
}
