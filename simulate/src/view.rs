//! A store as one process sees it: over the network, with what `cluster::RemoteTarget` does when
//! the store's machine was started again.

use crate::network::{Host, Network};
use crate::store::Store;
use plan::{SessionId, SetId};
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::Duration;
use volume::lock;
use volume::target::{
    Allocation, ClaimRequest, ClaimState, Crash, Durable, Owner, Presence, ReadPart, Space, Target, TargetFile, Wait,
    look_by_reading, timed,
};
use world::Process;

/// How long an operation without an answer takes, unless somebody says otherwise.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(14);
/// How long it takes to learn that no process listens.
const REFUSAL_DELAY: Duration = Duration::from_millis(5);

/// A store as a process sees it.
pub struct View {
    pub store: Arc<Store>,
    /// Its disk with the claim of this process.
    disk: Arc<Crash>,
    timeout: Duration,
    /// After silence, the next request needs a new connection, so an answer.
    is_silent: AtomicBool,
    pub network: Arc<Network>,
    pub host: Host,
    /// The session of the client whose view this is; None for servers.
    pub session: Option<Arc<AtomicU64>>,
    /// The session in which each chunk set was written first.
    sets: Mutex<BTreeMap<SetId, SessionId>>,
    /// Files with data that is not synced, and the store's boot at the time of the write.
    unsynced: Mutex<BTreeMap<TargetFile, u64>>,
    /// With a broken rule: the claim that was made here once, which is shown from then on.
    remembered: Option<Mutex<Option<ClaimState>>>,
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "store {} of {:?}", self.store.number, self.host)
    }
}

impl View {
    pub fn new(store: &Arc<Store>, network: &Arc<Network>, host: Host, session: Option<Arc<AtomicU64>>) -> Arc<Self> {
        let disk = Arc::new(store.disk.open_again());
        Arc::new(Self::of(store, disk, network, host, session, OPERATION_TIMEOUT))
    }

    /// A view through a disk that was opened by somebody.
    pub fn of(
        store: &Arc<Store>,
        disk: Arc<Crash>,
        network: &Arc<Network>,
        host: Host,
        session: Option<Arc<AtomicU64>>,
        timeout: Duration,
    ) -> Self {
        let (store, network, is_silent) = (store.clone(), network.clone(), AtomicBool::new(false));
        let (sets, unsynced) = (Mutex::default(), Mutex::default());
        Self { store, disk, timeout, is_silent, network, host, session, sets, unsynced, remembered: None }
    }

    /// Breaks a rule: who has made a claim here does not look at it again.
    pub fn remembering(self) -> Self {
        Self { remembered: Some(Mutex::default()), ..self }
    }

    /// Carries out an operation on the store; it takes the disk `takes` microseconds.
    fn ask<T>(&self, takes: u64, operation: impl FnOnce(&Store) -> io::Result<T>) -> io::Result<T> {
        let there = Host::Store(self.store.number);
        world::live();
        let is_new = self.is_silent.load(Ordering::SeqCst);
        if is_new && !(self.network.send(self.host, there) && self.network.send(there, self.host)) {
            return self.silence();
        }
        self.is_silent.store(false, Ordering::SeqCst);
        if !self.network.send(self.host, there) {
            return self.silence();
        }
        if self.store.faults().down {
            sleep(REFUSAL_DELAY);
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let takes = world::roll(|dice| if dice.one_in(50) { takes * dice.within(1..50) } else { takes });
        sleep(Duration::from_micros(takes) + self.store.faults().slow);
        if self.store.faults().down {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        // The request is on its way, whatever happened to its sender. But a thread of the sender
        // does this, and a dead process does nothing.
        world::live();
        let done = world::atomically(|| operation(&self.store));
        if !self.network.send(there, self.host) {
            return self.silence();
        }
        done
    }

    fn silence<T>(&self) -> io::Result<T> {
        self.is_silent.store(true, Ordering::SeqCst);
        sleep(self.timeout);
        Err(io::Error::new(io::ErrorKind::TimedOut, "the store does not answer"))
    }

    /// As `ask`, for what changes a file. `unsynced` says whether the file has something unsynced
    /// then.
    fn change(
        &self,
        file: TargetFile,
        takes: u64,
        unsynced: bool,
        operation: impl FnOnce(&Store) -> io::Result<()>,
    ) -> io::Result<()> {
        let boot = self.ask(takes, |store| {
            self.is_admitted(file)?;
            operation(store).map(|()| store.boot())
        })?;
        let before = world::atomically(|| {
            let mut all = lock(&self.unsynced);
            if unsynced { all.insert(file, boot) } else { all.remove(&file) }
        });
        if before.is_some_and(|before| before != boot) {
            return Err(io::Error::other("its machine was started again: what was not synced may be lost"));
        }
        Ok(())
    }

    /// A write of a client on a connection that is cut: it may arrive when no caller waits for it
    /// any more, if the store was not restarted.
    fn write_late(&self, file: TargetFile, offset: u64, parts: &[IoSlice<'_>]) {
        let late = world::roll(|dice| dice.one_in(3).then(|| Duration::from_millis(dice.below(12_000))));
        let (Some(late), Some(session), TargetFile::Chunk { set, .. }) = (late, &self.session, file) else { return };
        let now = SessionId(session.load(Ordering::SeqCst));
        let began = *lock(&self.sets).entry(set).or_insert(now);
        let bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        let (store, boot) = (self.store.clone(), self.store.boot());
        Process::first().spawn(move || {
            sleep(late);
            if store.boot() == boot && !store.faults().down && store.admits(began) {
                _ = world::atomically(|| store.disk.write(file, offset, &[IoSlice::new(&bytes)], Durable::Later));
            }
        });
    }

    /// The fence: a client writes in a session that lives.
    fn is_admitted(&self, file: TargetFile) -> io::Result<()> {
        let Some(session) = &self.session else { return Ok(()) };
        let TargetFile::Chunk { set, .. } = file else { return Ok(()) };
        let now = SessionId(session.load(Ordering::SeqCst));
        let began = *lock(&self.sets).entry(set).or_insert(now);
        match self.store.admits(began) {
            true => Ok(()),
            false => Err(io::Error::new(io::ErrorKind::PermissionDenied, "the session has ended")),
        }
    }

    fn sync_file(&self, store: &Store, file: TargetFile) -> io::Result<()> {
        if store.faults().unsynced {
            Err(io::Error::other("the disk cannot sync"))
        } else {
            store.sync(&self.disk, file)
        }
    }

    fn needs_space(store: &Store) -> io::Result<()> {
        if store.faults().full { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

impl Target for View {
    fn write(&self, file: TargetFile, offset: u64, parts: &[IoSlice<'_>], durable: Durable) -> io::Result<Duration> {
        timed(|| match durable {
            Durable::Later => {
                let done = self.change(file, 40, true, |store| {
                    Self::needs_space(store)?;
                    self.disk.write(file, offset, parts, Durable::Later).map(drop)
                });
                if done.as_ref().is_err_and(|why| why.kind() == io::ErrorKind::TimedOut) {
                    self.write_late(file, offset, parts);
                }
                done
            }
            Durable::Now => self.change(file, 400, false, |store| {
                Self::needs_space(store)?;
                self.disk.write(file, offset, parts, Durable::Later)?;
                self.sync_file(store, file)
            }),
        })
    }

    fn read(&self, file: TargetFile, parts: &mut [ReadPart<'_>], wait: Wait) -> io::Result<()> {
        wait.refuse_limit()?;
        self.ask(60, |_| self.disk.read(file, parts, wait))
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn sync(&self, file: TargetFile) -> io::Result<Duration> {
        timed(|| self.change(file, 400, false, |store| self.sync_file(store, file)))
    }

    fn allocate(&self, file: TargetFile, change: Allocation) -> io::Result<()> {
        match change {
            Allocation::Reserve(_) => self.ask(20, |store| {
                Self::needs_space(store)?;
                self.disk.allocate(file, change)
            }),
            Allocation::Trim => Ok(()),
            Allocation::Punch(_) => self.ask(40, |_| self.disk.allocate(file, change)),
        }
    }

    fn seal(&self, file: TargetFile) -> io::Result<()> {
        self.ask(20, |_| self.disk.seal(file))
    }

    fn rename(&self, from: TargetFile, to: TargetFile) -> io::Result<()> {
        self.ask(300, |_| self.disk.rename(from, to))
    }

    fn remove(&self, file: TargetFile) -> io::Result<()> {
        self.ask(60, |_| self.disk.remove(file))
    }

    fn list(&self) -> io::Result<Vec<(TargetFile, u64)>> {
        self.ask(100, |_| self.disk.list())
    }

    fn list_metadata(&self) -> io::Result<Vec<(TargetFile, u64)>> {
        self.ask(100, |_| self.disk.list_metadata())
    }

    fn claim(&self, ask: &ClaimRequest) -> io::Result<ClaimState> {
        let remembered = || world::atomically(|| self.remembered.as_ref().and_then(|seen| lock(seen).clone()));
        if *ask == ClaimRequest::Read
            && let Some(state) = remembered()
        {
            return Ok(state);
        }
        let state = self.ask(60, |_| self.disk.claim(ask))?;
        if let Some(seen) = &self.remembered
            && matches!(ask, ClaimRequest::Take { .. })
            && state.blank == 0
        {
            world::atomically(|| *lock(seen) = Some(state.clone()));
        }
        Ok(state)
    }

    fn look(&self, files: &[TargetFile]) -> io::Result<Vec<Presence>> {
        look_by_reading(self, files)
    }

    fn space(&self) -> io::Result<Space> {
        self.ask(10, |store| {
            let (total, free) = (1 << 40, if store.faults().full { 0 } else { 1 << 39 });
            Ok(Space { total, free, system: store.number as u64 })
        })
    }

    fn owner(&self) -> Option<Owner<'_>> {
        None
    }
}
