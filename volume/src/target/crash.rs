//! A target that loses unsynced data in a crash, for tests.

use super::{
    Allocation, ClaimRequest, ClaimState, ClaimedChange, Durable, Epoch, Owner, Presence, ReadAt, ReadPart, Space,
    Target, TargetFile, Wait, look_by_reading, read_each, timed,
};
use crate::lock;
use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// A disk writes a sector completely or not at all.
const SECTOR: u64 = 512;

/// Decorates another target, which gets only durable data. Unsynced writes stay in memory until a
/// sync or a crash.
#[derive(Debug)]
pub struct Crash {
    inner: Arc<dyn Target>,
    waiting: Arc<Mutex<Waiting>>,
    /// The epoch under which the inner target is changed: what waits in memory is refused, too.
    own: Mutex<Option<Epoch>>,
}

/// State that a crash may lose or restore.
#[derive(Debug, Default)]
struct Waiting {
    /// Writes to each file since its last sync, in order. A file that the inner target lacks has an
    /// entry even without writes.
    writes: BTreeMap<TargetFile, Vec<(u64, Vec<u8>)>>,
    /// Durable files that were removed. Only the sync of another file would make the removal
    /// durable, which this model leaves out.
    removed: Vec<(TargetFile, Vec<u8>)>,
}

/// A pseudo-random generator (splitmix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }
}

impl Crash {
    /// A target before its first crash.
    pub fn new(inner: Arc<dyn Target>) -> Self {
        Self { inner, waiting: Arc::default(), own: Mutex::default() }
    }

    /// The same target, opened once more: a claim that is taken through one of the two fences the
    /// other one.
    pub fn open_again(&self) -> Self {
        Self { inner: self.inner.clone(), waiting: self.waiting.clone(), own: Mutex::default() }
    }

    /// Simulates a power loss. Unsynced data is kept, lost or torn at random, sector by sector.
    /// Files without a durable name may be gone, and removed files may be back. The result depends
    /// only on the seed and the operations before.
    ///
    /// # Errors
    /// If the inner target fails.
    pub fn crash(&self, seed: u64) -> io::Result<()> {
        let mut dice = Dice(seed);
        let mut waiting = self.waiting();
        let Waiting { writes, removed } = std::mem::take(&mut *waiting);
        for (file, bytes) in removed {
            let taken = writes.contains_key(&file) || self.inner.read_at(file, 0, &mut []).is_ok();
            if !taken && dice.below(2) == 0 {
                self.put(file, 0, &bytes)?;
            }
        }
        for (file, writes) in writes {
            let named = self.inner.read_at(file, 0, &mut []).is_ok();
            if !named && dice.below(2) == 0 {
                continue;
            }
            if !named {
                self.put(file, 0, &[])?;
            }
            // All, nothing, or a random part: most mistakes are at the extremes.
            let odds = [0, 2, 4][dice.below(3) as usize];
            for (offset, bytes) in writes {
                let mut at = 0;
                while at < bytes.len() {
                    let next = (offset + at as u64) / SECTOR * SECTOR + SECTOR - offset;
                    let end = bytes.len().min(next as usize);
                    if dice.below(4) < odds {
                        self.put(file, offset + at as u64, &bytes[at..end])?;
                    }
                    at = end;
                }
            }
        }
        Ok(())
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        lock(&self.waiting)
    }

    /// Fails if a change needs a claim that this target does not have.
    fn allow(&self, change: ClaimedChange, file: TargetFile) -> io::Result<()> {
        if change.needs_claim(file) {
            let own = *lock(&self.own);
            self.inner.claim(&ClaimRequest::Read)?.check(own)?;
        }
        Ok(())
    }

    fn put(&self, file: TargetFile, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.inner.write(file, offset, &[IoSlice::new(bytes)], Durable::Later).map(drop)
    }

    /// The content of a durable file.
    fn durable(&self, file: TargetFile) -> io::Result<Option<Vec<u8>>> {
        let found = self.inner.list()?.into_iter().find(|(found, _)| *found == file);
        let Some((_, length)) = found else { return Ok(None) };
        let mut bytes = vec![0; length as usize];
        self.inner.read_at(file, 0, &mut bytes)?;
        Ok(Some(bytes))
    }

    /// Adds a file to those that a crash may change, if it exists or `create` is set.
    fn touch(&self, waiting: &mut Waiting, file: TargetFile, create: bool) -> io::Result<()> {
        if create || waiting.writes.contains_key(&file) || self.inner.read_at(file, 0, &mut []).is_ok() {
            waiting.writes.entry(file).or_default();
            return Ok(());
        }
        Err(io::ErrorKind::NotFound.into())
    }

    /// Writes; the next sync makes it durable.
    fn write_parts(&self, file: TargetFile, offset: u64, parts: &[IoSlice<'_>]) -> io::Result<()> {
        self.allow(ClaimedChange::Write, file)?;
        let mut bytes = Vec::with_capacity(parts.iter().map(|part| part.len()).sum());
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        self.waiting().writes.entry(file).or_default().push((offset, bytes));
        Ok(())
    }

    /// Makes a file durable.
    fn sync_file(&self, file: TargetFile) -> io::Result<()> {
        self.allow(ClaimedChange::Write, file)?;
        let mut waiting = self.waiting();
        self.touch(&mut waiting, file, false)?;
        for (offset, bytes) in waiting.writes.remove(&file).into_iter().flatten() {
            self.put(file, offset, &bytes)?;
        }
        // A file without writes still has a name.
        self.put(file, 0, &[])?;
        self.inner.sync(file).map(drop)
    }

    /// See `Allocation::Reserve`.
    fn reserve(&self, file: TargetFile) -> io::Result<()> {
        let mut waiting = self.waiting();
        self.touch(&mut waiting, file, true)
    }

    /// See `Allocation::Punch`.
    fn punch(&self, file: TargetFile, range: Range<u64>) -> io::Result<()> {
        self.allow(ClaimedChange::Remove, file)?;
        let mut waiting = self.waiting();
        self.touch(&mut waiting, file, false)?;
        let end = self.list_length(&waiting, file)?.min(range.end);
        if range.start < end {
            let hole = vec![0; (end - range.start) as usize];
            waiting.writes.entry(file).or_default().push((range.start, hole));
        }
        Ok(())
    }
}

impl Target for Crash {
    fn write(&self, file: TargetFile, offset: u64, parts: &[IoSlice<'_>], durable: Durable) -> io::Result<Duration> {
        timed(|| {
            self.write_parts(file, offset, parts)?;
            if durable == Durable::Now { self.sync_file(file) } else { Ok(()) }
        })
    }

    fn read(&self, file: TargetFile, parts: &mut [ReadPart<'_>], wait: Wait) -> io::Result<()> {
        read_each(parts, wait, |offset, into| self.read_one(file, offset, into))
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
        let mut waiting = self.waiting();
        self.touch(&mut waiting, file, false)?;
        // The file below may not exist yet, and a crash may lose attributes.
        let _ = self.inner.seal(file);
        Ok(())
    }

    fn rename(&self, from: TargetFile, to: TargetFile) -> io::Result<()> {
        self.allow(ClaimedChange::Remove, to)?;
        let mut waiting = self.waiting();
        self.touch(&mut waiting, from, false)?;
        // The rename is durable on return; unsynced data of the file is not.
        self.put(from, 0, &[])?;
        self.inner.rename(from, to)?;
        let writes = waiting.writes.remove(&from).unwrap_or_default();
        waiting.writes.insert(to, writes);
        Ok(())
    }

    fn remove(&self, file: TargetFile) -> io::Result<()> {
        self.allow(ClaimedChange::Remove, file)?;
        let mut waiting = self.waiting();
        waiting.writes.remove(&file);
        if let Some(bytes) = self.durable(file)? {
            waiting.removed.push((file, bytes));
        }
        self.inner.remove(file)
    }

    fn list(&self) -> io::Result<Vec<(TargetFile, u64)>> {
        let waiting = self.waiting();
        let mut files: BTreeMap<TargetFile, u64> = self.inner.list()?.into_iter().collect();
        for (&file, writes) in &waiting.writes {
            let length = files.entry(file).or_default();
            *length = writes.iter().map(|(at, bytes)| at + bytes.len() as u64).fold(*length, u64::max);
        }
        Ok(files.into_iter().collect())
    }

    fn list_metadata(&self) -> io::Result<Vec<(TargetFile, u64)>> {
        Ok(self.list()?.into_iter().filter(|(file, _)| file.is_metadata()).collect())
    }

    fn claim(&self, ask: &ClaimRequest) -> io::Result<ClaimState> {
        let state = self.inner.claim(ask)?;
        let mut own = lock(&self.own);
        match ask {
            ClaimRequest::Read | ClaimRequest::Whole { .. } => {}
            ClaimRequest::Take { claim, .. } => *own = Some(claim.epoch),
            ClaimRequest::Release(epoch) => _ = own.take_if(|own| own == epoch),
        }
        Ok(state)
    }

    fn look(&self, files: &[TargetFile]) -> io::Result<Vec<Presence>> {
        look_by_reading(self, files)
    }

    fn space(&self) -> io::Result<Space> {
        self.inner.space()
    }

    fn owner(&self) -> Option<Owner<'_>> {
        None
    }
}

impl Crash {
    fn read_one(&self, file: TargetFile, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let waiting = self.waiting();
        let writes = waiting.writes.get(&file);
        let mut length = match self.inner.read_at(file, offset, into) {
            Err(why) if why.kind() == io::ErrorKind::NotFound && writes.is_some() => 0,
            length => length?,
        };
        // The gap between the old end and a later write reads as zeroes.
        into[length..].fill(0);
        let read_end = offset + into.len() as u64;
        for (at, bytes) in writes.into_iter().flatten() {
            let (begin, end) = ((*at).max(offset), (at + bytes.len() as u64).min(read_end));
            if at + bytes.len() as u64 > offset {
                length = length.max((end - offset) as usize);
            }
            if begin < end {
                let source = &bytes[(begin - at) as usize..(end - at) as usize];
                into[(begin - offset) as usize..(end - offset) as usize].copy_from_slice(source);
            }
        }
        Ok(length)
    }

    /// The current length of a file.
    fn list_length(&self, waiting: &Waiting, file: TargetFile) -> io::Result<u64> {
        let durable = self.inner.list()?.into_iter().find(|(found, _)| *found == file).map_or(0, |(_, length)| length);
        let writes = waiting.writes.get(&file).into_iter().flatten();
        Ok(writes.map(|(at, bytes)| at + bytes.len() as u64).fold(durable, u64::max))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Claim, Holder, Memory};
    use super::*;
    use plan::Position;
    use plan::SetId;
    use plan::TxId;

    const FILE: TargetFile = TargetFile::Chunk { set: SetId(1), position: Position(0) };
    const OTHER: TargetFile = TargetFile::Chunk { set: SetId(2), position: Position(0) };

    #[test]
    fn what_is_opened_again_has_the_same_files_and_a_claim_of_its_own() {
        let claim = |number| {
            let epoch = Epoch { number, id: u128::from(number) };
            let claim = Claim {
                volume: crate::format::VolumeId([1; 16]),
                generation: 1,
                epoch,
                mirrors: Vec::new(),
                holder: Holder::default(),
            };
            ClaimRequest::Take { claim, lease: Duration::ZERO, blank: 0 }
        };
        let journal = TargetFile::Journal { first: TxId(1) };
        let first = Crash::new(Arc::new(Memory::default()));
        first.claim(&claim(1)).unwrap();
        first.write(journal, 0, &[IoSlice::new(b"one")], Durable::Later).unwrap();
        let second = first.open_again();
        assert_eq!(second.list().unwrap(), [(journal, 3)]);
        second.claim(&claim(2)).unwrap();
        assert!(first.write(journal, 3, &[IoSlice::new(b"two")], Durable::Later).is_err());
        assert!(first.sync(journal).is_err(), "nor is what it wrote before made durable by it");
        second.sync(journal).unwrap();
    }

    #[test]
    fn a_crash_keeps_what_was_synced_and_some_of_the_rest() {
        let (mut gone, mut torn, mut kept) = (0, 0, 0);
        for seed in 0..200 {
            let target = Crash::new(Arc::new(Memory::default()));
            target.write(FILE, 0, &[IoSlice::new(&[1; 3000])], Durable::Later).unwrap();
            target.sync(FILE).unwrap();
            target.write(FILE, 3000, &[IoSlice::new(&[2; 3000])], Durable::Later).unwrap();
            target.write(OTHER, 0, &[IoSlice::new(&[3; 3000])], Durable::Later).unwrap();
            target.crash(seed).unwrap();
            let mut bytes = [0; 6000];
            target.read_at(FILE, 0, &mut bytes).unwrap();
            assert_eq!(bytes[..3000], [1; 3000]);
            match target.read_at(OTHER, 0, &mut bytes) {
                Err(_) => gone += 1,
                Ok(3000) if bytes[..3000] == [3; 3000] => kept += 1,
                Ok(_) => torn += 1,
            }
        }
        assert!(gone > 50 && torn > 10 && kept > 10, "{gone} gone, {torn} torn, {kept} kept");
    }
}
