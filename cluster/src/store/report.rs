//! A store's report. Separate threads ask the targets for their space, and the report contains the
//! latest answers: a disk that hangs delays no report.

use super::counts::OPERATIONS;
use super::service::Store;
use super::slots::TargetSlot;
use plan::report::{Report, TargetReport, Ticks, Work};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;
use volume::counts::Operation;

/// How often the targets are asked.
const TARGET_POLL_INTERVAL: Duration = Duration::from_secs(1);
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
        self.report_and_work().0
    }

    /// The report, and what goes with it, of the same targets: others may come at any time.
    pub(super) fn report_and_work(&self) -> (Report, Work) {
        let slots = self.slots.all();
        let (coded_stripes, coded_bytes) = self.masters.coded();
        let waited = slots.iter().map(|(_, place)| place.looked.waited().as_micros() as u64).collect();
        let writes = slots.iter().map(|(_, place)| place.looked.writes()).collect();
        let load = self.counts.server.get().map(|load| load()).unwrap_or_default();
        let target = |(name, place): (String, Arc<TargetSlot>)| TargetReport {
            name,
            space: place.looked.space(),
            accesses: place.looked.accesses(),
            queued: place.queued() as u32,
        };
        let report = Report {
            uptime: self.counts.begun.elapsed(),
            processor: processor(),
            received_bytes: self.counts.received.load(Ordering::Relaxed),
            sent_bytes: self.counts.sent.load(Ordering::Relaxed),
            connections: load.connections as u32,
            request_bytes: load.bytes,
            targets: slots.into_iter().map(target).collect(),
        };
        (report, Work { coded_stripes, coded_bytes, waited, writes })
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
            for (_, place) in store.slots.all() {
                let Ok(target) = place.target() else { continue };
                let looked = place.looked.clone();
                // A target that hangs blocks one thread, never more.
                if !looked.is_asked() {
                    tokio::task::spawn_blocking(move || looked.look(&*target));
                }
            }
        }
        tokio::time::sleep(TARGET_POLL_INTERVAL).await;
    }
}

/// Processor time of this machine; zeroes where the system does not provide it.
fn processor() -> Ticks {
    let processors = volume::machine::processors().unwrap_or_default();
    Ticks { idle: processors.idle, all: processors.all() }
}
