//! A read-only view of a target: writes stay in memory, and are dropped with it.

use super::{
    Allocation, ClaimRequest, ClaimState, Durable, Memory, Owner, Presence, ReadAt, ReadPart, Space, Target,
    TargetFile, Wait, look_by_reading, timed,
};
use crate::lock;
use std::collections::HashSet;
use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// A target whose changes stay in memory. For small files: a changed file is copied first.
#[derive(Debug)]
pub struct Shadow {
    inner: Arc<dyn Target>,
    over: Memory,
    /// Files that are in memory or were removed.
    hidden: Mutex<HashSet<TargetFile>>,
    /// What is below had a claim when the own one was taken.
    had_claim: AtomicBool,
}

impl Shadow {
    /// Never changes `inner`.
    pub fn new(inner: Arc<dyn Target>) -> Self {
        Self { inner, over: Memory::default(), hidden: Mutex::default(), had_claim: AtomicBool::new(false) }
    }

    fn hidden(&self) -> MutexGuard<'_, HashSet<TargetFile>> {
        lock(&self.hidden)
    }

    /// Copies a file into memory before it is changed.
    fn take(&self, file: TargetFile) -> io::Result<()> {
        const COPY_PIECE_BYTES: usize = 1 << 20;
        let mut hidden = self.hidden();
        if hidden.contains(&file) {
            return Ok(());
        }
        let (mut piece, mut offset) = (vec![0; COPY_PIECE_BYTES], 0);
        loop {
            let length = match self.inner.read_at(file, offset, &mut piece) {
                Err(why) if why.kind() == io::ErrorKind::NotFound => break,
                length => length?,
            };
            self.over.write(file, offset, &[IoSlice::new(&piece[..length])], Durable::Later)?;
            offset += length as u64;
            if length < COPY_PIECE_BYTES {
                break;
            }
        }
        hidden.insert(file);
        Ok(())
    }

    /// The target that holds a file.
    fn holder(&self, file: TargetFile) -> &dyn Target {
        if self.hidden().contains(&file) { &self.over } else { &*self.inner }
    }
}

impl Target for Shadow {
    fn write(&self, file: TargetFile, offset: u64, parts: &[IoSlice<'_>], durable: Durable) -> io::Result<Duration> {
        self.take(file)?;
        self.over.write(file, offset, parts, durable)
    }

    /// Only without a time limit: another thread may hold the lock while it copies a file.
    fn read(&self, file: TargetFile, parts: &mut [ReadPart<'_>], wait: Wait) -> io::Result<()> {
        wait.refuse_limit()?;
        self.holder(file).read(file, parts, wait)
    }

    /// Reads cannot time out here, so the threads of the targets do them.
    fn is_remote(&self) -> bool {
        false
    }

    fn sync(&self, file: TargetFile) -> io::Result<Duration> {
        if self.hidden().contains(&file) {
            return self.over.sync(file);
        }
        // An unchanged file needs no copy, only a check that it exists.
        timed(|| self.inner.read_at(file, 0, &mut [0]).map(drop))
    }

    fn allocate(&self, file: TargetFile, change: Allocation) -> io::Result<()> {
        // A copy in memory has no space beyond its end.
        if change == Allocation::Trim {
            return Ok(());
        }
        self.take(file)?;
        self.over.allocate(file, change)
    }

    /// What is below stays as it is.
    fn seal(&self, file: TargetFile) -> io::Result<()> {
        self.holder(file).read_at(file, 0, &mut [0]).map(drop)
    }

    fn rename(&self, from: TargetFile, to: TargetFile) -> io::Result<()> {
        self.take(from)?;
        self.hidden().insert(to);
        self.over.rename(from, to)
    }

    fn remove(&self, file: TargetFile) -> io::Result<()> {
        self.hidden().insert(file);
        self.over.remove(file)
    }

    fn list(&self) -> io::Result<Vec<(TargetFile, u64)>> {
        let mut files = self.inner.list()?;
        let hidden = self.hidden();
        files.retain(|(file, _)| !hidden.contains(file));
        files.extend(self.over.list()?);
        Ok(files)
    }

    fn list_metadata(&self) -> io::Result<Vec<(TargetFile, u64)>> {
        let mut files = self.inner.list_metadata()?;
        let hidden = self.hidden();
        files.retain(|(file, _)| !hidden.contains(file));
        files.extend(self.over.list_metadata()?);
        Ok(files)
    }

    /// Takes a claim in memory only, even if another holder has the target.
    fn claim(&self, ask: &ClaimRequest) -> io::Result<ClaimState> {
        let own = self.over.claim(&ClaimRequest::Read)?;
        match ask {
            ClaimRequest::Read if own.claim.is_none() => self.inner.claim(ask),
            ClaimRequest::Read => {
                let below = self.inner.claim(ask)?;
                let lost = below.claim.is_none() && self.had_claim.load(Ordering::Relaxed);
                // What is below may have lost what it had, and may have a claim again.
                if lost || below.blank != 0 && own.blank == 0 { Ok(below) } else { Ok(own) }
            }
            ClaimRequest::Take { claim, lease, blank } if own.claim.is_none() => {
                // What is below is blank, or not.
                let below = self.inner.claim(&ClaimRequest::Read)?;
                self.had_claim.store(below.claim.is_some(), Ordering::Relaxed);
                let blank = if below.claim.is_some() { below.blank } else { *blank };
                self.over.claim(&ClaimRequest::Take { claim: claim.clone(), lease: *lease, blank })
            }
            _ => self.over.claim(ask),
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use plan::TxId;

    #[test]
    fn it_is_a_target() {
        super::super::conformance(&Shadow::new(Arc::new(Memory::default())));
    }

    #[test]
    fn what_is_below_stays() {
        let below = Arc::new(Memory::default());
        let (old, new) = (TargetFile::Journal { first: TxId(1) }, TargetFile::Journal { first: TxId(2) });
        below.write(old, 0, &[IoSlice::new(b"old")], Durable::Later).unwrap();
        let shadow = Shadow::new(below.clone());
        shadow.sync(old).unwrap();
        assert!(shadow.sync(new).is_err() && shadow.over.list().unwrap().is_empty(), "syncing copies nothing");
        shadow.write(old, 1, &[IoSlice::new(b"NEW")], Durable::Later).unwrap();
        shadow.write(new, 0, &[IoSlice::new(b"x")], Durable::Later).unwrap();
        let mut bytes = [0; 9];
        assert_eq!((shadow.read_at(old, 0, &mut bytes).unwrap(), &bytes[..4]), (4, &b"oNEW"[..]));
        shadow.remove(old).unwrap();
        assert!(shadow.read_at(old, 0, &mut bytes).is_err());
        assert_eq!(below.list().unwrap(), [(old, 3)]);
        assert_eq!((below.read_at(old, 0, &mut bytes).unwrap(), &bytes[..3]), (3, &b"old"[..]));
    }
}
