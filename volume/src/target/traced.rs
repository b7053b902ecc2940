//! A target that counts its operations.

use super::{
    Allocation, ClaimRequest, ClaimState, Durable, Owner, Presence, ReadPart, Space, Target, TargetFile, Wait,
};
use crate::lock;
use std::io::{self, ErrorKind, IoSlice};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The cost of one kind of operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// The number of operations.
    pub operations: u64,
    /// How many of them failed.
    pub errors: u64,
    /// Bytes moved, reserved or released.
    pub bytes: u64,
    /// Their total time.
    pub time: Duration,
}

/// The cost of all operations on a target, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// `write`, durable or not.
    pub write: Cost,
    /// `read`, but not those calls that the target declined because they would have to wait.
    pub read: Cost,
    /// `sync`.
    pub sync: Cost,
    /// `allocate` that reserves.
    pub reserve: Cost,
    /// `allocate` that punches.
    pub punch: Cost,
    /// `rename`.
    pub rename: Cost,
    /// `remove`.
    pub remove: Cost,
    /// `list`.
    pub list: Cost,
    /// `space`.
    pub space: Cost,
    /// `claim`.
    pub claim: Cost,
}

/// Decorates another target and counts its operations.
#[derive(Debug)]
pub struct Traced {
    inner: Arc<dyn Target>,
    trace: Mutex<Trace>,
}

/// Selects the cost of a kind.
type Kind = fn(&mut Trace) -> &mut Cost;

impl Traced {
    /// Starts with all counters at zero.
    pub fn new(inner: Arc<dyn Target>) -> Self {
        Self { inner, trace: Mutex::default() }
    }

    /// The counters so far.
    pub fn trace(&self) -> Trace {
        *lock(&self.trace)
    }

    fn count<T>(&self, kind: Kind, begun: Instant, bytes: u64, result: io::Result<T>) -> io::Result<T> {
        let time = begun.elapsed();
        let mut trace = lock(&self.trace);
        let cost = kind(&mut trace);
        cost.operations += 1;
        cost.time += time;
        match result {
            Ok(_) => cost.bytes += bytes,
            Err(_) => cost.errors += 1,
        }
        result
    }
}

impl Target for Traced {
    fn write(&self, file: TargetFile, offset: u64, parts: &[IoSlice<'_>], durable: Durable) -> io::Result<Duration> {
        let begun = Instant::now();
        let bytes = parts.iter().map(|part| part.len() as u64).sum();
        self.count(|trace| &mut trace.write, begun, bytes, self.inner.write(file, offset, parts, durable))
    }

    fn read(&self, file: TargetFile, parts: &mut [ReadPart<'_>], wait: Wait) -> io::Result<()> {
        let begun = Instant::now();
        let result = self.inner.read(file, parts, wait);
        // What the target cannot do, or not now, is no operation.
        if result.as_ref().is_err_and(|why| matches!(why.kind(), ErrorKind::WouldBlock | ErrorKind::Unsupported)) {
            return result;
        }
        let bytes = parts.iter().map(|part| part.read as u64).sum();
        self.count(|trace| &mut trace.read, begun, bytes, result)
    }

    fn is_remote(&self) -> bool {
        self.inner.is_remote()
    }

    fn sync(&self, file: TargetFile) -> io::Result<Duration> {
        let begun = Instant::now();
        self.count(|trace| &mut trace.sync, begun, 0, self.inner.sync(file))
    }

    fn allocate(&self, file: TargetFile, change: Allocation) -> io::Result<()> {
        let (kind, bytes): (Kind, u64) = match &change {
            Allocation::Reserve(bytes) => (|trace| &mut trace.reserve, *bytes),
            Allocation::Trim => return self.inner.allocate(file, change),
            Allocation::Punch(range) => (|trace| &mut trace.punch, range.end - range.start),
        };
        let begun = Instant::now();
        self.count(kind, begun, bytes, self.inner.allocate(file, change))
    }

    fn seal(&self, file: TargetFile) -> io::Result<()> {
        self.inner.seal(file)
    }

    fn rename(&self, from: TargetFile, to: TargetFile) -> io::Result<()> {
        let begun = Instant::now();
        self.count(|trace| &mut trace.rename, begun, 0, self.inner.rename(from, to))
    }

    fn remove(&self, file: TargetFile) -> io::Result<()> {
        let begun = Instant::now();
        self.count(|trace| &mut trace.remove, begun, 0, self.inner.remove(file))
    }

    fn list(&self) -> io::Result<Vec<(TargetFile, u64)>> {
        let begun = Instant::now();
        self.count(|trace| &mut trace.list, begun, 0, self.inner.list())
    }

    fn list_metadata(&self) -> io::Result<Vec<(TargetFile, u64)>> {
        let begun = Instant::now();
        self.count(|trace| &mut trace.list, begun, 0, self.inner.list_metadata())
    }

    fn claim(&self, ask: &ClaimRequest) -> io::Result<ClaimState> {
        let begun = Instant::now();
        self.count(|trace| &mut trace.claim, begun, 0, self.inner.claim(ask))
    }

    fn look(&self, files: &[TargetFile]) -> io::Result<Vec<Presence>> {
        self.inner.look(files)
    }

    fn space(&self) -> io::Result<Space> {
        let begun = Instant::now();
        self.count(|trace| &mut trace.space, begun, 0, self.inner.space())
    }

    /// None: what a Master does would not be counted.
    fn owner(&self) -> Option<Owner<'_>> {
        None
    }
}
