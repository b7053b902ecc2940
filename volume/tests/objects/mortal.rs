//! A process that is killed after some of its operations: from then on none has an effect.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use volume::target::{
    Allocation, ClaimRequest, ClaimState, Durable, Owner, Presence, ReadPart, Space, Target, TargetFile, Wait,
    look_by_reading,
};

/// How many more changes the process makes on all its targets.
#[derive(Debug)]
pub struct Life(AtomicU64);

impl Life {
    pub fn of(changes: u64) -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(changes)))
    }

    fn change(&self) -> io::Result<()> {
        let spent = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        spent.map(drop).map_err(|_| io::Error::other("the process was killed"))
    }
}

/// A target of such a process.
#[derive(Debug)]
pub struct Mortal {
    pub inner: Arc<dyn Target>,
    pub life: Arc<Life>,
}

impl Target for Mortal {
    fn write(&self, file: TargetFile, offset: u64, parts: &[IoSlice<'_>], durable: Durable) -> io::Result<Duration> {
        self.life.change()?;
        self.inner.write(file, offset, parts, durable)
    }

    fn read(&self, file: TargetFile, parts: &mut [ReadPart<'_>], wait: Wait) -> io::Result<()> {
        self.inner.read(file, parts, wait)
    }

    fn look(&self, files: &[TargetFile]) -> io::Result<Vec<Presence>> {
        look_by_reading(self, files)
    }

    fn is_remote(&self) -> bool {
        false
    }

    fn sync(&self, file: TargetFile) -> io::Result<Duration> {
        self.life.change()?;
        self.inner.sync(file)
    }

    fn allocate(&self, file: TargetFile, change: Allocation) -> io::Result<()> {
        self.life.change()?;
        self.inner.allocate(file, change)
    }

    fn seal(&self, file: TargetFile) -> io::Result<()> {
        self.life.change()?;
        self.inner.seal(file)
    }

    fn rename(&self, from: TargetFile, to: TargetFile) -> io::Result<()> {
        self.life.change()?;
        self.inner.rename(from, to)
    }

    fn remove(&self, file: TargetFile) -> io::Result<()> {
        self.life.change()?;
        self.inner.remove(file)
    }

    fn list(&self) -> io::Result<Vec<(TargetFile, u64)>> {
        self.inner.list()
    }

    fn list_metadata(&self) -> io::Result<Vec<(TargetFile, u64)>> {
        self.inner.list_metadata()
    }

    fn claim(&self, ask: &ClaimRequest) -> io::Result<ClaimState> {
        self.inner.claim(ask)
    }

    fn space(&self) -> io::Result<Space> {
        self.inner.space()
    }

    fn owner(&self) -> Option<Owner<'_>> {
        None
    }
}
