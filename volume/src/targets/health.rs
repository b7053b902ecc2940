//! The health of the targets: failures, warnings about them, and counts of what was read and
//! written.

use super::{Entry, Targets, lock};
use crate::target::Space;
use crate::unpoisoned;
use plan::TargetId;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The minimum interval between warnings about the same failing target.
const WARNING_INTERVAL: Duration = Duration::from_secs(30);

/// The health of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// The target works.
    Healthy,
    /// The target answers, but an operation on it failed and the failure is not forgiven.
    Failing(String),
    /// The target is missing or does not answer.
    Gone(String),
}

/// The state of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetHealth {
    /// The target.
    pub id: TargetId,
    /// Its health.
    pub health: Health,
    /// Its space, if known.
    pub space: Option<Space>,
    /// Operations that wait for it or run on it.
    pub queued: usize,
    /// Operations that failed since the target was added.
    pub errors: u64,
    /// Bytes of records read from it.
    pub read_bytes: u64,
    /// Bytes of records written to it.
    pub written_bytes: u64,
}

/// The failures of a target, and what was read and written there.
#[derive(Debug, Default)]
pub(super) struct Record {
    /// The last failure that was not forgiven.
    error: Mutex<Option<String>>,
    /// When a warning about it was last given.
    warned: Mutex<Option<Instant>>,
    errors: AtomicU64,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
}

impl Record {
    /// Whether there is no failure that was not forgiven.
    pub fn is_good(&self) -> bool {
        lock(&self.error).is_none()
    }
}

impl Entry {
    fn health(&self, id: TargetId, health: Health, space: Option<Space>) -> TargetHealth {
        TargetHealth {
            id,
            health,
            space,
            queued: self.pool.queued(),
            errors: self.record.errors.load(Ordering::Relaxed),
            read_bytes: self.record.read_bytes.load(Ordering::Relaxed),
            written_bytes: self.record.written_bytes.load(Ordering::Relaxed),
        }
    }
}

impl Targets {
    /// The last failure of a target that was not forgiven.
    pub fn error(&self, id: TargetId) -> Option<String> {
        let entry = self.entry(id)?;
        lock(&entry.record.error).clone()
    }

    /// Whether a target answers: it may hold chunks.
    pub fn is_usable(&self, id: TargetId) -> bool {
        self.space(id).is_ok()
    }

    /// Whether a target answers and has no failure: it may receive chunks.
    pub fn is_healthy(&self, id: TargetId) -> bool {
        self.error(id).is_none() && !self.hangs(id) && self.is_usable(id)
    }

    /// Whether an operation that was given up still runs. It may change what was written later, so
    /// nothing new may be created there.
    pub fn hangs(&self, id: TargetId) -> bool {
        self.entry(id).is_some_and(|entry| entry.pool.hangs())
    }

    /// Whether all threads of a target run operations that were given up: it answers nobody.
    pub fn is_stuck(&self, id: TargetId) -> bool {
        self.entry(id).is_some_and(|entry| entry.pool.is_stuck())
    }

    /// Operations that wait for a target or run on it, of this process.
    pub fn queued(&self, id: TargetId) -> usize {
        self.entry(id).map_or(0, |entry| entry.pool.queued())
    }

    /// Whether to avoid a target if the data can be read elsewhere: an operation on it takes too
    /// long.
    pub(crate) fn is_slow(&self, id: TargetId) -> bool {
        self.entry(id).is_some_and(|entry| entry.pool.is_slow())
    }

    /// The known state of all targets, without a request to them: for callers that must not wait.
    /// The space is the last reported one.
    pub fn known_health(&self) -> Vec<TargetHealth> {
        let entries = self.entries();
        let known = entries.iter().map(|(&id, entry)| {
            let health = match &*lock(&entry.record.error) {
                _ if entry.space.is_absent() => Health::Gone("it does not answer".into()),
                Some(error) => Health::Failing(error.clone()),
                None => Health::Healthy,
            };
            entry.health(id, health, entry.space.known())
        });
        known.collect()
    }

    /// The health of all targets.
    pub fn health(&self) -> Vec<TargetHealth> {
        let entries: Vec<(TargetId, Arc<Entry>)> = self.entries().iter().map(|(id, e)| (*id, e.clone())).collect();
        let health = |(id, entry): (TargetId, Arc<Entry>)| {
            let space = self.space(id);
            let health = match (&space, &*lock(&entry.record.error)) {
                (Err(why), _) => Health::Gone(why.to_string()),
                (Ok(_), Some(error)) => Health::Failing(error.clone()),
                (Ok(_), None) => Health::Healthy,
            };
            entry.health(id, health, space.ok())
        };
        entries.into_iter().map(health).collect()
    }

    /// Records that an operation on a target failed. A full target does not count as failing: other
    /// operations may still use it.
    pub fn failed(&self, id: TargetId, error: &io::Error) {
        use io::ErrorKind as Kind;
        let Some(entry) = self.entry(id) else { return };
        entry.record.errors.fetch_add(1, Ordering::Relaxed);
        if matches!(error.kind(), Kind::StorageFull | Kind::QuotaExceeded) {
            entry.space.note_full();
            return;
        }
        *lock(&entry.record.error) = Some(error.to_string());
        let mut warned = lock(&entry.record.warned);
        if warned.is_none_or(|when| when.elapsed() > WARNING_INTERVAL) {
            *warned = Some(Instant::now());
            drop(warned);
            if let Some(warn) = &*unpoisoned(self.warn.read()) {
                warn(&format!("target {} fails: {error}", id.0));
            }
        }
    }

    /// Clears the failures of a target that answers again. Called when there is a reason to retry
    /// it.
    pub fn forgive(&self, id: TargetId) {
        if let Some(entry) = self.entry(id) {
            *lock(&entry.record.error) = None;
            *lock(&entry.record.warned) = None;
        }
    }

    pub(crate) fn count_read(&self, id: TargetId, bytes: usize) {
        if let Some(entry) = self.entries().get(&id) {
            entry.record.read_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }

    pub(crate) fn count_written(&self, id: TargetId, bytes: usize) {
        if let Some(entry) = self.entries().get(&id) {
            entry.record.written_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }
}
