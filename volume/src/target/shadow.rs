//! A read-only view of a target: writes stay in memory, and are dropped with it.

use super::{ClaimRequest, ClaimState, Memory, Space, Target, TargetFile};
use std::collections::HashSet;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A target whose changes stay in memory. For small files: a changed file is copied first.
#[derive(Debug)]
pub struct Shadow {
    inner: Arc<dyn Target>,
    over: Memory,
    /// Files that are in memory or were removed.
    hidden: Mutex<HashSet<TargetFile>>,
}

impl Shadow {
    /// Never changes `inner`.
    pub fn new(inner: Arc<dyn Target>) -> Self {
        Self { inner, over: Memory::default(), hidden: Mutex::default() }
    }

    fn hidden(&self) -> MutexGuard<'_, HashSet<TargetFile>> {
        self.hidden.lock().unwrap_or_else(PoisonError::into_inner)
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
            let length = match self.inner.read(file, offset, &mut piece) {
                Err(why) if why.kind() == io::ErrorKind::NotFound => break,
                length => length?,
            };
            self.over.write(file, offset, &[IoSlice::new(&piece[..length])])?;
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
    fn write(&self, file: TargetFile, offset: u64, parts: &[IoSlice<'_>]) -> io::Result<()> {
        self.take(file)?;
        self.over.write(file, offset, parts)
    }

    fn read(&self, file: TargetFile, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.holder(file).read(file, offset, into)
    }

    fn sync(&self, file: TargetFile) -> io::Result<()> {
        if self.hidden().contains(&file) {
            return self.over.sync(file);
        }
        // An unchanged file needs no copy, only a check that it exists.
        self.inner.read(file, 0, &mut [0]).map(drop)
    }

    fn reserve(&self, file: TargetFile, bytes: u64) -> io::Result<()> {
        self.take(file)?;
        self.over.reserve(file, bytes)
    }

    fn trim(&self, _file: TargetFile) -> io::Result<()> {
        Ok(())
    }

    fn punch(&self, file: TargetFile, range: Range<u64>) -> io::Result<()> {
        self.take(file)?;
        self.over.punch(file, range)
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

    fn space(&self) -> io::Result<Space> {
        self.inner.space()
    }

    /// Takes a claim in memory only, even if another holder has the target.
    fn claim(&self, ask: &ClaimRequest) -> io::Result<ClaimState> {
        let own = self.over.claim(&ClaimRequest::Read)?;
        if *ask == ClaimRequest::Read && own.claim.is_none() { self.inner.claim(ask) } else { self.over.claim(ask) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_target() {
        super::super::conformance(&Shadow::new(Arc::new(Memory::default())));
    }

    #[test]
    fn what_is_below_stays() {
        let below = Arc::new(Memory::default());
        let (old, new) = (TargetFile::Journal { first: 1 }, TargetFile::Journal { first: 2 });
        below.write(old, 0, &[IoSlice::new(b"old")]).unwrap();
        let shadow = Shadow::new(below.clone());
        shadow.sync(old).unwrap();
        assert!(shadow.sync(new).is_err() && shadow.over.list().unwrap().is_empty(), "syncing copies nothing");
        shadow.write(old, 1, &[IoSlice::new(b"NEW")]).unwrap();
        shadow.write(new, 0, &[IoSlice::new(b"x")]).unwrap();
        let mut bytes = [0; 9];
        assert_eq!((shadow.read(old, 0, &mut bytes).unwrap(), &bytes[..4]), (4, &b"oNEW"[..]));
        shadow.remove(old).unwrap();
        assert!(shadow.read(old, 0, &mut bytes).is_err());
        assert_eq!(below.list().unwrap(), [(old, 3)]);
        assert_eq!((below.read(old, 0, &mut bytes).unwrap(), &bytes[..3]), (3, &b"old"[..]));
    }
}
