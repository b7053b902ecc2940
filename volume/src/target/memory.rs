//! A target in memory, for tests.

use super::claim::{ClaimRequest, ClaimState, ClaimedChange, Seat};
use super::clock::Clock;
use super::{
    Allocation, Durable, Epoch, Owner, Presence, ReadPart, Space, Target, TargetFile, Wait, look_by_reading, read_each,
    timed,
};
use crate::lock;
use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// The size of a target without a limit, in bytes.
const UNLIMITED_BYTES: u64 = 1 << 40;

/// Files in memory. Everything is durable at once.
#[derive(Debug, Default)]
pub struct Memory {
    content: Arc<Mutex<Content>>,
    /// The capacity in bytes, if limited.
    capacity: Option<u64>,
    /// The epoch under which this value changes the volume.
    own: Mutex<Option<Epoch>>,
    clock: Clock,
}

#[derive(Debug, Default)]
struct Content {
    files: BTreeMap<TargetFile, Vec<u8>>,
    seat: Seat,
}

impl Memory {
    /// A target that holds at most `bytes` bytes. Holes in files count, too.
    pub fn with_capacity(bytes: u64) -> Self {
        Self { capacity: Some(bytes), ..Self::default() }
    }

    /// A target whose leases run by this clock.
    pub fn with_clock(clock: Clock) -> Self {
        Self { clock, ..Self::default() }
    }

    /// The same files, opened once more: a claim that is taken through one of the two fences the
    /// other one.
    pub fn open_again(&self) -> Self {
        let Self { content, capacity, clock, .. } = self;
        Self { content: content.clone(), capacity: *capacity, own: Mutex::default(), clock: clock.clone() }
    }

    /// Loses everything, as when another disk takes the place of this one.
    pub fn lose(&self) {
        *self.content() = Content::default();
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        lock(&self.content)
    }

    fn own(&self) -> MutexGuard<'_, Option<Epoch>> {
        lock(&self.own)
    }

    /// The content, for a change that the claim allows.
    fn changing(&self, change: ClaimedChange, file: TargetFile) -> io::Result<MutexGuard<'_, Content>> {
        let own = *self.own();
        let content = self.content();
        if change.needs_claim(file) {
            content.seat.check(own)?;
        }
        Ok(content)
    }
}

fn used(files: &BTreeMap<TargetFile, Vec<u8>>) -> u64 {
    files.values().map(|bytes| bytes.len() as u64).sum()
}

fn missing() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl Memory {
    /// Writes; the next sync makes it durable.
    fn write_parts(&self, file: TargetFile, offset: u64, parts: &[IoSlice<'_>]) -> io::Result<()> {
        let files = &mut self.changing(ClaimedChange::Write, file)?.files;
        // As on a disk, the file is created even if the write fails.
        let length = files.entry(file).or_default().len() as u64;
        let end = offset + parts.iter().map(|part| part.len() as u64).sum::<u64>();
        if self.capacity.is_some_and(|capacity| used(files) + end.saturating_sub(length) > capacity) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let bytes = files.entry(file).or_default();
        let mut at = offset as usize;
        for part in parts {
            let end = at + part.len();
            if bytes.len() < end {
                bytes.resize(end, 0);
            }
            bytes[at..end].copy_from_slice(part);
            at = end;
        }
        Ok(())
    }

    /// Makes a file durable.
    fn sync_file(&self, file: TargetFile) -> io::Result<()> {
        self.changing(ClaimedChange::Write, file)?.files.get(&file).map(|_| ()).ok_or_else(missing)
    }

    /// See `Allocation::Reserve`.
    fn reserve(&self, file: TargetFile) -> io::Result<()> {
        self.changing(ClaimedChange::Write, file)?.files.entry(file).or_default();
        Ok(())
    }

    /// See `Allocation::Punch`.
    fn punch(&self, file: TargetFile, range: Range<u64>) -> io::Result<()> {
        let files = &mut self.changing(ClaimedChange::Remove, file)?.files;
        let bytes = files.get_mut(&file).ok_or_else(missing)?;
        let end = bytes.len().min(range.end as usize);
        if let Some(hole) = bytes.get_mut(range.start as usize..end) {
            hole.fill(0);
        }
        Ok(())
    }
}

impl Target for Memory {
    fn write(&self, file: TargetFile, offset: u64, parts: &[IoSlice<'_>], durable: Durable) -> io::Result<Duration> {
        timed(|| {
            self.write_parts(file, offset, parts)?;
            if durable == Durable::Now { self.sync_file(file) } else { Ok(()) }
        })
    }

    fn read(&self, file: TargetFile, parts: &mut [ReadPart<'_>], wait: Wait) -> io::Result<()> {
        // Nothing here waits for a device.
        let wait = if wait == Wait::Never { Wait::Always } else { wait };
        let content = self.content();
        let bytes = content.files.get(&file).ok_or_else(missing)?;
        read_each(parts, wait, |offset, into| {
            let from = bytes.len().min(offset as usize);
            let length = into.len().min(bytes.len() - from);
            into[..length].copy_from_slice(&bytes[from..from + length]);
            Ok(length)
        })
    }

    fn is_remote(&self) -> bool {
        false
    }

    fn sync(&self, file: TargetFile) -> io::Result<Duration> {
        timed(|| self.sync_file(file))
    }

    fn allocate(&self, file: TargetFile, change: Allocation) -> io::Result<()> {
        match change {
            Allocation::Reserve(_) => self.reserve(file),
            Allocation::Trim => Ok(()),
            Allocation::Punch(range) => self.punch(file, range),
        }
    }

    fn seal(&self, file: TargetFile) -> io::Result<()> {
        self.content().files.get(&file).map(|_| ()).ok_or_else(missing)
    }

    fn rename(&self, from: TargetFile, to: TargetFile) -> io::Result<()> {
        let files = &mut self.changing(ClaimedChange::Remove, to)?.files;
        let bytes = files.remove(&from).ok_or_else(missing)?;
        files.insert(to, bytes);
        Ok(())
    }

    fn remove(&self, file: TargetFile) -> io::Result<()> {
        self.changing(ClaimedChange::Remove, file)?.files.remove(&file);
        Ok(())
    }

    fn list(&self) -> io::Result<Vec<(TargetFile, u64)>> {
        Ok(self.content().files.iter().map(|(&file, bytes)| (file, bytes.len() as u64)).collect())
    }

    fn list_metadata(&self) -> io::Result<Vec<(TargetFile, u64)>> {
        Ok(self.list()?.into_iter().filter(|(file, _)| file.is_metadata()).collect())
    }

    fn claim(&self, ask: &ClaimRequest) -> io::Result<ClaimState> {
        let mut own = self.own();
        let seat = &mut self.content().seat;
        let now = self.clock.now();
        let record = seat.decide(ask, now, true)?;
        seat.accept(ask, record, now);
        match ask {
            ClaimRequest::Read | ClaimRequest::Whole { .. } => {}
            ClaimRequest::Take { claim, .. } => *own = Some(claim.epoch),
            ClaimRequest::Release(epoch) => _ = own.take_if(|own| own == epoch),
        }
        Ok(seat.state(now))
    }

    fn look(&self, files: &[TargetFile]) -> io::Result<Vec<Presence>> {
        look_by_reading(self, files)
    }

    fn space(&self) -> io::Result<Space> {
        let (total, used) = (self.capacity.unwrap_or(UNLIMITED_BYTES), used(&self.content().files));
        Ok(Space { total, free: total.saturating_sub(used), system: Arc::as_ptr(&self.content).addr() as u64 })
    }

    fn owner(&self) -> Option<Owner<'_>> {
        None
    }
}
