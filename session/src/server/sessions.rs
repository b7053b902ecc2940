//! The sessions of the clients of a volume: how they begin, live and end.

use super::leases::{CLOSED, Leases, SESSIONS, SETS};
use super::table::{Left, Table};
use super::volume::Volume;
use crate::caller::{Caller, Secret};
use crate::port::Opening;
use crate::ranks::{RecallWays, ServerTicks};
use crate::transport::Recall;
use crate::{EXCLUSIVE_LEASE, KERNEL_VALID_FOR};
use ::volume::ranked::Ranked;
use meta::{Error, Result};
use plan::{Ino, SessionId, SetId};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The longest wait for a client to commit after a recall.
pub(super) const RECALL_TIMEOUT: Duration = Duration::from_secs(20);
/// How often to check whether other clients know of one that joins. Clocks do not differ by more
/// than this within that time.
const JOIN_CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// Pause after a cleanup that failed.
const CLEAN_UP_RETRY_INTERVAL: Duration = Duration::from_secs(10);
/// How often sessions are checked.
const SESSION_CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// A larger distance between two ticks means that this process was stopped.
const STALLED_AFTER: Duration = Duration::from_secs(3);

/// The sessions of the clients of a volume.
pub struct Sessions<V> {
    pub(super) volume: Arc<V>,
    pub(super) lease: Duration,
    pub(super) recalls: Ranked<HashMap<SessionId, Recall>, RecallWays>,
    ticks: Ranked<Ticks, ServerTicks>,
    began: Instant,
    /// The server ends: it no longer hears clients, and so it ends no sessions.
    stopped: AtomicBool,
    /// What the grace period kept, or a session that ended, is still there.
    to_clean_up: AtomicBool,
}

/// When this process last ran for certain, when the grace period ends, and when to clean up again
/// after that failed.
struct Ticks {
    last: Instant,
    grace_end: Instant,
    clean_up_from: Instant,
}

/// A session that has ended, until others may go on, also after a panic.
struct Goes<'a, V: Volume> {
    sessions: &'a Sessions<V>,
    session: SessionId,
}

impl<V: Volume> Drop for Goes<'_, V> {
    fn drop(&mut self) {
        let leases = self.sessions.leases();
        leases.changed.notify_all();
        leases.locks.lock().end(self.session);
        leases.unlocked.notify_all();
        self.sessions.recalls.lock().remove(&self.session);
    }
}

impl<V: Volume> Sessions<V> {
    /// Serves a volume that was opened to serve clients. The grace period lasts for one lease, or
    /// until all earlier sessions are reclaimed; only then is freed what no session holds.
    pub fn new(volume: Arc<V>, lease: Duration) -> Arc<Self> {
        volume.leases().table().set_lease(lease);
        let now = Instant::now();
        let ticks = Ranked::new(Ticks { last: now, grace_end: now + lease, clean_up_from: now });
        let (recalls, stopped, to_clean_up) = Default::default();
        Arc::new(Self { volume, lease, recalls, ticks, began: now, stopped, to_clean_up })
    }

    /// The volume.
    pub fn volume(&self) -> &Arc<V> {
        &self.volume
    }

    pub(super) fn leases(&self) -> &Leases {
        self.volume.leases()
    }

    /// The server begins to end. It may take long to answer its last requests and to commit, and
    /// meanwhile it hears no heartbeats: from now on no session ends because it is silent, and the
    /// grace period does not end. The next server decides.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        // Who is about to wait sees it.
        drop(self.leases().table());
        self.leases().changed.notify_all();
    }

    /// Tells all clients that this server answers no more requests: each looks for the next server
    /// now, and not with its next heartbeat. What a client may have open keeps others waiting until
    /// it has reclaimed that there.
    pub fn send_away(&self) {
        let recalls: Vec<Recall> = self.recalls.lock().values().cloned().collect();
        recalls.iter().for_each(|recall| recall(&[]));
    }

    /// Closes the volume after requests are no longer answered. The sessions stay, and the next
    /// server lets clients reclaim them. Returns the number of unreachable targets if nothing can
    /// be written without them and nothing is lost: the volume directory keeps what they miss until
    /// the next opening. 0 otherwise.
    ///
    /// # Errors
    /// When something could not be committed.
    pub fn close(&self) -> std::result::Result<usize, V::Error> {
        self.stop();
        if let Ok(meta) = self.volume.meta() {
            // Nothing more is answered, and closing makes everything durable. Without this setting,
            // clients of version 1 hear of a loss that may not have been one.
            let _ = meta.put_setting(CLOSED, &self.opening().number);
        }
        self.volume.close()
    }

    /// This opening of the volume.
    pub fn opening(&self) -> Opening {
        self.leases().opening()
    }

    /// Whether a session from before the start may still be reclaimed and was not reclaimed yet.
    pub fn awaits(&self, session: SessionId) -> bool {
        let table = self.leases().table();
        let is_of_before = self.leases().before.lock().contains(&session);
        is_of_before && !table.has(session)
    }

    /// How long a session lives without a heartbeat.
    pub fn lease(&self) -> Duration {
        self.lease
    }

    /// Whether there are several clients.
    pub fn has_several(&self) -> bool {
        self.leases().table().count() > 1
    }

    /// Until when, after a start, requests wait for clients that are not back.
    pub(super) fn waits_for_clients_until(&self) -> Instant {
        self.began + RECALL_TIMEOUT.min(self.lease)
    }

    /// The clients: session numbers and names.
    pub fn clients(&self) -> Vec<(SessionId, String)> {
        self.leases().table().names()
    }

    /// Whether a client has a file open.
    pub fn has_open(&self, ino: Ino) -> bool {
        self.leases().is_open(ino)
    }

    /// The number of the next session, and the sessions that live or may still be reclaimed.
    pub fn living(&self) -> (SessionId, Vec<SessionId>) {
        // A thread that reclaims a session holds the table.
        let table = self.leases().table();
        let (next, mut live) = table.living();
        live.extend(self.leases().before.lock().iter().filter(|session| !table.has(**session)));
        (next, live)
    }

    /// Authenticates a caller on the network, in a session or, with 0, one that wants to begin a
    /// session. `peer` is the name in its certificate. None when the session is not its own.
    pub fn caller(&self, session: SessionId, shown: &Secret, peer: Option<&str>) -> Option<Caller> {
        let opening = self.opening();
        Caller::verified(&self.leases().key.lock(), session, shown, peer.unwrap_or_default(), &opening)
    }

    fn has_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// Whether to wait on for other clients. After [`Self::stop`] nothing that a request waits for
    /// may come, and what it keeps open must be free for the next server.
    ///
    /// # Errors
    /// `Unavailable` when another server will answer.
    pub(super) fn goes_on(&self) -> Result<()> {
        if self.has_stopped() { Err(Error::Unavailable("this server gives the volume away".into())) } else { Ok(()) }
    }

    /// Calls `tick` on a thread of its own until these sessions are dropped or stopped. A second
    /// thread only notes that this process runs: a tick may wait long for targets.
    pub fn keep_ticking(self: &Arc<Self>) {
        let running =
            |sessions: &Self| _ = sessions.volume.beside("noting that the server runs", || sessions.note_running());
        for work in [Self::tick, running] {
            let weak = Arc::downgrade(self);
            std::thread::spawn(move || {
                while let Some(sessions) = weak.upgrade().filter(|sessions| !sessions.has_stopped()) {
                    work(&sessions);
                    drop(sessions);
                    std::thread::sleep(SESSION_CHECK_INTERVAL);
                }
            });
        }
    }

    /// Notes that this process runs. If it did not, or hardly, messages of clients were not
    /// received: their sessions count as heard, and the grace period is longer.
    fn note_running(&self) {
        let mut ticks = self.ticks.lock();
        let now = Instant::now();
        let since = now.saturating_duration_since(ticks.last);
        ticks.last = now;
        if since > STALLED_AFTER.min(self.lease / 2) {
            self.leases().table().hear_all(now);
            ticks.grace_end += since;
        }
    }

    /// Call this about every second.
    pub fn tick(&self) {
        if self.has_stopped() {
            return;
        }
        // A step that panics keeps no other from its turn.
        let running = || _ = self.volume.beside("noting that the server runs", || self.note_running());
        running();
        self.volume.beside("ending the grace period", || self.end_grace());
        self.volume.beside("cleaning up", || self.clean_up());
        self.volume.beside("letting removed files go", || self.let_go());
        self.volume.beside("looking for missing targets", || self.volume.rejoin_targets());
        running();
        let now = Instant::now();
        let overdue = self.volume.beside("looking for silent clients", || self.leases().table().overdue(now));
        for session in overdue.unwrap_or_default() {
            self.volume.beside("ending a session", || self.end_overdue(session, now));
        }
    }

    /// Ends the grace period if it is over. Clients wait for that, so it is called as soon as the
    /// last one from before is back or gone. What the period kept goes at the next tick.
    pub(super) fn end_grace(&self) {
        let now = Instant::now();
        let is_over = now > self.ticks.lock().grace_end || self.leases().before.lock().is_empty();
        // A session that is telling what it has is not cut short. It ends if it falls silent.
        let is_over = is_over && !self.leases().table().any_is_reclaiming(now);
        let Some(end) = is_over.then(|| self.leases().give_up_before()).flatten() else { return };
        self.to_clean_up.store(true, Ordering::SeqCst);
        // As in `leave`: the note comes before what others do then.
        if end.are_gone
            && let Err(error) = self.note_sessions(false)
        {
            self.volume.warn(&format!("cannot note which clients are gone: {error}"));
        }
    }

    /// Cleans up after the sessions that did not return in the grace period.
    fn clean_up(&self) {
        let is_due = || self.ticks.lock().clean_up_from <= Instant::now();
        if self.leases().is_in_grace() || !is_due() || !self.to_clean_up.swap(false, Ordering::SeqCst) {
            return;
        }
        if let Err(error) = self.note_sessions(true).and_then(|()| self.volume.clean_up()) {
            self.volume.warn(&format!("cannot clean up after clients that are gone: {error}"));
            self.ticks.lock().clean_up_from = Instant::now() + CLEAN_UP_RETRY_INTERVAL;
            self.to_clean_up.store(true, Ordering::SeqCst);
        }
    }

    /// Ends a session whose lease has expired, if that is still so.
    fn end_overdue(&self, session: SessionId, now: Instant) {
        let end = |table: &mut Table| if self.has_stopped() { None } else { table.end_overdue(session, now) };
        if let Some(left) = self.leave(session, end) {
            self.volume.warn(&format!("client {} is gone: its session ends", left.name));
        }
    }

    /// Ends a session that speaks again after its lease, if no tick has done it yet: others may
    /// have gone on without it.
    pub(super) fn expire(&self, session: SessionId) {
        let is_overdue = || self.leases().table().is_overdue(session, Instant::now());
        if is_overdue() {
            self.note_running();
            self.end_overdue(session, Instant::now());
        }
    }

    /// Stores the list of sessions; with `durable`, waits until it survives a crash.
    fn note_sessions(&self, durable: bool) -> Result<()> {
        let meta = self.volume.meta()?;
        let seq = {
            let _one_at_a_time = self.leases().noting.lock();
            let mut there = self.leases().before.lock().clone();
            there.extend(self.leases().table().names().into_iter().map(|(session, _)| session));
            meta.put_setting(SESSIONS, &there)?
        };
        if durable { meta.sync(seq) } else { Ok(()) }
    }

    /// Stores which sessions own which sets, so that after a crash no client gets the sets of
    /// another. It is durable with the next sync.
    pub(super) fn note_sets(&self) -> Result<()> {
        let meta = self.volume.meta()?;
        let _one_at_a_time = self.leases().noting.lock();
        let mut all = self.leases().owned.lock().clone();
        all.extend(self.leases().table().all_sets());
        meta.put_setting(SETS, &all)?;
        Ok(())
    }

    /// Of the sets that a session reclaims, those that it had before this server started. It gets
    /// no others. Full sets are among them: the client may not have committed all that is in them.
    ///
    /// # Errors
    /// When the metadata cannot be read at the moment, as when too few targets renew the claim. The
    /// client asks again: it must not take its sets for lost, with what it wrote to them.
    pub(super) fn owned(&self, session: SessionId, reclaimed: Vec<SetId>) -> Result<Vec<SetId>> {
        let leases = self.leases();
        if !leases.is_in_grace() || !leases.before.lock().contains(&session) {
            return Ok(Vec::new());
        }
        let owned = leases.owned.lock().get(&session).cloned().unwrap_or_default();
        let meta = self.volume.meta()?;
        let mut there = Vec::new();
        for set in reclaimed.into_iter().filter(|set| owned.contains(set)) {
            match meta.set(set) {
                Ok(_) => there.push(set),
                Err(meta::Error::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(there)
    }

    /// A client joins. Notifies a client that has the exclusive lease, and waits until its lease
    /// and its caches have expired or it has confirmed. Then admits the client, or, with
    /// `reclaims`, lets it tell what it has first.
    pub(super) fn join(&self, session: SessionId, reclaims: bool) {
        // This is durable no later than the first sets that the session gets.
        if let Err(error) = self.note_sessions(false) {
            self.volume.warn(&format!("cannot note who the clients are: {error}"));
        }
        self.wait_for_exclusive_leases_of_before();
        let mut notified = Vec::new();
        loop {
            let unaware = self.leases().table().unaware_of(session, Instant::now());
            let Some((until, unaware)) = unaware else { break };
            for other in unaware {
                if !notified.contains(&other) {
                    notified.push(other);
                    let recall = self.recalls.lock().get(&other).cloned();
                    recall.inspect(|recall| recall(&[]));
                }
            }
            std::thread::sleep(until.saturating_duration_since(Instant::now()).min(JOIN_CHECK_INTERVAL));
        }
        std::thread::sleep(JOIN_CHECK_INTERVAL);
        let mut table = self.leases().table();
        match reclaims {
            true => table.let_reclaim(session, Instant::now()),
            false => table.let_in(session, Instant::now()),
        }
    }

    /// A client that has not reconnected yet may have an exclusive lease from the earlier server:
    /// waits until all are back, and have said whether they have one, or until it would be over.
    fn wait_for_exclusive_leases_of_before(&self) {
        let leases = self.leases();
        let exclusive_end = self.began + EXCLUSIVE_LEASE + KERNEL_VALID_FOR + JOIN_CHECK_INTERVAL;
        let mut table = leases.table();
        loop {
            // A session that ends meanwhile leaves the list.
            let away = leases.before.lock().iter().any(|other| !table.has(*other));
            let left = exclusive_end.saturating_duration_since(Instant::now());
            if !away || left.is_zero() {
                return;
            }
            table = table.wait_timeout(&leases.changed, left);
        }
    }

    /// Ends a session, if `end` does, and cleans up after it.
    pub(super) fn leave(&self, session: SessionId, end: impl FnOnce(&mut Table) -> Option<Left>) -> Option<Left> {
        let left = {
            let _nobody_names = self.leases().naming.write();
            let mut table = self.leases().table();
            let left = end(&mut table)?;
            self.leases().before.lock().remove(&session);
            left
        };
        let goes = Goes { sessions: self, session };
        // Note the end before others go on, whose changes come after it then: otherwise the session
        // could come back after a crash, with its locks. And make it durable before anything is
        // freed: it would miss what it wrote.
        let noted = self.note_sessions(!left.sets.is_empty());
        drop(goes);
        for &ino in &left.closed {
            self.closed(ino);
        }
        let forgotten = noted.and_then(|()| self.volume.meta()?.forget_requests_of(session));
        if let Err(error) = forgotten.and_then(|()| self.take_back(&left.sets)) {
            self.volume.warn(&format!("cannot take back what client {} wrote to: {error}", left.name));
            self.to_clean_up.store(true, Ordering::SeqCst);
        }
        self.end_grace();
        Some(left)
    }

    /// Gives up sets that a client no longer writes to: frees what no transaction names.
    pub(super) fn take_back(&self, sets: &[SetId]) -> Result<()> {
        for &set in sets {
            match self.volume.abandon_set(set) {
                Ok(()) | Err(meta::Error::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
