//! A target in memory, for tests.

use super::{Space, Target, TargetFile};
use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The size of a target without a limit, in bytes.
const MUCH: u64 = 1 << 40;

/// Files in memory. Everything is durable at once.
#[derive(Debug, Default)]
pub struct Memory {
    files: Mutex<BTreeMap<TargetFile, Vec<u8>>>,
    /// The capacity in bytes, if limited.
    room: Option<u64>,
}

impl Memory {
    /// A target that holds at most `bytes` bytes. Holes in files count, too.
    pub fn with_room(bytes: u64) -> Self {
        Self { room: Some(bytes), ..Self::default() }
    }

    fn files(&self) -> MutexGuard<'_, BTreeMap<TargetFile, Vec<u8>>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn used(files: &BTreeMap<TargetFile, Vec<u8>>) -> u64 {
    files.values().map(|bytes| bytes.len() as u64).sum()
}

fn missing() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl Target for Memory {
    fn write(&self, file: TargetFile, offset: u64, parts: &[IoSlice<'_>]) -> io::Result<()> {
        let mut files = self.files();
        // As on a disk, the file is created even if the write fails.
        let length = files.entry(file).or_default().len() as u64;
        let end = offset + parts.iter().map(|part| part.len() as u64).sum::<u64>();
        if self.room.is_some_and(|room| used(&files) + end.saturating_sub(length) > room) {
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

    fn read(&self, file: TargetFile, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let files = self.files();
        let bytes = files.get(&file).ok_or_else(missing)?;
        let from = bytes.len().min(offset as usize);
        let length = into.len().min(bytes.len() - from);
        into[..length].copy_from_slice(&bytes[from..from + length]);
        Ok(length)
    }

    fn read_cached(&self, file: TargetFile, offset: u64, into: &mut [u8]) -> Option<usize> {
        self.read(file, offset, into).ok()
    }

    fn sync(&self, file: TargetFile) -> io::Result<()> {
        self.files().get(&file).map(|_| ()).ok_or_else(missing)
    }

    fn reserve(&self, file: TargetFile, _bytes: u64) -> io::Result<()> {
        self.files().entry(file).or_default();
        Ok(())
    }

    fn punch(&self, file: TargetFile, range: Range<u64>) -> io::Result<()> {
        let mut files = self.files();
        let bytes = files.get_mut(&file).ok_or_else(missing)?;
        let end = bytes.len().min(range.end as usize);
        if let Some(hole) = bytes.get_mut(range.start as usize..end) {
            hole.fill(0);
        }
        Ok(())
    }

    fn rename(&self, from: TargetFile, to: TargetFile) -> io::Result<()> {
        let mut files = self.files();
        let bytes = files.remove(&from).ok_or_else(missing)?;
        files.insert(to, bytes);
        Ok(())
    }

    fn remove(&self, file: TargetFile) -> io::Result<()> {
        self.files().remove(&file);
        Ok(())
    }

    fn list(&self) -> io::Result<Vec<(TargetFile, u64)>> {
        Ok(self.files().iter().map(|(&file, bytes)| (file, bytes.len() as u64)).collect())
    }

    fn space(&self) -> io::Result<Space> {
        let (total, used) = (self.room.unwrap_or(MUCH), used(&self.files()));
        Ok(Space { total, free: total.saturating_sub(used), system: std::ptr::from_ref(self) as u64 })
    }
}
