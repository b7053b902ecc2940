//! A store's counters and its report. Separate threads ask the targets for their space, and the
//! report contains the latest answers: a disk that hangs delays no report.

use super::master::{DISTRIBUTE, REBUILD};
use super::protocol::method;
use super::service::Store;
use plan::processors::Processors;
use plan::report::{Report, TargetReport, Ticks};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};
use volume::counts::Operation;
use volume::target::Target;

/// How often the targets are asked.
const TARGET_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How long the report uses a target's last answer about its space.
const SPACE_VALID_FOR: Duration = Duration::from_secs(10);

/// The counted operations and their names.
const OPERATIONS: [(u16, &str); 18] = [
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
    (method::PREFETCH, "prefetch"),
    (method::FORMAT, "format"),
    (method::CLAIM, "claim"),
    (method::REPORT, "report"),
    (DISTRIBUTE, "distribute"),
    (REBUILD, "rebuild"),
];

/// The counters of a store's requests.
pub(super) struct Counts {
    begun: Instant,
    operations: [Operation; OPERATIONS.len()],
    /// Requests with any other operation.
    others: Operation,
    received: AtomicU64,
    sent: AtomicU64,
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

/// A target's space, and how often it was read and written.
#[derive(Debug, Default)]
pub(super) struct Looked {
    space: Mutex<Option<(Instant, (u64, u64))>>,
    looking: AtomicBool,
    accesses: AtomicU64,
}

impl Looked {
    /// Counts an operation that begins on the target.
    pub fn access(&self, method: u16) {
        if matches!(method, method::READ | method::WRITE | method::WRITE_DURABLY) {
            self.accesses.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Asks the target for its space, unless another thread is doing so. The calling thread must be
    /// one that may block.
    fn look(&self, target: &dyn Target) {
        if self.looking.swap(true, Ordering::AcqRel) {
            return;
        }
        if let Ok(space) = target.space() {
            let found = Some((Instant::now(), (space.total, space.free)));
            *self.space.lock().unwrap_or_else(PoisonError::into_inner) = found;
        }
        self.looking.store(false, Ordering::Release);
    }

    fn space(&self) -> Option<(u64, u64)> {
        let space = self.space.lock().unwrap_or_else(PoisonError::into_inner);
        space.filter(|(when, _)| when.elapsed() < SPACE_VALID_FOR).map(|(_, space)| space)
    }
}

impl Store {
    /// Asks the targets for their space from time to time, as long as the store exists.
    pub fn look_after(self: &Arc<Self>) {
        let weak = Arc::downgrade(self);
        crate::runtime().spawn(look(weak));
    }

    /// Makes reports include the load of the server in front of this store.
    pub fn behind<S: wire::Service>(&self, server: &wire::Server<S>) {
        let server = server.clone();
        let _ = self.counts.server.set(Box::new(move || server.load()));
    }

    /// The store's report. This call does not block.
    pub fn report(&self) -> Report {
        let load = self.counts.server.get().map(|load| load()).unwrap_or_default();
        let target = |(name, place): (&String, &Arc<super::service::TargetSlot>)| TargetReport {
            name: name.clone(),
            space: place.looked.space(),
            accesses: place.looked.accesses.load(Ordering::Relaxed),
            queued: place.queued() as u32,
        };
        Report {
            uptime: self.counts.begun.elapsed(),
            processor: processor(),
            received_bytes: self.counts.received.load(Ordering::Relaxed),
            sent_bytes: self.counts.sent.load(Ordering::Relaxed),
            connections: load.connections as u32,
            request_bytes: load.bytes,
            targets: self.places.iter().map(target).collect(),
        }
    }

    /// The counters of the operations, by name.
    pub fn operations(&self) -> impl Iterator<Item = (&'static str, &Operation)> {
        let known = OPERATIONS.iter().map(|(_, name)| *name).zip(&self.counts.operations);
        known.chain([("other", &self.counts.others)])
    }

    /// How long the steps took of the stripes that this store coded as Master.
    pub fn write_cost(&self) -> volume::StepTotals {
        self.masters.steps()
    }

    /// The load of the store's server.
    pub fn server_load(&self) -> wire::ServerLoad {
        self.counts.server.get().map(|load| load()).unwrap_or_default()
    }
}

async fn look(store: Weak<Store>) {
    loop {
        {
            let Some(store) = store.upgrade() else { return };
            for place in store.places.values() {
                let Ok(target) = place.target() else { continue };
                let looked = place.looked.clone();
                // A target that hangs blocks one thread, never more.
                if !looked.looking.load(Ordering::Acquire) {
                    tokio::task::spawn_blocking(move || looked.look(&*target));
                }
            }
        }
        tokio::time::sleep(TARGET_POLL_INTERVAL).await;
    }
}

/// Processor time of this machine; zeroes where the system does not provide it.
fn processor() -> Ticks {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let processors = Processors::parse(&stat).unwrap_or_default();
    Ticks { idle: processors.idle, all: processors.all() }
}
