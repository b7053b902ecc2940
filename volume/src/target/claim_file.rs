//! The claim of a directory: a file of two records. The process that holds the claim, or the store
//! that serves the directory, keeps a lock on the file, so that its death is known at once.
//!
//! The file is made with the directory and keeps its length, so that a full disk can be claimed.

use super::claim::{ClaimRequest, ClaimState, Lease, Refusal, Seat};
use super::clock::Clock;
use crate::format::{CLAIM_BYTES, CLAIM_FILE_BYTES, ClaimRecord, Epoch};
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

/// Its name in the directory.
pub(super) const NAME: &str = "weft.claim";

/// How often and how long to wait for a lock: another process may be looking whether it is free.
const MAX_LOCK_TRIES: usize = 10;
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(2);

/// The claim of one opening of a directory.
#[derive(Debug, Default)]
pub(super) struct ClaimFile {
    clock: Clock,
    /// The open file with its inode.
    file: Option<(File, u64)>,
    lock: Lock,
    seat: Seat,
    /// The epoch under which this opening changes the volume.
    own: Option<Epoch>,
    /// The directory is served to others: the lock stays, leases survive the process, and the
    /// server checks the epochs of changes.
    serving: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Lock {
    #[default]
    Free,
    Ours,
    /// The file system has no locks.
    Unknown,
}

/// Creates the file in a new directory.
pub(super) fn create(directory: &File) -> Result<()> {
    let file = File::from(rustix::fs::openat(directory, NAME, flags() | OFlags::CREATE, mode())?);
    fill(&file, directory)
}

fn flags() -> OFlags {
    OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK
}

fn mode() -> Mode {
    Mode::RUSR | Mode::WUSR
}

/// Gives the file its length and makes it durable. Zeroes are written, so that a later record needs
/// no space.
fn fill(file: &File, directory: &File) -> Result<()> {
    let have = (file.metadata()?.len() as usize).min(CLAIM_FILE_BYTES);
    super::write_at(file, have as u64, &[&vec![0; CLAIM_FILE_BYTES - have]])?;
    file.sync_all()?;
    directory.sync_all()
}

/// The whole file.
fn bytes_of(file: &File) -> Result<Vec<u8>> {
    super::read_to_vec(CLAIM_FILE_BYTES, |into| super::read_at(file, 0, &mut [into]))
}

/// The newest record and the slot for the next one.
fn newest(file: &File) -> Result<(Option<ClaimRecord>, usize)> {
    let damaged = |why| Error::new(ErrorKind::InvalidData, format!("the claim of the target: {why}"));
    ClaimRecord::newest(&bytes_of(file)?).map_err(damaged)
}

impl ClaimFile {
    /// Replaces the clock of leases.
    pub fn set_clock(&mut self, clock: Clock) {
        self.clock = clock;
    }

    /// Serves the directory to others from now on. The lock is taken now and kept. A directory
    /// whose claim cannot be made or read is served for reading and appending: its chunks are good.
    ///
    /// # Errors
    /// `Held` if another process has the lock.
    pub fn serve(&mut self, directory: &File) -> Result<()> {
        self.serving = true;
        match self.lock(directory) {
            Err(error) if Refusal::of(&error).is_none() => Ok(()),
            locked => locked,
        }
    }

    /// As [`super::Target::claim`].
    pub fn claim(&mut self, directory: &File, ask: &ClaimRequest) -> Result<ClaimState> {
        if matches!(ask, ClaimRequest::Read) {
            return self.state(directory);
        }
        self.lock(directory)?;
        let done = self.decide(ask);
        match ask {
            ClaimRequest::Take { claim, .. } if done.is_ok() => self.own = Some(claim.epoch),
            ClaimRequest::Release(epoch) if done.is_ok() => _ = self.own.take_if(|own| own == epoch),
            _ => {}
        }
        if self.own.is_none() && !self.serving {
            self.unlock();
        }
        done
    }

    fn decide(&mut self, ask: &ClaimRequest) -> Result<ClaimState> {
        let record = self.seat.decide(ask, self.clock.now(), self.serving)?;
        if let Some(record) = &record {
            self.store(record)?;
        }
        self.seat.accept(ask, record, self.clock.now());
        Ok(self.locked_state())
    }

    /// The state while this opening has the lock.
    fn locked_state(&self) -> ClaimState {
        let mut state = self.seat.state(self.clock.now());
        if !self.serving && self.own.is_some() && state.lease != Lease::Released {
            state.lease = Lease::Locked;
        }
        state
    }

    /// Makes a record durable. The older record is overwritten, then the other one, too, so that a
    /// bad sector does not bring an older claim back.
    fn store(&self, record: &ClaimRecord) -> Result<()> {
        let (file, _) = self.file.as_ref().ok_or(ErrorKind::NotFound)?;
        // What the slots show must be durable before one of them is overwritten.
        file.sync_data()?;
        let (_, slot) = newest(file)?;
        let bytes = record.encode();
        let write = |slot: usize| super::write_at(file, (slot * CLAIM_BYTES) as u64, &[&bytes]);
        write(slot)?;
        file.sync_data()?;
        // The copy may wait for the next sync.
        let _ = write(1 - slot);
        Ok(())
    }

    /// What the target holds, for a caller that need not hold it.
    fn state(&mut self, directory: &File) -> Result<ClaimState> {
        if self.lock == Lock::Ours {
            self.still_there(directory)?;
            return Ok(self.locked_state());
        }
        let opened = rustix::fs::openat(directory, NAME, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW, mode());
        let file = match opened {
            Err(Errno::NOENT) => return Ok(ClaimState::default()),
            opened => File::from(opened?),
        };
        self.find(newest(&file)?.0);
        let mut state = self.seat.state(self.clock.now());
        if state.claim.is_some() && state.lease != Lease::Released {
            // A server that takes the claim at this moment tries again.
            match flock(&file, FlockOperation::NonBlockingLockShared) {
                Err(Errno::WOULDBLOCK) => state.lease = Lease::Locked,
                Ok(()) => _ = flock(&file, FlockOperation::Unlock),
                Err(_) => {}
            }
        }
        Ok(state)
    }

    /// Adopts a record that was read from the file. A lease begins when it is first seen.
    fn find(&mut self, record: Option<ClaimRecord>) {
        if self.seat.record() != record.as_ref() {
            self.seat = Seat::find(record, self.clock.now());
        }
    }

    /// Takes the lock, if this opening does not have it, and reads the record.
    fn lock(&mut self, directory: &File) -> Result<()> {
        if self.lock == Lock::Ours && self.still_there(directory).is_ok() {
            return Ok(());
        }
        self.unlock();
        let opened = match rustix::fs::openat(directory, NAME, flags(), mode()) {
            Err(Errno::NOENT) => rustix::fs::openat(directory, NAME, flags() | OFlags::CREATE, mode())?,
            opened => opened?,
        };
        let file = File::from(opened);
        let found = file.metadata()?;
        let lock = take_lock(&file)?;
        if found.len() < CLAIM_FILE_BYTES as u64 {
            fill(&file, directory)?;
        }
        self.find(newest(&file)?.0);
        (self.file, self.lock) = (Some((file, found.ino())), lock);
        Ok(())
    }

    /// Releases the lock by name: a child that is being started may have a copy of the handle.
    fn unlock(&mut self) {
        if let Some((file, _)) = self.file.take()
            && self.lock == Lock::Ours
        {
            let _ = flock(&file, FlockOperation::Unlock);
        }
        self.lock = Lock::Free;
    }

    /// Whether the file that this opening has locked still is the one of the directory.
    fn still_there(&self, directory: &File) -> Result<()> {
        let inode = self.file.as_ref().map(|(_, inode)| *inode);
        match rustix::fs::statat(directory, NAME, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if Some(stat.st_ino) == inode => Ok(()),
            Ok(_) => Err(Error::new(ErrorKind::NotFound, "the claim of the target was replaced")),
            Err(Errno::NOENT) => Err(Error::new(ErrorKind::NotFound, "the claim of the target was removed")),
            Err(why) => Err(why.into()),
        }
    }

    /// Whether this opening may change the volume. While it has the lock no other opening gets the
    /// claim, so that this costs one system call.
    ///
    /// # Errors
    /// `Fenced` or `Unclaimed`; any other if that cannot be determined.
    pub fn check(&mut self, directory: &File) -> Result<()> {
        if self.serving {
            return Ok(());
        }
        if self.lock == Lock::Ours && self.own.is_some() {
            self.still_there(directory)?;
        } else {
            self.state(directory)?;
        }
        Ok(self.seat.check(self.own)?)
    }
}

/// Takes the lock of the claim.
fn take_lock(file: &File) -> Result<Lock> {
    for _ in 0..MAX_LOCK_TRIES {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Lock::Ours),
            Err(Errno::WOULDBLOCK | Errno::INTR) => std::thread::sleep(LOCK_RETRY_INTERVAL),
            Err(_) => return Ok(Lock::Unknown),
        }
    }
    let claim = newest(file).ok().and_then(|(record, _)| record).map(|record| Box::new(record.claim));
    Err(Refusal::Held { claim, remaining: None }.into())
}

impl Drop for ClaimFile {
    fn drop(&mut self) {
        self.unlock();
    }
}
