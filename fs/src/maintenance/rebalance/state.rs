//! What is stored of rebalancing, and how far the one is that runs.

use crate::{FileSystem, Result};
use plan::repair::time_left;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use volume::{Control, lock};

/// The setting in the metadata.
const SETTING: &str = "rebalance";

/// Bytes of chunks that are moved in a second, unless it is set: of the order of a tenth of what a
/// disk does.
pub const DEFAULT_LIMIT: u64 = 32 << 20;

/// What is stored with the volume about its rebalancing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RebalanceSetting {
    /// Nothing is moved.
    pub paused: bool,
    /// It begins only when it is asked for.
    pub by_hand: bool,
    /// A rebalancing has begun and has not ended. A process that opens the volume continues it.
    pub begun: bool,
    /// Bytes of chunks that are moved in a second; None for the default.
    pub limit: Option<u64>,
}

/// What a rebalancing did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rebalanced {
    /// Chunks that were moved.
    pub chunks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Chunk sets that could not be moved, and why the first of them.
    pub failed: (u64, Option<String>),
    /// Chunks that break the rule about domains, and that no target may take.
    pub stuck: u64,
}

/// What it does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Doing {
    /// Nothing.
    Nothing,
    /// It moves chunks.
    Moving,
    /// It waits, and why.
    Waiting(&'static str),
}

/// How far a rebalancing is.
#[derive(Clone, Debug)]
pub struct RebalanceStatus {
    /// What is stored.
    pub setting: RebalanceSetting,
    /// What it does.
    pub doing: Doing,
    /// Bytes of chunks that were moved since it began, and that are to be moved in all; the latter
    /// is an estimate.
    pub bytes: (u64, u64),
    /// The time since it began.
    pub elapsed: Duration,
    /// The estimated time to the end.
    pub left: Option<Duration>,
    /// The result of the last one in this process, and how long ago it ended.
    pub last: Option<(Duration, std::result::Result<Rebalanced, String>)>,
}

impl RebalanceStatus {
    /// Bytes a second on average.
    pub fn bytes_per_second(&self) -> u64 {
        (self.bytes.0 as f64 / self.elapsed.as_secs_f64().max(1e-3)) as u64
    }
}

/// The rebalancing of an open volume.
#[derive(Debug, Default)]
pub(crate) struct Rebalancing {
    /// Whether it may begin by itself here.
    pub by_itself: AtomicBool,
    pub running: Mutex<Option<Running>>,
    /// Held while the setting is read, changed and stored: no change undoes another.
    changes: Mutex<()>,
    last: Mutex<Option<Ended>>,
    /// No more of it: the volume is being closed.
    pub ends: AtomicBool,
}

#[derive(Debug)]
struct Ended {
    when: Instant,
    how: std::result::Result<Rebalanced, String>,
}

/// One that runs.
#[derive(Debug)]
pub(crate) struct Running {
    pub begun: Instant,
    pub control: Arc<Control>,
    pub total: Arc<AtomicU64>,
    pub doing: Doing,
}

impl Rebalancing {
    /// Stops it for good, as the volume is being closed.
    pub fn stop(&self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(running) = &*lock(&self.running) {
            running.control.cancel();
        }
    }

    pub fn ended(&self, how: std::result::Result<Rebalanced, String>) {
        *lock(&self.last) = Some(Ended { when: Instant::now(), how });
    }

    pub fn set_doing(&self, doing: Doing) {
        if let Some(running) = &mut *lock(&self.running) {
            running.doing = doing;
        }
    }
}

impl FileSystem {
    /// What is stored about rebalancing.
    ///
    /// # Errors
    /// When the metadata cannot be read, or another process has it.
    pub fn rebalance_setting(&self) -> Result<RebalanceSetting> {
        Ok(self.engine()?.meta.setting(SETTING)?.unwrap_or_default())
    }

    /// Changes what is stored about rebalancing, and returns what is stored then. One that runs
    /// obeys at once.
    ///
    /// # Errors
    /// When the metadata cannot be written.
    pub fn set_rebalance(&self, change: impl FnOnce(&mut RebalanceSetting)) -> Result<RebalanceSetting> {
        self.writable()?;
        let _changes = lock(&self.rebalancing.changes);
        let old = self.rebalance_setting()?;
        let mut new = old;
        change(&mut new);
        if new != old {
            let meta = &self.engine()?.meta;
            meta.sync(meta.put_setting(SETTING, &new)?)?;
        }
        if new.paused || new.limit != old.limit {
            // One that is to go on with another limit begins anew.
            if let Some(running) = &*lock(&self.rebalancing.running) {
                running.control.cancel();
            }
        }
        Ok(new)
    }

    /// How far the rebalancing is.
    ///
    /// # Errors
    /// When the metadata cannot be read, or another process has it.
    pub fn rebalance_status(&self) -> Result<RebalanceStatus> {
        let setting = self.rebalance_setting()?;
        let last = lock(&self.rebalancing.last).as_ref().map(|last| (last.when.elapsed(), last.how.clone()));
        let running = lock(&self.rebalancing.running);
        let Some(Running { begun, control, total, doing }) = &*running else {
            let (bytes, elapsed) = ((0, 0), Duration::ZERO);
            return Ok(RebalanceStatus { setting, doing: Doing::Nothing, bytes, elapsed, left: None, last });
        };
        let bytes = (control.done_bytes(), total.load(Ordering::Relaxed).max(control.done_bytes()));
        let elapsed = begun.elapsed();
        let left = time_left(bytes.0, bytes.1, elapsed);
        Ok(RebalanceStatus { setting, doing: doing.clone(), bytes, elapsed, left, last })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_has_fixed_bytes() {
        let setting = RebalanceSetting { paused: true, by_hand: false, begun: true, limit: Some(300) };
        assert_eq!(postcard::to_stdvec(&setting).unwrap(), [1, 0, 1, 1, 0xAC, 2]);
        assert_eq!(postcard::to_stdvec(&RebalanceSetting::default()).unwrap(), [0, 0, 0, 0]);
    }
}
