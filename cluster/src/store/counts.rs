//! What a store counts: its requests, and the accesses and the space of its targets.

use super::master::{DISTRIBUTE, REBUILD};
use super::protocol::method;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};
use volume::counts::Operation;
use volume::lock;
use volume::target::{Target, TargetFile};
use volume::{Meter, Metering};

/// How long the report uses a target's last answer about its space.
const SPACE_VALID_FOR: Duration = Duration::from_secs(10);

/// The counted operations and their names.
pub(super) const OPERATIONS: [(u16, &str); 19] = [
    (method::WRITE, "write"),
    (method::READ, "read"),
    (method::SYNC, "sync"),
    (method::WRITE_DURABLY, "write_durably"),
    (method::RESERVE, "reserve"),
    (method::TRIM, "trim"),
    (method::PUNCH, "punch"),
    (method::RENAME, "rename"),
    (method::REMOVE, "remove"),
    (method::LIST, "list"),
    (method::PRESENCE, "look"),
    (method::SPACE, "space"),
    (method::FORMAT, "format"),
    (method::CLAIM, "claim"),
    (method::SEAL, "seal"),
    (method::REPORT, "report"),
    (method::GATHER, "gather"),
    (DISTRIBUTE, "distribute"),
    (REBUILD, "rebuild"),
];

/// The counters of a store's requests.
pub(super) struct Counts {
    pub begun: Instant,
    pub operations: [Operation; OPERATIONS.len()],
    /// Requests with any other operation.
    pub others: Operation,
    pub received: AtomicU64,
    pub sent: AtomicU64,
    /// Returns the connections and the bytes of requests in memory. It is set once there is a
    /// server.
    pub server: OnceLock<Box<dyn Fn() -> wire::ServerLoad + Send + Sync>>,
}

impl Default for Counts {
    fn default() -> Self {
        Self {
            begun: Instant::now(),
            operations: Default::default(),
            others: Operation::default(),
            received: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            server: OnceLock::new(),
        }
    }
}

impl Counts {
    /// Counts an answered request.
    pub fn note(&self, method: u16, took: Duration, received: usize, sent: usize, well: bool) {
        let place = OPERATIONS.iter().position(|(number, _)| *number == method);
        let operation = place.map_or(&self.others, |place| &self.operations[place]);
        operation.note(took, well.then_some(received + sent));
        self.received.fetch_add(received as u64, Ordering::Relaxed);
        self.sent.fetch_add(sent as u64, Ordering::Relaxed);
    }
}

/// A target's space, and how often its chunks were read and written.
#[derive(Debug, Default)]
pub(super) struct Looked {
    space: Mutex<Option<(Instant, (u64, u64))>>,
    looking: AtomicBool,
    accesses: AtomicU64,
    /// How often chunks were written and synced, and how long that took.
    writes: Arc<Meter>,
    /// How long operations wait and run.
    pub meter: Arc<Meter>,
}

impl Looked {
    /// Counts an operation that begins on a file of the target. A write or sync of a chunk is timed
    /// until what this returns is dropped: that is what the writer of a new chunk waits for, and no
    /// read from a cache is among it. Metadata is not counted: in a cluster without work, the few
    /// targets that have it would look hot beside all others.
    pub fn access(&self, method: u16, file: TargetFile) -> Option<Metering> {
        let is_chunk = matches!(file, TargetFile::Chunk { .. } | TargetFile::NewChunk { .. });
        if is_chunk && matches!(method, method::READ | method::WRITE | method::WRITE_DURABLY) {
            self.accesses.fetch_add(1, Ordering::Relaxed);
        }
        let is_timed = is_chunk && matches!(method, method::WRITE | method::WRITE_DURABLY | method::SYNC);
        is_timed.then(|| self.writes.begin())
    }

    /// Asks the target for its space, unless another thread is doing so. The calling thread must be
    /// one that may block.
    pub fn look(&self, target: &dyn Target) {
        if self.looking.swap(true, Ordering::AcqRel) {
            return;
        }
        if let Ok(space) = target.space() {
            let found = Some((Instant::now(), (space.total, space.free)));
            *lock(&self.space) = found;
        }
        self.looking.store(false, Ordering::Release);
    }

    /// Whether a thread asks the target now.
    pub fn is_asked(&self) -> bool {
        self.looking.load(Ordering::Acquire)
    }

    /// The number of operations that read or write chunks.
    pub fn accesses(&self) -> u64 {
        self.accesses.load(Ordering::Relaxed)
    }

    /// Writes and syncs of chunks, and for how long they waited and ran, all added up, in
    /// microseconds.
    pub fn writes(&self) -> (u64, u64) {
        let counted = self.writes.counted();
        (counted.accesses, counted.waited.as_micros() as u64)
    }

    /// For how long operations waited and ran, all added up.
    pub fn waited(&self) -> Duration {
        self.meter.counted().waited
    }

    /// The last answer, total and free bytes, if it is not too old.
    pub fn space(&self) -> Option<(u64, u64)> {
        let space = lock(&self.space);
        space.filter(|(when, _)| when.elapsed() < SPACE_VALID_FOR).map(|(_, space)| space)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plan::{Position, SetId, TxId};

    #[test]
    fn accesses_are_reads_and_writes_of_chunks() {
        let (looked, chunk) = (Looked::default(), TargetFile::Chunk { set: SetId(1), position: Position(0) });
        [method::READ, method::WRITE, method::WRITE_DURABLY]
            .iter()
            .for_each(|&method| drop(looked.access(method, chunk)));
        drop(looked.access(method::SYNC, chunk));
        [TargetFile::Journal { first: TxId(1) }, TargetFile::Snapshot { last: TxId(1) }, TargetFile::Label]
            .iter()
            .for_each(|&file| drop(looked.access(method::WRITE_DURABLY, file)));
        assert_eq!(looked.accesses(), 3);
        // One sync, and no read.
        assert_eq!(looked.writes().0, 3);
    }
}
