//! A target that counts its operations.

use super::{ClaimRequest, ClaimState, Space, Target, TargetFile};
use crate::lock;
use std::io::{self, IoSlice};
use std::ops::Range;
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
    /// `write`.
    pub write: Cost,
    /// `read`, and those calls of `read_cached` that found the data.
    pub read: Cost,
    /// `sync`.
    pub sync: Cost,
    /// `reserve`.
    pub reserve: Cost,
    /// `punch`.
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
    fn write(&self, file: TargetFile, offset: u64, parts: &[IoSlice<'_>]) -> io::Result<()> {
        let begun = Instant::now();
        let bytes = parts.iter().map(|part| part.len() as u64).sum();
        self.count(|trace| &mut trace.write, begun, bytes, self.inner.write(file, offset, parts))
    }

    fn read(&self, file: TargetFile, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let begun = Instant::now();
        let result = self.inner.read(file, offset, into);
        let bytes = result.as_ref().map_or(0, |&bytes| bytes as u64);
        self.count(|trace| &mut trace.read, begun, bytes, result)
    }

    fn read_cached(&self, file: TargetFile, offset: u64, into: &mut [u8]) -> Option<usize> {
        let begun = Instant::now();
        let length = self.inner.read_cached(file, offset, into)?;
        self.count(|trace| &mut trace.read, begun, length as u64, Ok(length)).ok()
    }

    fn prefetch(&self, file: TargetFile, range: Range<u64>) {
        self.inner.prefetch(file, range);
    }

    fn is_remote(&self) -> bool {
        self.inner.is_remote()
    }

    fn sync(&self, file: TargetFile) -> io::Result<()> {
        let begun = Instant::now();
        self.count(|trace| &mut trace.sync, begun, 0, self.inner.sync(file))
    }

    fn reserve(&self, file: TargetFile, bytes: u64) -> io::Result<()> {
        let begun = Instant::now();
        self.count(|trace| &mut trace.reserve, begun, bytes, self.inner.reserve(file, bytes))
    }

    fn trim(&self, file: TargetFile) -> io::Result<()> {
        self.inner.trim(file)
    }

    fn punch(&self, file: TargetFile, range: Range<u64>) -> io::Result<()> {
        let begun = Instant::now();
        let bytes = range.end - range.start;
        self.count(|trace| &mut trace.punch, begun, bytes, self.inner.punch(file, range))
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

    fn space(&self) -> io::Result<Space> {
        let begun = Instant::now();
        self.count(|trace| &mut trace.space, begun, 0, self.inner.space())
    }

    fn claim(&self, ask: &ClaimRequest) -> io::Result<ClaimState> {
        let begun = Instant::now();
        self.count(|trace| &mut trace.claim, begun, 0, self.inner.claim(ask))
    }
}
