//! The latest reports of the stores that this process uses.

use plan::report::{Load, Report};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;
use volume::lock;

/// The known state of a store.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Its latest report.
    pub report: Report,
    /// Its load between that report and the one before.
    pub load: Option<Load>,
    /// When the latest report arrived.
    pub when: Instant,
    /// Why the last request failed; None when it succeeded.
    pub silent: Option<String>,
}

/// The latest reports of all stores.
#[derive(Debug, Default)]
pub struct Reports {
    seen: Mutex<BTreeMap<String, Seen>>,
    /// The number of panics in asking for them.
    defects: AtomicU64,
}

impl Reports {
    /// The reports by address of the server. A store that never answered is not among them.
    pub fn all(&self) -> BTreeMap<String, Seen> {
        self.seen().clone()
    }

    fn seen(&self) -> MutexGuard<'_, BTreeMap<String, Seen>> {
        lock(&self.seen)
    }

    /// The number of panics in asking the stores and in telling them the live sessions. Both went
    /// on with their next round.
    pub fn defects(&self) -> u64 {
        self.defects.load(Ordering::Relaxed)
    }

    /// Counts a panic.
    pub(super) fn count_defect(&self) {
        self.defects.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes in what a store reported, or why it did not.
    pub(super) fn reported(&self, server: &str, reported: Result<Report, String>) {
        let mut all = self.seen();
        match reported {
            Ok(report) => {
                let load = all.get(server).and_then(|before| Load::between(&before.report, &report));
                all.insert(server.into(), Seen { report, load, when: Instant::now(), silent: None });
            }
            Err(why) => {
                if let Some(seen) = all.get_mut(server) {
                    seen.silent = Some(why);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_was_told_stays_known_while_a_store_is_silent() {
        let reports = Reports::default();
        let reported = |seconds, bytes| Report {
            uptime: Duration::from_secs(seconds),
            received_bytes: bytes,
            ..Report::default()
        };
        reports.reported("a", Err("no answer".into()));
        assert!(reports.all().is_empty());
        reports.reported("a", Ok(reported(1, 100)));
        assert_eq!(reports.all()["a"].load, None);
        reports.reported("a", Ok(reported(3, 700)));
        assert_eq!(reports.all()["a"].load.as_ref().unwrap().network_bytes_per_second, 300.0);
        reports.reported("a", Err("no answer".into()));
        let seen = &reports.all()["a"];
        assert_eq!((seen.report.received_bytes, seen.silent.as_deref()), (700, Some("no answer")));
        reports.reported("a", Ok(reported(4, 700)));
        assert_eq!(reports.all()["a"].silent, None);
    }
}
