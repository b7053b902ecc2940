//! What a store counts, and what it tells of itself. Its targets are looked at on threads of their own, and what they said last is told: a disk that hangs
//! keeps no report waiting.

use super::master::{DISTRIBUTE, REBUILD};
use super::protocol::method;
use super::service::Store;
use plan::report::{Report, TargetReport, Ticks};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};
use volume::counts::Operation;
use volume::target::Target;

/// How often the targets are looked at.
const LOOK: Duration = Duration::from_secs(1);
/// What a target said of its room is told for so long.
const BELIEVED: Duration = Duration::from_secs(10);

/// The operations that are counted, by what they are called.
const OPERATIONS: [(u16, &str); 17] = [
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
    (method::LOOK, "look"),
    (method::SPACE, "space"),
    (method::PREFETCH, "prefetch"),
    (method::FORMAT, "format"),
    (method::REPORT, "report"),
    (DISTRIBUTE, "distribute"),
    (REBUILD, "rebuild"),
];

/// What a store counts of its requests.
pub(super) struct Counts {
    begun: Instant,
    operations: [Operation; OPERATIONS.len()],
    /// What is asked for and is none of these.
    others: Operation,
    received: AtomicU64,
    sent: AtomicU64,
    /// Connections, and bytes of requests in memory: asked of the server, once there is one.
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
    /// A request was answered.
    pub fn note(&self, method: u16, took: Duration, received: usize, sent: usize, well: bool) {
        let place = OPERATIONS.iter().position(|(number, _)| *number == method);
        let operation = place.map_or(&self.others, |place| &self.operations[place]);
        operation.note(took, well.then_some(received + sent));
        self.received.fetch_add(received as u64, Ordering::Relaxed);
        self.sent.fetch_add(sent as u64, Ordering::Relaxed);
    }
}

/// What is known of a target's room, and how often it was read and written.
#[derive(Debug, Default)]
pub(super) struct Looked {
    space: Mutex<Option<(Instant, (u64, u64))>>,
    looking: AtomicBool,
    accesses: AtomicU64,
}

impl Looked {
    /// An operation on the target begins.
    pub fn access(&self, method: u16) {
        if matches!(method, method::READ | method::WRITE | method::WRITE_DURABLY) {
            self.accesses.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Asks the target for its room, unless that goes on already. For a thread that may wait.
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
        space.filter(|(when, _)| when.elapsed() < BELIEVED).map(|(_, space)| space)
    }
}

impl Store {
    /// Looks at the targets from time to time, as long as the store is there.
    pub fn look_after(self: &Arc<Self>) {
        let weak = Arc::downgrade(self);
        crate::runtime().spawn(look(weak));
    }

    /// Has reports tell of the server that this store is behind.
    pub fn behind<S: wire::Service>(&self, server: &wire::Server<S>) {
        let server = server.clone();
        let _ = self.counts.server.set(Box::new(move || server.load()));
    }

    /// What it tells of itself. Waits for nothing.
    pub fn report(&self) -> Report {
        let load = self.counts.server.get().map(|load| load()).unwrap_or_default();
        let target = |(name, place): (&String, &Arc<super::service::Place>)| TargetReport {
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

    /// The operations that were counted, by name.
    pub fn operations(&self) -> impl Iterator<Item = (&'static str, &Operation)> {
        let known = OPERATIONS.iter().map(|(_, name)| *name).zip(&self.counts.operations);
        known.chain([("other", &self.counts.others)])
    }

    /// Where the time of the stripes went that it coded as Master.
    pub fn write_cost(&self) -> volume::StepTotals {
        self.masters.steps()
    }

    /// What its server has.
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
                // One that hangs has a thread that hangs, and no more than one.
                if !looked.looking.load(Ordering::Acquire) {
                    tokio::task::spawn_blocking(move || looked.look(&*target));
                }
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// What the processors of this machine did; nothing where the system does not tell.
fn processor() -> Ticks {
    parse_processor(&std::fs::read_to_string("/proc/stat").unwrap_or_default())
}

/// Reads the first line: user, nice, system, idle, waiting for I/O, interrupts (two) and stolen.
fn parse_processor(stat: &str) -> Ticks {
    let line = stat.lines().next().and_then(|line| line.strip_prefix("cpu ")).unwrap_or_default();
    let numbers: Vec<u64> = line.split_ascii_whitespace().take(8).map_while(|word| word.parse().ok()).collect();
    let [_, _, _, idle, waiting, ..] = numbers[..] else { return Ticks::default() };
    let all = numbers.iter().fold(0u64, |sum, number| sum.saturating_add(*number));
    Ticks { idle: idle.saturating_add(waiting), all }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_read() {
        let stat = "cpu  10 20 30 400 50 6 7 8 90 0\ncpu0 1 1 1 1\n";
        assert_eq!(parse_processor(stat), Ticks { idle: 450, all: 531 });
        for odd in ["", "cpu", "cpu  1 2 3", "cpu  a b c d e", "intr 1 2 3 4 5 6"] {
            assert_eq!(parse_processor(odd), Ticks::default(), "{odd}");
        }
        assert!(parse_processor(&format!("cpu  {0} {0} {0} {0} {0}", u64::MAX)).all == u64::MAX);
        assert!(processor().all > 0);
    }
}
