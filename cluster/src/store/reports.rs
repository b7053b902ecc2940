//! The latest reports of the stores that this process uses.

use plan::placement::Observed;
use plan::report::{Load, Report, Work};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};
use volume::lock;

/// The known state of a store.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Its latest report.
    pub report: Report,
    /// What it told beside its report; nothing, if it is one of before.
    pub work: Work,
    /// Its load between that report and the one before.
    pub load: Option<Load>,
    /// How many operations each of its targets had on average between the two.
    pub queues: Vec<f64>,
    /// How long it took to report.
    pub took: Duration,
    /// How many reports of it came so far.
    pub number: u64,
    /// When the latest report was requested, from itself or from its prime.
    pub asked: Instant,
    /// When the latest report arrived.
    pub when: Instant,
    /// Why the last request failed; None when it succeeded.
    pub silent: Option<String>,
}

/// The latest reports of all stores.
#[derive(Debug, Default)]
pub struct Reports {
    seen: Mutex<HashMap<String, Seen>>,
    /// The number of panics in asking for them.
    defects: AtomicU64,
}

impl Reports {
    /// The reports by address of the server. A store that never answered is not among them.
    pub fn all(&self) -> BTreeMap<String, Seen> {
        self.seen().iter().map(|(server, seen)| (server.clone(), seen.clone())).collect()
    }

    /// How busy a target of a store was between its last two reports; None as long as there are no
    /// two.
    pub fn observed(&self, server: &str, target: &str) -> Option<Observed> {
        let all = self.seen();
        let seen = all.get(server)?;
        let load = seen.load.as_ref()?;
        let at = seen.report.targets.iter().position(|reported| reported.name == target)?;
        Some(Observed {
            number: seen.number,
            idle: load.processor_idle,
            network: load.network_bytes_per_second,
            accesses: seen.report.targets[at].accesses,
            queue: seen.queues.get(at).copied().unwrap_or(0.0),
            seconds: load.seconds,
            delay: seen.took.as_secs_f64(),
        })
    }

    /// Whether a store did not answer when it was last asked.
    pub(super) fn is_silent(&self, server: &str) -> bool {
        self.seen().get(server).is_some_and(|seen| seen.silent.is_some())
    }

    fn seen(&self) -> MutexGuard<'_, HashMap<String, Seen>> {
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

    /// Takes in what a store reported, or why it did not. An answer to an earlier request than that
    /// of the latest report says nothing new: there are several ways to ask a store, some slower.
    pub(super) fn reported(&self, server: &str, asked: Instant, reported: Result<(Report, Work, Duration), String>) {
        let mut all = self.seen();
        let before = all.get_mut(server);
        if before.as_ref().is_some_and(|seen| asked < seen.asked) {
            return;
        }
        let (report, work, took) = match reported {
            Ok(told) => told,
            Err(why) => {
                if let Some(seen) = before {
                    seen.silent = Some(why);
                }
                return;
            }
        };
        let number = before.as_ref().map_or(0, |before| before.number) + 1;
        let load = before.as_ref().and_then(|before| Load::between(&before.report, &report));
        // Without a time between them, the queue of this moment is all that is known.
        let (earlier, seconds) = match (&before, &load) {
            (Some(before), Some(load)) => ((&before.report, &before.work), load.seconds),
            _ => ((&report, &work), 0.0),
        };
        let queues = Work::queues((&report, &work), earlier, seconds);
        let seen = Seen { report, work, load, queues, took, number, asked, when: Instant::now(), silent: None };
        match before {
            Some(before) => *before = seen,
            None => _ = all.insert(server.into(), seen),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plan::report::TargetReport;

    const TOOK: Duration = Duration::from_millis(2);

    #[test]
    fn what_was_told_stays_known_while_a_store_is_silent() {
        let reports = Reports::default();
        let reported = |seconds, bytes| Report {
            uptime: Duration::from_secs(seconds),
            received_bytes: bytes,
            ..Report::default()
        };
        reports.reported("a", Instant::now(), Err("no answer".into()));
        assert!(reports.all().is_empty());
        reports.reported("a", Instant::now(), Ok((reported(1, 100), Work::default(), TOOK)));
        assert_eq!(reports.all()["a"].load, None);
        reports.reported("a", Instant::now(), Ok((reported(3, 700), Work::default(), TOOK)));
        assert_eq!(reports.all()["a"].load.as_ref().unwrap().network_bytes_per_second, 300.0);
        reports.reported("a", Instant::now(), Err("no answer".into()));
        let seen = &reports.all()["a"];
        assert_eq!((seen.report.received_bytes, seen.silent.as_deref()), (700, Some("no answer")));
        reports.reported("a", Instant::now(), Ok((reported(4, 700), Work::default(), TOOK)));
        assert_eq!(reports.all()["a"].silent, None);
    }

    #[test]
    fn an_answer_to_an_earlier_request_says_nothing_new() {
        let reports = Reports::default();
        let reported =
            |seconds| (Report { uptime: Duration::from_secs(seconds), ..Report::default() }, Work::default(), TOOK);
        let [earlier, later] = [Instant::now(), Instant::now() + TOOK];
        reports.reported("a", later, Ok(reported(2)));
        reports.reported("a", earlier, Ok(reported(1)));
        reports.reported("a", earlier, Err("no answer in time".into()));
        let seen = &reports.all()["a"];
        assert_eq!((seen.number, seen.report.uptime.as_secs(), &seen.silent), (1, 2, &None));
        // Two requests of one moment count.
        reports.reported("a", later, Err("no answer in time".into()));
        assert!(reports.all()["a"].silent.is_some());
    }

    #[test]
    fn two_reports_tell_how_busy_a_target_was() {
        let reports = Reports::default();
        let reported = |seconds, accesses| Report {
            uptime: Duration::from_secs(seconds),
            targets: vec![TargetReport { name: "d".into(), accesses, queued: 3, ..TargetReport::default() }],
            ..Report::default()
        };
        let work = |waited| Work { waited: vec![waited], ..Work::default() };
        reports.reported("a", Instant::now(), Ok((reported(1, 10), work(0), TOOK)));
        assert_eq!(reports.observed("a", "d"), None);
        reports.reported("a", Instant::now(), Ok((reported(3, 30), work(5_000_000), TOOK)));
        let observed =
            Observed { number: 2, idle: 1.0, network: 0.0, accesses: 30, queue: 2.5, seconds: 2.0, delay: 0.002 };
        assert_eq!(reports.observed("a", "d"), Some(observed));
        assert_eq!((reports.observed("a", "e"), reports.observed("b", "d")), (None, None));
        // It was started anew, as a version that tells less.
        reports.reported("a", Instant::now(), Ok((reported(1, 5), Work::default(), TOOK)));
        assert_eq!((reports.observed("a", "d"), &reports.all()["a"].queues[..]), (None, &[3.0][..]));
        reports.reported("a", Instant::now(), Ok((reported(2, 6), Work::default(), TOOK)));
        assert_eq!(reports.observed("a", "d").unwrap().queue, 3.0);
    }
}
