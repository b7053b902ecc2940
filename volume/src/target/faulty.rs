//! A target with injected faults, for tests.

use super::{
    Allocation, ClaimRequest, ClaimState, Durable, Owner, Presence, ReadPart, Space, Target, TargetFile, Wait, timed,
};
use crate::{lock, unpoisoned};
use rustix::io::Errno;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The faults of a target.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Every operation fails with EIO.
    pub dead: bool,
    /// No operation reaches the target.
    pub away: bool,
    /// Every operation that needs space fails with ENOSPC.
    pub full: bool,
    /// Every sync fails with EIO.
    pub unsynced: bool,
    /// The extra time of every operation. An operation in progress follows each change of it: a
    /// target without delay answers at once what it was asked before.
    pub delay: Duration,
    /// Reads return every byte in these ranges with one bit flipped.
    pub flipped: Vec<(TargetFile, Range<u64>)>,
    /// Reads of anything in these ranges fail with EIO.
    pub unreadable: Vec<(TargetFile, Range<u64>)>,
    /// Writes to anything in these ranges do not reach the target.
    pub refused: Vec<(TargetFile, Range<u64>)>,
    /// A file that somebody else removes, and how many more reads and syncs find it.
    pub removed_after: Option<(TargetFile, u32)>,
}

/// Decorates another target with faults, which may change at any time. It starts without faults.
#[derive(Debug)]
pub struct Faulty {
    inner: Arc<dyn Target>,
    faults: Mutex<Faults>,
    changed: Condvar,
}

impl Faulty {
    /// A target without faults.
    pub fn new(inner: Arc<dyn Target>) -> Self {
        Self { inner, faults: Mutex::default(), changed: Condvar::new() }
    }

    fn faults(&self) -> MutexGuard<'_, Faults> {
        lock(&self.faults)
    }

    /// Replaces the faults.
    pub fn set(&self, faults: Faults) {
        *self.faults() = faults;
        self.changed.notify_all();
    }

    /// The target behind the faults.
    pub fn inner(&self) -> &Arc<dyn Target> {
        &self.inner
    }

    /// Waits for the delay, and fails if the target is dead.
    fn pass(&self) -> io::Result<Faults> {
        let mut faults = self.faults();
        let begun = Instant::now();
        loop {
            let left = faults.delay.saturating_sub(begun.elapsed());
            if left.is_zero() {
                break;
            }
            faults = unpoisoned(self.changed.wait_timeout(faults, left)).0;
        }
        // The target may have died meanwhile.
        let faults = faults.clone();
        if faults.away {
            return Err(io::ErrorKind::NotConnected.into());
        }
        if faults.dead { Err(Errno::IO.into()) } else { Ok(faults) }
    }

    /// As `pass`, for reads and syncs of a file.
    fn pass_at(&self, file: TargetFile) -> io::Result<Faults> {
        let faults = self.pass()?;
        match &mut self.faults().removed_after {
            Some((removed, 0)) if *removed == file => self.inner.remove(file)?,
            Some((removed, left)) if *removed == file => *left -= 1,
            _ => {}
        }
        Ok(faults)
    }

    /// As `pass`, for operations that need space.
    fn pass_writing(&self) -> io::Result<Faults> {
        let faults = self.pass()?;
        if faults.full { Err(Errno::NOSPC.into()) } else { Ok(faults) }
    }
}

impl Target for Faulty {
    fn write(&self, file: TargetFile, offset: u64, parts: &[IoSlice<'_>], durable: Durable) -> io::Result<Duration> {
        timed(|| {
            let faults = self.pass_writing()?;
            let end = offset + parts.iter().map(|part| part.len() as u64).sum::<u64>();
            let meets = |range: &Range<u64>| range.start < end && offset < range.end;
            if faults.refused.iter().any(|(refused, range)| *refused == file && meets(range)) {
                return Err(io::ErrorKind::NotConnected.into());
            }
            self.inner.write(file, offset, parts, Durable::Later)?;
            if durable == Durable::Now { self.sync(file).map(drop) } else { Ok(()) }
        })
    }

    /// Never with a time limit: the delay of the faults has none.
    fn read(&self, file: TargetFile, parts: &mut [ReadPart<'_>], wait: Wait) -> io::Result<()> {
        if wait == Wait::Never {
            let faults = self.faults();
            let faulty = faults.dead
                || faults.away
                || !faults.delay.is_zero()
                || !faults.flipped.is_empty()
                || faults.removed_after.is_some()
                || !faults.unreadable.is_empty();
            drop(faults);
            return if faulty { wait.refuse_limit() } else { self.inner.read(file, parts, wait) };
        }
        wait.refuse_limit()?;
        let faults = self.pass_at(file)?;
        let meets = |part: &ReadPart<'_>, range: &Range<u64>| {
            range.start < part.offset + part.into.len() as u64 && part.offset < range.end
        };
        let mut unreadable = faults.unreadable.iter().filter(|(unreadable, _)| *unreadable == file);
        if unreadable.any(|(_, range)| parts.iter().any(|part| meets(part, range))) {
            return Err(Errno::IO.into());
        }
        self.inner.read(file, parts, wait)?;
        for part in parts {
            for (_, range) in faults.flipped.iter().filter(|(flipped, _)| *flipped == file) {
                let within = |at: u64| at.saturating_sub(part.offset).min(part.read as u64) as usize;
                let (begin, end) = (within(range.start), within(range.end));
                part.into[begin..end.max(begin)].iter_mut().for_each(|byte| *byte ^= 0x10);
            }
        }
        Ok(())
    }

    fn is_remote(&self) -> bool {
        self.inner.is_remote()
    }

    fn sync(&self, file: TargetFile) -> io::Result<Duration> {
        timed(|| {
            if self.pass_at(file)?.unsynced {
                return Err(Errno::IO.into());
            }
            self.inner.sync(file).map(drop)
        })
    }

    fn allocate(&self, file: TargetFile, change: Allocation) -> io::Result<()> {
        match change {
            Allocation::Reserve(_) => _ = self.pass_writing()?,
            Allocation::Trim | Allocation::Punch(_) => _ = self.pass()?,
        }
        self.inner.allocate(file, change)
    }

    fn seal(&self, file: TargetFile) -> io::Result<()> {
        self.pass()?;
        self.inner.seal(file)
    }

    fn rename(&self, from: TargetFile, to: TargetFile) -> io::Result<()> {
        self.pass()?;
        self.inner.rename(from, to)
    }

    fn remove(&self, file: TargetFile) -> io::Result<()> {
        self.pass()?;
        self.inner.remove(file)
    }

    fn list(&self) -> io::Result<Vec<(TargetFile, u64)>> {
        self.pass()?;
        self.inner.list()
    }

    fn list_metadata(&self) -> io::Result<Vec<(TargetFile, u64)>> {
        self.pass()?;
        self.inner.list_metadata()
    }

    /// A full target takes claims: their space is there from the beginning.
    fn claim(&self, ask: &ClaimRequest) -> io::Result<ClaimState> {
        if self.pass()?.unsynced && *ask != ClaimRequest::Read {
            return Err(Errno::IO.into());
        }
        self.inner.claim(ask)
    }

    fn look(&self, files: &[TargetFile]) -> io::Result<Vec<Presence>> {
        self.pass()?;
        self.inner.look(files)
    }

    fn space(&self) -> io::Result<Space> {
        let full = self.pass()?.full;
        self.inner.space().map(|space| if full { Space { free: 0, ..space } } else { space })
    }

    /// None: a Master would not notice the faults.
    fn owner(&self) -> Option<Owner<'_>> {
        None
    }
}
