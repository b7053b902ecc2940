//! The targets of a volume. Each target has its own threads: a slow target does not delay the
//! others, and the caller gives up on one that hangs after a deadline.
//!
//! Here is the registry: which targets there are, by number.

mod ask;
mod batch;
mod health;
mod latency;
mod pool;
mod space;
mod workers;

pub use ask::{Wait, ask_all};
pub(crate) use batch::Batch;
pub use health::{Health, TargetHealth};
pub use space::{Answer, ReportedSpace};

use crate::counts::ReadCounts;
use crate::meter::{Meter, Metered};
use crate::set::Headers;
use crate::steps::Steps;
use crate::target::Target;
use crate::{lock, unpoisoned};
use latency::StragglerTimeout;
use plan::masters::Masters;
use plan::topology::Network;
use plan::{Position, SetId, TargetId};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, RwLock, RwLockReadGuard};
use std::time::Duration;

/// An operation that takes longer counts as failed. If it has begun, it may still take effect.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(15);

type Warn = Box<dyn Fn(&str) + Send + Sync>;

/// A target, its threads, and its state.
#[derive(Debug)]
struct Entry {
    target: Arc<dyn Target>,
    pool: pool::Pool,
    record: health::Record,
    space: space::SpaceReport,
    meter: Arc<Meter>,
}

/// The targets of a volume, by number.
pub struct Targets {
    entries: RwLock<BTreeMap<TargetId, Arc<Entry>>>,
    deadline: Duration,
    warn: RwLock<Option<Warn>>,
    workers: workers::Workers,
    pub(crate) headers: Headers,
    /// Where the time of writes to the targets goes.
    steps: Steps,
    reads: ReadCounts,
    /// How long to wait for a late read.
    pub(crate) read_timeout: StragglerTimeout,
    /// How long to wait for a late Master.
    pub(crate) master_timeout: StragglerTimeout,
    /// Whose turn it is to be the Master.
    masters: Mutex<Masters>,
    /// The Master of all chunk sets that have a chunk on it.
    fixed_master: OnceLock<TargetId>,
    /// Where they are in a torus, for the choice of Masters.
    network: RwLock<Option<Network>>,
}

impl Default for Targets {
    fn default() -> Self {
        Self::with_deadline(OPERATION_TIMEOUT)
    }
}

impl Targets {
    /// Creates an empty set of targets. An operation that takes 15 seconds counts as failed.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an empty set of targets. An operation that takes longer than `deadline` counts as
    /// failed.
    pub fn with_deadline(deadline: Duration) -> Self {
        Self {
            entries: RwLock::default(),
            deadline,
            warn: RwLock::default(),
            workers: workers::Workers::default(),
            headers: Headers::default(),
            steps: Steps::default(),
            reads: ReadCounts::default(),
            read_timeout: StragglerTimeout::default(),
            master_timeout: StragglerTimeout::default(),
            masters: Mutex::default(),
            fixed_master: OnceLock::new(),
            network: RwLock::default(),
        }
    }

    /// Makes a target the Master of all chunk sets that have a chunk on it. Only the first call has
    /// an effect.
    pub fn fix_master(&self, id: TargetId) {
        let _ = self.fixed_master.set(id);
    }

    /// Says where the targets and this process are in a torus: the Master of a stripe is rather one
    /// with which its blocks cross few links.
    pub fn set_network(&self, network: Option<Network>) {
        *unpoisoned(self.network.write()) = network;
    }

    /// The position of the Master for a stripe of this many bytes and `data` data blocks, among
    /// those that are willing.
    pub(crate) fn master(
        &self,
        set: SetId,
        willing: &[Option<TargetId>],
        data: usize,
        bytes: usize,
    ) -> Option<Position> {
        let fixed = self.fixed_master.get().and_then(|id| Position::placed(willing).find(|(_, there)| there == id));
        let by_turns = || {
            let network = unpoisoned(self.network.read());
            let links = |id| {
                let Network { places, client } = network.as_ref()?;
                places.links(client.as_ref(), data, id, willing)
            };
            lock(&self.masters).next_by_way(set, willing, bytes, links)
        };
        fixed.map(|(position, _)| position).or_else(by_turns)
    }

    /// A Master took so long for a stripe of this many bytes, or was given up after it.
    pub(crate) fn master_took(&self, id: TargetId, bytes: usize, took: Duration) {
        lock(&self.masters).took(id, bytes, took);
    }

    /// Sets `warn`, which gets one line when a target begins to fail, and again from time to time
    /// while it keeps failing.
    pub fn on_warning(&self, warn: Box<dyn Fn(&str) + Send + Sync>) {
        *unpoisoned(self.warn.write()) = Some(warn);
    }

    /// Where the time of writes to the targets goes. All writers count here.
    pub fn steps(&self) -> &Steps {
        &self.steps
    }

    /// Counts reads that were not plain reads of sound data blocks.
    pub fn reads(&self) -> &ReadCounts {
        &self.reads
    }

    fn entries(&self) -> RwLockReadGuard<'_, BTreeMap<TargetId, Arc<Entry>>> {
        unpoisoned(self.entries.read())
    }

    fn entry(&self, id: TargetId) -> Option<Arc<Entry>> {
        self.entries().get(&id).cloned()
    }

    /// Adds a target, or replaces the one with this number. Its threads start with the first
    /// operation.
    pub fn add(&self, id: TargetId, target: Arc<dyn Target>) {
        let (pool, record, space, meter) = Default::default();
        let entry = Arc::new(Entry { target, pool, record, space, meter });
        unpoisoned(self.entries.write()).insert(id, entry);
    }

    /// Removes a target.
    pub fn remove(&self, id: TargetId) {
        unpoisoned(self.entries.write()).remove(&id);
    }

    /// How long a read of a target usually takes, if there was one.
    pub(crate) fn usual_read(&self, id: TargetId) -> Option<Duration> {
        self.entries().get(&id)?.meter.usual_read()
    }

    pub(crate) fn meter(&self, id: TargetId) -> Option<Arc<Meter>> {
        self.entries().get(&id).map(|entry| entry.meter.clone())
    }

    /// What this process asked each target for, and how long that waited.
    pub fn metered(&self) -> Vec<(TargetId, Metered)> {
        self.entries().iter().map(|(&id, entry)| (id, entry.meter.counted())).collect()
    }

    /// The numbers of all targets.
    pub fn ids(&self) -> Vec<TargetId> {
        self.entries().keys().copied().collect()
    }

    /// A target.
    pub fn get(&self, id: TargetId) -> Option<Arc<dyn Target>> {
        self.entries().get(&id).map(|entry| entry.target.clone())
    }
}

impl std::fmt::Debug for Targets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.entries().iter().map(|(id, entry)| (id.0, &entry.target))).finish()
    }
}
