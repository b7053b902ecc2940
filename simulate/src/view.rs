//! A store as one process sees it: over the network, with what `cluster::RemoteTarget` does when
//! the store's machine was started again.

use crate::network::{Host, Network};
use crate::store::Store;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::sleep;
use std::time::Duration;
use volume::target::{ClaimRequest, ClaimState, Space, Target, TargetFile};
use world::Process;

/// How long an operation without an answer takes.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(14);
/// How long it takes to learn that no process listens.
const REFUSAL_DELAY: Duration = Duration::from_millis(5);

/// A store as a process sees it.
pub struct View {
    pub store: Arc<Store>,
    pub network: Arc<Network>,
    pub host: Host,
    /// The session of the client whose view this is; None for servers.
    pub session: Option<Arc<AtomicU64>>,
    /// The session in which each chunk set was written first.
    sets: Mutex<BTreeMap<u64, u64>>,
    /// Files with data that is not synced, and the store's boot at the time of the write.
    unsynced: Mutex<BTreeMap<TargetFile, u64>>,
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "store {} of {:?}", self.store.number, self.host)
    }
}

impl View {
    pub fn new(store: &Arc<Store>, network: &Arc<Network>, host: Host, session: Option<Arc<AtomicU64>>) -> Arc<Self> {
        let (store, network) = (store.clone(), network.clone());
        Arc::new(Self { store, network, host, session, sets: Mutex::default(), unsynced: Mutex::default() })
    }

    /// Carries out an operation on the store; it takes the disk `takes` microseconds.
    fn ask<T>(&self, takes: u64, operation: impl FnOnce(&Store) -> io::Result<T>) -> io::Result<T> {
        let there = Host::Store(self.store.number);
        world::live();
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
        sleep(OPERATION_TIMEOUT);
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
            let mut all = self.unsynced.lock().unwrap_or_else(PoisonError::into_inner);
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
        let now = session.load(Ordering::SeqCst);
        let began = *self.sets.lock().unwrap_or_else(PoisonError::into_inner).entry(set).or_insert(now);
        let bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        let (store, boot) = (self.store.clone(), self.store.boot());
        Process::first().spawn(move || {
            sleep(late);
            if store.boot() == boot && !store.faults().down && store.admits(began) {
                _ = world::atomically(|| store.disk.write(file, offset, &[IoSlice::new(&bytes)]));
            }
        });
    }

    /// The fence: a client writes in a session that lives.
    fn is_admitted(&self, file: TargetFile) -> io::Result<()> {
        let Some(session) = &self.session else { return Ok(()) };
        let TargetFile::Chunk { set, .. } = file else { return Ok(()) };
        let now = session.load(Ordering::SeqCst);
        let began = *self.sets.lock().unwrap_or_else(PoisonError::into_inner).entry(set).or_insert(now);
        match self.store.admits(began) {
            true => Ok(()),
            false => Err(io::Error::new(io::ErrorKind::PermissionDenied, "the session has ended")),
        }
    }

    fn needs_space(store: &Store) -> io::Result<()> {
        if store.faults().full { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

impl Target for View {
    fn write(&self, file: TargetFile, offset: u64, parts: &[IoSlice<'_>]) -> io::Result<()> {
        let done = self.change(file, 40, true, |store| {
            Self::needs_space(store)?;
            store.disk.write(file, offset, parts)
        });
        if done.as_ref().is_err_and(|why| why.kind() == io::ErrorKind::TimedOut) {
            self.write_late(file, offset, parts);
        }
        done
    }

    fn write_durably(&self, file: TargetFile, offset: u64, parts: &[IoSlice<'_>]) -> io::Result<()> {
        self.change(file, 400, false, |store| {
            Self::needs_space(store)?;
            store.disk.write(file, offset, parts)?;
            if store.faults().unsynced { Err(io::Error::other("the disk cannot sync")) } else { store.sync(file) }
        })
    }

    fn read(&self, file: TargetFile, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.ask(60, |store| store.disk.read(file, offset, into))
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn claim(&self, ask: &ClaimRequest) -> io::Result<ClaimState> {
        self.ask(60, |store| store.disk.claim(ask))
    }

    fn sync(&self, file: TargetFile) -> io::Result<()> {
        self.change(file, 400, false, |store| {
            if store.faults().unsynced { Err(io::Error::other("the disk cannot sync")) } else { store.sync(file) }
        })
    }

    fn reserve(&self, file: TargetFile, bytes: u64) -> io::Result<()> {
        self.ask(20, |store| {
            Self::needs_space(store)?;
            store.disk.reserve(file, bytes)
        })
    }

    fn punch(&self, file: TargetFile, range: Range<u64>) -> io::Result<()> {
        self.ask(40, |store| store.disk.punch(file, range))
    }

    fn rename(&self, from: TargetFile, to: TargetFile) -> io::Result<()> {
        self.ask(300, |store| store.disk.rename(from, to))
    }

    fn remove(&self, file: TargetFile) -> io::Result<()> {
        self.ask(60, |store| store.disk.remove(file))
    }

    fn list(&self) -> io::Result<Vec<(TargetFile, u64)>> {
        self.ask(100, |store| store.disk.list())
    }

    fn space(&self) -> io::Result<Space> {
        self.ask(10, |store| {
            let (total, free) = (1 << 40, if store.faults().full { 0 } else { 1 << 39 });
            Ok(Space { total, free, system: store.number as u64 })
        })
    }
}
