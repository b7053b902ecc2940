//! A lock that clients of all mounts want. Some keep it while a server comes to its end, and use
//! what it protects before and afterwards.

use super::client::{Client, Content, EIO, State, Work};
use crate::lock::lock;
use crate::torture::model::{bytes, versions};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

/// The file, in each mount.
const NAME: &str = "contended";
const ID: u64 = 0;
const CELLS: usize = 8;
/// Turns in which who kept a lock for a round goes on with it afterwards.
const TURNS_AFTER: u32 = 2;
/// Clients that are refused do not ask without rest.
const REST: Duration = Duration::from_millis(5);

/// What the lock protects.
pub struct Contended {
    /// The number of the client that has it, and one more.
    holder: AtomicUsize,
    /// The newest versions: that which is durable, and that which was written.
    known: Mutex<(u32, u32)>,
}

impl Contended {
    pub fn new(state: &State) -> Result<Self, String> {
        let mount = state.mounts.first().ok_or("failover-clients MILLISECONDS MOUNT...")?;
        let path = mount.join(NAME);
        let made = File::create(&path).and_then(|file| {
            file.write_all_at(&bytes(ID, 0, CELLS, 1), 0)?;
            file.sync_all()?;
            File::open(mount)?.sync_all()
        });
        made.map_err(|why| format!("{}: {why}", path.display()))?;
        state.is_now(NAME.into(), Content::new(ID, CELLS, 1));
        Ok(Self { holder: AtomicUsize::new(0), known: Mutex::new((1, 1)) })
    }
}

/// Until when a lock is kept.
struct Held {
    /// The round before the one that it waits for.
    round: Option<u64>,
    turns: u32,
}

pub struct Locker<'a> {
    client: Client<'a>,
    random: fastrand::Rng,
    contended: &'a Contended,
    /// Another one of this file is never closed: that would free the locks of this process.
    file: File,
    held: Option<Held>,
}

impl<'a> Locker<'a> {
    pub fn new(client: Client<'a>, contended: &'a Contended) -> Result<Self, String> {
        let path = client.mount.join(NAME);
        let file = client.insist(|_| OpenOptions::new().read(true).write(true).open(&path))?;
        Ok(Self { random: client.random(), client, contended, file, held: None })
    }

    /// Whether it has the lock now. Nobody else may have it then.
    fn lock(&self, waits: bool) -> Result<bool, String> {
        let got = self.client.insist(|_| {
            let ask = |how| match rustix::fs::fcntl_lock(&self.file, how) {
                Ok(()) => Ok(true),
                Err(Errno::AGAIN | Errno::ACCESS) => Ok(false),
                Err(why) => Err(why.into()),
            };
            if waits {
                // It is the other client that it waits for.
                self.client.doing.set("wait for a lock");
                return ask(FlockOperation::LockExclusive);
            }
            self.client.timed("lock", || ask(FlockOperation::NonBlockingLockExclusive))
        })?;
        if got {
            let own = self.client.number + 1;
            let exchanged = self.contended.holder.compare_exchange(0, own, SeqCst, SeqCst);
            exchanged.map_err(|other| format!("it has the lock that client {} has", other - 1))?;
        }
        Ok(got)
    }

    fn unlock(&mut self) -> Result<(), String> {
        self.held = None;
        let own = self.client.number + 1;
        let exchanged = self.contended.holder.compare_exchange(own, 0, SeqCst, SeqCst);
        exchanged.map_err(|other| format!("client {other} less 1 got its lock"))?;
        let unlock = || Ok(rustix::fs::fcntl_lock(&self.file, FlockOperation::Unlock)?);
        match self.client.timed("unlock", unlock) {
            // What was not synced may be lost, and the lock is free.
            Err(why) if why.raw_os_error() == Some(EIO) => _ = self.client.state.failed.fetch_add(1, SeqCst),
            unlocked => unlocked.map_err(|why| format!("unlock: {why}"))?,
        }
        Ok(())
    }

    /// Looks at what others left, and changes it.
    fn change(&self, is_durable: bool) -> Result<(), String> {
        let (client, mut known) = (&self.client, lock(&self.contended.known));
        let read = client.insist(|_| client.read(&self.file))?;
        let found = versions(ID, &read)?;
        let (synced, written) = *known;
        let version = found.first().copied().unwrap_or(0);
        if found.len() != CELLS || found.iter().any(|&other| other != version) {
            return Err(format!("under a lock there is {found:?}"));
        }
        if !(synced..=written).contains(&version) {
            return Err(format!("under a lock there is version {version} instead of one from {synced} to {written}"));
        }
        client.state.older.fetch_add(u64::from(version < written), SeqCst);
        let version = written + 1;
        known.1 = version;
        client.insist(|_| {
            client.timed("write", || self.file.write_all_at(&bytes(ID, 0, CELLS, version), 0))?;
            if is_durable { client.timed("sync", || self.file.sync_data()) } else { Ok(()) }
        })?;
        if is_durable {
            known.0 = version;
            client.state.is_now(NAME.into(), Content::new(ID, CELLS, version));
        }
        Ok(())
    }
}

impl Work for Locker<'_> {
    fn turn(&mut self) -> Result<(), String> {
        if self.held.is_none() {
            let round = self.client.state.between_rounds().filter(|_| self.random.u32(..4) == 0);
            let waits = self.random.bool();
            if !self.lock(waits)? {
                self.client.state.refused.fetch_add(1, SeqCst);
                std::thread::sleep(REST);
                return Ok(());
            }
            self.held = Some(Held { round, turns: 0 });
        }
        let is_durable = self.random.bool();
        self.change(is_durable)?;
        match &mut self.held {
            Some(Held { round: Some(round), turns }) if *round == self.client.state.round() => {
                *turns = 0;
                std::thread::sleep(REST);
                Ok(())
            }
            Some(Held { round: Some(_), turns }) if *turns < TURNS_AFTER => {
                *turns += 1;
                Ok(())
            }
            _ => self.unlock(),
        }
    }

    /// Each one gets it in the end.
    fn end(&mut self) -> Result<(), String> {
        if self.held.is_some() {
            self.unlock()?;
        }
        self.lock(true)?;
        self.change(true)?;
        self.unlock()
    }
}
