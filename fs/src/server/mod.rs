//! Serving the metadata of a volume to clients, each in a session of its own.
//!
//! A client codes and writes its data itself, into chunk sets that were placed for it, and names it in transactions here. Data that it has not committed yet is
//! asked for when another client opens the file: who opens a file sees what others wrote before. A session that is silent for the time of its lease ends: its sets are sealed, its
//! openers are gone.

mod caller;
mod handle;
mod removed;
mod table;

use crate::mutex::lock;
pub use crate::session::Question;
use crate::session::locks;
use crate::session::{EXCLUSIVE_FOR, KERNEL_VALID_FOR};
use crate::{Error, FileSystem, Result};
pub use caller::{Caller, Secret};
pub(crate) use caller::{KEY, SETS, new_key};
use handle::Handle;
use meta::port;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};
use table::{Left, Table};

/// How long a client that was asked to commit is waited for.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often it is asked meanwhile: a message may be lost with its connection.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// Numbers of sessions that one opening of a volume gives out.
const SESSIONS_PER_OPENING: u64 = 1 << 32;

/// How often it is looked whether they know of one that joins; nobody's clock is off by so much in that time.
const LOOK: Duration = Duration::from_millis(10);

/// How often sessions are looked after.
const TICK: Duration = Duration::from_millis(500);
/// Ticks that are farther apart say that this process was stopped.
const STALL: Duration = Duration::from_secs(3);

/// The sessions that there are, as the metadata has it: after a crash they may come back, and others may not.
pub(crate) const SESSIONS: &str = "sessions";

/// Asks a client; without a question it is told that there are others.
pub type Recall = Arc<dyn Fn(&[Question]) + Send + Sync>;

/// Who has what, for those who look after the volume.
pub(crate) struct Leases {
    table: Mutex<Table>,
    changed: Condvar,
    locks: Mutex<locks::Locks>,
    unlocked: Condvar,
    /// The sessions of before a restart may still be taken up: nothing is given back meanwhile.
    in_grace: AtomicBool,
    /// Those that were there then, did not end and did not say what they have. What others had was given up before.
    before: Mutex<BTreeSet<u64>>,
    /// The sets that those had.
    owned: Mutex<BTreeMap<u64, BTreeSet<u64>>>,
    /// With what the numbers of sessions are signed.
    key: Mutex<[u8; 32]>,
    /// Held for reading by who names stripes of a session's sets in a transaction, for writing by who ends a session: what is given up is named no more.
    naming: RwLock<()>,
    /// Held by the one that notes which sessions there are.
    noting: Mutex<()>,
}

impl Default for Leases {
    fn default() -> Self {
        Self {
            table: Mutex::new(Table::new(Duration::MAX, 1)),
            changed: Condvar::new(),
            locks: Mutex::default(),
            unlocked: Condvar::new(),
            in_grace: AtomicBool::new(false),
            before: Mutex::default(),
            owned: Mutex::default(),
            key: Mutex::default(),
            naming: RwLock::default(),
            noting: Mutex::default(),
        }
    }
}

impl Leases {
    /// Begins with an opening of the volume, the how manieth that is. These sessions of before may be taken up, with the sets that they had.
    pub fn begin(&self, opening: u64, before: BTreeSet<u64>, mut owned: BTreeMap<u64, BTreeSet<u64>>) {
        owned.retain(|session, _| before.contains(session));
        *lock(&self.owned) = owned;
        *self.table() = Table::new(Duration::MAX, opening * SESSIONS_PER_OPENING + 1);
        self.in_grace.store(!before.is_empty(), Ordering::Relaxed);
        *lock(&self.before) = before;
    }

    /// Signs the numbers of sessions with this key.
    pub fn sign_with(&self, key: [u8; 32]) {
        *lock(&self.key) = key;
    }

    /// Sessions of before are not taken up any more.
    fn settle(&self) {
        // Whoever takes one up has the table.
        let _table = self.table();
        self.in_grace.store(false, Ordering::Relaxed);
        lock(&self.before).clear();
        lock(&self.owned).clear();
    }

    /// Naming stripes of a session's sets in a transaction: no session ends meanwhile.
    fn naming(&self) -> RwLockReadGuard<'_, ()> {
        self.naming.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        lock(&self.table)
    }

    /// Whether a client may still write to a set or name it in a transaction.
    pub fn is_held(&self, set: u64) -> bool {
        self.is_in_grace() || self.table().is_held(set)
    }

    /// Whether it is too early to say what clients have.
    pub fn is_in_grace(&self) -> bool {
        self.in_grace.load(Ordering::Relaxed)
    }
}

/// The sessions of the clients of a volume.
pub struct Sessions {
    fs: Arc<FileSystem>,
    lease: Duration,
    /// The start of this machine.
    start: u64,
    recalls: Mutex<HashMap<u64, Recall>>,
    ticks: Mutex<Ticks>,
    began: Instant,
    /// Nobody is heard any more.
    closed: AtomicBool,
}

/// When this process last looked after its clients, and until when those of before a restart may come back.
struct Ticks {
    last: Instant,
    settled: Instant,
}

/// An answer.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// The encoded result.
    Done(Vec<u8>),
    /// There is no such session: it must be taken up first.
    NoSession,
    /// There is no such operation.
    Unknown,
}

/// What an answer lets a client do: whoever guards the chunks may have it prove that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Grant {
    /// With this chunk set.
    pub set: u64,
    /// Append to it too, and not only read.
    pub write: bool,
}

/// Which request something is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Request {
    /// Its number in its session; 0 for one that does not come again.
    pub number: u64,
    /// All below were answered.
    pub answered: u64,
    /// It may have been carried out before the server was killed, and is not carried out twice then.
    pub again: bool,
}

impl Sessions {
    /// Serves a volume that was opened with [`OpenOptions::serve`](crate::OpenOptions::serve). Sessions of before may be taken up for the time of a
    /// lease; only then, or when all of them are, is taken away what nobody has. `start` is another number whenever the machine was started that has what is
    /// not durable yet: its clients hear that it may be lost.
    pub fn new(fs: Arc<FileSystem>, lease: Duration, start: u64) -> Arc<Self> {
        fs.leases.table().set_lease(lease);
        let now = Instant::now();
        let ticks = Mutex::new(Ticks { last: now, settled: now + lease });
        Arc::new(Self {
            fs,
            lease,
            start,
            recalls: Mutex::default(),
            ticks,
            began: now,
            closed: AtomicBool::new(false),
        })
    }

    /// The volume.
    pub fn volume(&self) -> &Arc<FileSystem> {
        &self.fs
    }

    /// Closes the volume when requests are not answered any more. The sessions stay as they are, for the next server to take up. Returns how many targets
    /// cannot be reached if these are too many to write to, and nothing is lost by that: what they lack is in the volume directory until the next opening.
    ///
    /// # Errors
    /// When something could not be committed.
    pub fn close(&self) -> Result<usize> {
        self.closed.store(true, Ordering::SeqCst);
        match self.fs.shut(false) {
            Ok(()) => Ok(0),
            Err(why) => self.fs.left_behind().ok_or(why),
        }
    }

    /// How long a client that is silent is believed to live.
    pub fn lease(&self) -> Duration {
        self.lease
    }

    /// Whether there is more than one client.
    pub fn has_several(&self) -> bool {
        self.fs.leases.table().count() > 1
    }

    /// The clients: the numbers of their sessions, and their names.
    pub fn clients(&self) -> Vec<(u64, String)> {
        self.fs.leases.table().names()
    }

    /// The number of the next session, and those that live; None as long as some of before a restart may come back.
    pub fn living(&self) -> Option<(u64, Vec<u64>)> {
        if self.fs.leases.is_in_grace() {
            return None;
        }
        Some(self.fs.leases.table().living())
    }

    /// Who asks in a session, or, with 0, for one, over the network: `peer` is the name in its certificate. None when the session is not its own.
    pub fn caller(&self, session: u64, shown: &Secret, peer: Option<&str>) -> Option<Caller> {
        Caller::verified(&lock(&self.fs.leases.key), session, shown, peer.unwrap_or_default())
    }

    /// Carries out what a client of this process asks, in its session; the first thing it asks is for one. May take long: it waits for other clients.
    pub fn answer(self: &Arc<Self>, session: Option<u64>, recall: &Recall, operation: u16, arguments: &[u8]) -> Answer {
        self.answer_request(&Caller::trusted(session), recall, operation, arguments, Request::default()).0
    }

    /// As `answer`, of a request that may come again. Says also what the client may do with chunk sets that it hears of.
    pub fn answer_request(
        self: &Arc<Self>,
        caller: &Caller,
        recall: &Recall,
        operation: u16,
        arguments: &[u8],
        request: Request,
    ) -> (Answer, Vec<Grant>) {
        let session = caller.session;
        let handle = Handle {
            sessions: self.clone(),
            session: session.unwrap_or(0),
            peer: caller.peer.clone(),
            recall: recall.clone(),
            request,
            granted: Mutex::default(),
        };
        let begins = operation == port::BEGIN;
        if !begins && !session.is_some_and(|session| self.fs.leases.table().hear(session, Instant::now())) {
            return (Answer::NoSession, Vec::new());
        }
        let answer = port::answer(&handle, operation, arguments)
            .or_else(|| port::answer_session(&handle, operation, arguments))
            .map_or(Answer::Unknown, Answer::Done);
        (answer, handle.granted())
    }

    /// Calls `tick` for as long as somebody has these, on a thread of its own.
    pub fn keep_ticking(self: &Arc<Self>) {
        let weak = Arc::downgrade(self);
        std::thread::spawn(move || {
            while let Some(sessions) = weak.upgrade().filter(|sessions| !sessions.closed.load(Ordering::SeqCst)) {
                sessions.tick();
                drop(sessions);
                std::thread::sleep(TICK);
            }
        });
    }

    /// To be called every second or so.
    pub fn tick(&self) {
        self.fs.beside("looking after clients", || self.look_after());
    }

    fn look_after(&self) {
        let now = Instant::now();
        let settled = {
            let mut ticks = lock(&self.ticks);
            let since = now.saturating_duration_since(ticks.last);
            ticks.last = now;
            if since > STALL.min(self.lease / 2) {
                // This process did not run, or hardly: what clients said meanwhile was not heard, which is no silence of theirs.
                self.fs.leases.table().hear_all(now);
                ticks.settled += since;
            }
            now > ticks.settled || lock(&self.fs.leases.before).is_empty()
        };
        if self.fs.leases.is_in_grace() && settled {
            self.fs.leases.settle();
            if let Err(error) = self.note_sessions(true).and_then(|()| self.fs.clean_up()) {
                self.fs.volume.warn(&format!("cannot take away what clients of before left: {error}"));
            }
        }
        self.fs.let_go_after_grace();
        self.fs.rejoin_targets();
        let overdue = self.fs.leases.table().overdue(now);
        for session in overdue {
            if let Some(left) = self.leave(session, |table| table.end_overdue(session, now)) {
                self.fs.volume.warn(&format!("client {} is gone: its session ends", left.name));
            }
        }
    }

    /// Has the metadata say which sessions there are; with `durable`, waits until that survives a crash.
    fn note_sessions(&self, durable: bool) -> Result<()> {
        let engine = self.fs.engine()?;
        let seq = {
            let _one_at_a_time = lock(&self.fs.leases.noting);
            let mut there = lock(&self.fs.leases.before).clone();
            there.extend(self.fs.leases.table().names().into_iter().map(|(session, _)| session));
            engine.meta.put_setting(SESSIONS, &there)?
        };
        if durable { Ok(engine.meta.sync(seq)?) } else { Ok(()) }
    }

    /// Has the metadata say whose the sets are that sessions write to, so that after a crash nobody gets those of others. Durable with the next sync.
    fn note_sets(&self) -> Result<()> {
        let engine = self.fs.engine()?;
        let _one_at_a_time = lock(&self.fs.leases.noting);
        let mut all = lock(&self.fs.leases.owned).clone();
        all.extend(self.fs.leases.table().all_sets());
        engine.meta.put_setting(SETS, &all)?;
        Ok(())
    }

    /// The sets of those that a session says to have which it had before this server was started. It gets no others.
    fn owned(&self, session: u64, told: Vec<u64>) -> Vec<u64> {
        let leases = &self.fs.leases;
        if !leases.is_in_grace() || !lock(&leases.before).contains(&session) {
            return Vec::new();
        }
        let owned = lock(&leases.owned).get(&session).cloned().unwrap_or_default();
        let is_open = |set: &u64| {
            let record = self.fs.engine().ok().and_then(|engine| engine.meta.set(*set).ok());
            record.is_some_and(|record| !record.sealed)
        };
        told.into_iter().filter(|set| owned.contains(set) && is_open(set)).collect()
    }

    /// A client joins. One that was alone until now hears of it, and what it believed meanwhile is waited for.
    fn join(&self, session: u64) {
        // Durable no later than the first sets that it gets.
        if let Err(error) = self.note_sessions(false) {
            self.fs.volume.warn(&format!("cannot note who the clients are: {error}"));
        }
        // Those that did not come back yet may have been told by the server of before that they are alone.
        if lock(&self.fs.leases.before).iter().any(|other| *other != session) {
            let believed = self.began + EXCLUSIVE_FOR + KERNEL_VALID_FOR + LOOK;
            std::thread::sleep(believed.saturating_duration_since(Instant::now()));
        }
        let mut told = Vec::new();
        loop {
            let unaware = self.fs.leases.table().unaware_of(session, Instant::now());
            let Some((until, unaware)) = unaware else { break };
            for other in unaware {
                if !told.contains(&other) {
                    told.push(other);
                    let recall = lock(&self.recalls).get(&other).cloned();
                    recall.inspect(|recall| recall(&[]));
                }
            }
            std::thread::sleep(until.saturating_duration_since(Instant::now()).min(LOOK));
        }
        std::thread::sleep(LOOK);
        self.fs.leases.table().let_in(session, Instant::now());
    }

    /// Ends a session, if `end` does, and takes care of what it leaves.
    fn leave(&self, session: u64, end: impl FnOnce(&mut Table) -> Option<Left>) -> Option<Left> {
        let left = {
            let _nobody_names = self.fs.leases.naming.write().unwrap_or_else(PoisonError::into_inner);
            end(&mut self.fs.leases.table())?
        };
        lock(&self.fs.leases.before).remove(&session);
        self.fs.leases.changed.notify_all();
        lock(&self.fs.leases.locks).end(session);
        self.fs.leases.unlocked.notify_all();
        lock(&self.recalls).remove(&session);
        for &ino in &left.closed {
            self.closed(ino);
        }
        // It must not come back after a crash, and find what it wrote, before anything of that is taken away.
        let noted = self.note_sessions(!left.sets.is_empty());
        if let Err(error) = noted.and_then(|()| self.take_back(&left.sets)) {
            self.fs.volume.warn(&format!("cannot take back what client {} wrote to: {error}", left.name));
        }
        Some(left)
    }

    /// Sets that a client does not write to any more: what no transaction names of them is given back.
    fn take_back(&self, sets: &[u64]) -> Result<()> {
        for &set in sets {
            match self.fs.abandon_set(set) {
                Ok(()) | Err(Error::Meta(meta::Error::NotFound)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Has other clients commit what they wrote to a file, and waits until they did; with `closed`, only clients that have closed it.
    /// One that does not answer is not waited for longer than its lease.
    fn recall(&self, session: u64, ino: u64, closed: bool) {
        let leases = &self.fs.leases;
        let mut table = leases.table();
        let writers = table.writers(session, ino, closed);
        let asked: Vec<(u64, u64)> = writers.into_iter().map(|writer| (writer, table.ask(writer, ino))).collect();
        let (mut silent, mut next) = (asked.clone(), Instant::now());
        let end = next + PATIENCE.min(self.lease);
        loop {
            silent.retain(|&(writer, question)| table.is_asked(writer, ino, question));
            let now = Instant::now();
            if silent.is_empty() || now >= end {
                break;
            }
            if now >= next {
                drop(table);
                for (writer, question) in &silent {
                    let recall = lock(&self.recalls).get(writer).cloned();
                    recall.inspect(|recall| recall(&[(ino, *question)]));
                }
                next = now + ASK_AGAIN;
                table = leases.table();
                continue;
            }
            (table, _) =
                leases.changed.wait_timeout(table, next.min(end) - now).unwrap_or_else(PoisonError::into_inner);
        }
        asked.iter().for_each(|(writer, _)| table.asked(*writer, ino));
        let names = table.names();
        drop(table);
        for (writer, name) in names {
            if silent.iter().any(|(other, _)| *other == writer) {
                self.fs.volume.warn(&format!(
                    "client {name} did not commit inode {ino} when another asked: that one sees what was committed before"
                ));
            }
        }
    }
}
