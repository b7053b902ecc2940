//! The latest reports of the stores that this process uses.

use super::told::read_over;
use fs::Gauge;
use plan::placement::Observed;
use plan::report::{Load, Report, Work};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
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
    /// Writes and syncs of chunks of each target between the two, and for how long they waited and
    /// ran, all added up, in seconds.
    pub writes: Vec<(u64, f64)>,
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
    stores: Mutex<HashMap<String, Arc<Slot>>>,
    /// The number of panics in asking for them.
    defects: AtomicU64,
}

/// The latest report of a store.
#[derive(Debug, Default)]
pub(super) struct Slot(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    seen: Option<Seen>,
    /// The report before that, whose memory the next one uses.
    before: (Report, Work),
    /// Who wants to know of its targets.
    gauges: Vec<TargetGauge>,
}

#[derive(Debug)]
struct TargetGauge {
    target: String,
    /// Its place in the report, as long as it has the same.
    at: usize,
    gauge: Gauge,
}

impl Reports {
    /// The reports by address of the server. A store that never answered is not among them.
    pub fn all(&self) -> BTreeMap<String, Seen> {
        let seen = |(server, slot): (&String, &Arc<Slot>)| Some((server.clone(), slot.known().seen.clone()?));
        lock(&self.stores).iter().filter_map(seen).collect()
    }

    /// How busy a target of a store was between its last two reports, now and from now on; None as
    /// long as there are no two.
    pub fn gauge(&self, server: &str, target: &str) -> Gauge {
        let slot = self.slot(server);
        let mut known = slot.known();
        let Known { seen, gauges, .. } = &mut *known;
        if let Some(there) = gauges.iter().find(|there| there.target == target) {
            return there.gauge.clone();
        }
        let mut new = TargetGauge { target: target.to_owned(), at: 0, gauge: Gauge::default() };
        seen.iter().for_each(|seen| new.show(seen));
        let gauge = new.gauge.clone();
        gauges.push(new);
        gauge
    }

    /// Where the reports of a store are kept.
    pub(super) fn slot(&self, server: &str) -> Arc<Slot> {
        let mut stores = lock(&self.stores);
        if let Some(slot) = stores.get(server) {
            return slot.clone();
        }
        stores.entry(server.to_owned()).or_default().clone()
    }

    /// Whether a store did not answer when it was last asked.
    pub(super) fn is_silent(&self, server: &str) -> bool {
        let slot = lock(&self.stores).get(server).cloned();
        slot.is_some_and(|slot| slot.known().seen.as_ref().is_some_and(|seen| seen.silent.is_some()))
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
}

impl Slot {
    fn known(&self) -> MutexGuard<'_, Known> {
        lock(&self.0)
    }

    /// Takes in what the store reported, or why it did not. An answer to an earlier request than
    /// that of the latest report says nothing new: there are several ways to ask a store, some
    /// slower.
    ///
    /// # Errors
    /// When the report cannot be read; then nothing is known of this request.
    pub fn reported(&self, asked: Instant, reported: Result<(&[u8], Duration), String>) -> Result<(), String> {
        let mut known = self.known();
        let Known { seen, before, gauges } = &mut *known;
        if seen.as_ref().is_some_and(|seen| asked < seen.asked) {
            return Ok(());
        }
        let (told, took) = match reported {
            Ok(told) => told,
            Err(why) => {
                if let Some(seen) = seen {
                    seen.silent = Some(why);
                }
                return Ok(());
            }
        };
        let (report, work) = before;
        read_over(told, report, work)?;
        let load = seen.as_ref().and_then(|seen| Load::between(&seen.report, report));
        // Without a time between them, the queue of this moment is all that is known.
        let (earlier, seconds) = match (&seen, &load) {
            (Some(seen), Some(load)) => ((&seen.report, &seen.work), load.seconds),
            _ => ((&*report, &*work), 0.0),
        };
        let queues = Work::queues((report, work), earlier, seconds);
        let writes = Work::writes((report, work), earlier);
        let when = Instant::now();
        let seen = match seen {
            Some(seen) => {
                std::mem::swap(&mut seen.report, report);
                std::mem::swap(&mut seen.work, work);
                (seen.load, seen.queues, seen.took, seen.silent) = (load, queues, took, None);
                seen.writes = writes;
                (seen.number, seen.asked, seen.when) = (seen.number + 1, asked, when);
                seen
            }
            None => {
                let (report, work) = std::mem::take(before);
                seen.insert(Seen { report, work, load, queues, writes, took, number: 1, asked, when, silent: None })
            }
        };
        gauges.iter_mut().for_each(|gauge| gauge.show(seen));
        Ok(())
    }
}

impl TargetGauge {
    fn show(&mut self, seen: &Seen) {
        let targets = &seen.report.targets;
        if targets.get(self.at).is_none_or(|target| target.name != self.target) {
            self.at = targets.iter().position(|target| target.name == self.target).unwrap_or(usize::MAX);
        }
        let observed = |load: &Load| {
            Some(Observed {
                number: seen.number,
                idle: load.processor_idle,
                network: load.network_bytes_per_second,
                accesses: targets.get(self.at)?.accesses,
                queue: seen.queues.get(self.at).copied().unwrap_or(0.0),
                measured: seen.writes.get(self.at).copied().unwrap_or_default(),
                seconds: load.seconds,
                delay: seen.took.as_secs_f64(),
            })
        };
        self.gauge.set(seen.load.as_ref().and_then(observed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plan::report::TargetReport;

    const TOOK: Duration = Duration::from_millis(2);

    impl Reports {
        fn reported(&self, server: &str, asked: Instant, told: Result<(Report, Work, Duration), String>) {
            let bytes = |report: &Report, work: &Work| {
                [postcard::to_stdvec(report).unwrap(), postcard::to_stdvec(work).unwrap()].concat()
            };
            let told = told.map(|(report, work, took)| (bytes(&report, &work), took));
            let told = told.as_ref().map(|(told, took)| (&told[..], *took)).map_err(Clone::clone);
            self.slot(server).reported(asked, told).unwrap();
        }

        fn observed(&self, server: &str, target: &str) -> Option<Observed> {
            self.gauge(server, target).get()
        }
    }

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
        let work =
            |waited| Work { waited: vec![waited], writes: vec![(waited / 250_000, waited / 5 * 3)], ..Work::default() };
        reports.reported("a", Instant::now(), Ok((reported(1, 10), work(0), TOOK)));
        assert_eq!(reports.observed("a", "d"), None);
        reports.reported("a", Instant::now(), Ok((reported(3, 30), work(5_000_000), TOOK)));
        let observed = Observed {
            number: 2,
            idle: 1.0,
            network: 0.0,
            accesses: 30,
            queue: 2.5,
            measured: (20, 3.0),
            seconds: 2.0,
            delay: 0.002,
        };
        assert_eq!(reports.observed("a", "d"), Some(observed));
        assert_eq!((reports.observed("a", "e"), reports.observed("b", "d")), (None, None));
        // What cannot be read changes nothing, and targets may change their places.
        assert!(reports.slot("a").reported(Instant::now(), Ok((&[0xFF; 9], TOOK))).is_err());
        assert_eq!(reports.observed("a", "d"), Some(observed));
        let (gauge, mut moved) = (reports.gauge("a", "d"), reported(4, 40));
        moved.targets.insert(0, TargetReport { name: "c".into(), ..TargetReport::default() });
        reports.reported("a", Instant::now(), Ok((moved, work(0), TOOK)));
        assert_eq!(gauge.get().map(|seen| (seen.number, seen.accesses)), Some((3, 40)));
        reports.reported("a", Instant::now(), Ok((Report { targets: Vec::new(), ..reported(5, 0) }, work(0), TOOK)));
        assert_eq!(gauge.get(), None);
        // It was started anew, as a version that tells less.
        reports.reported("a", Instant::now(), Ok((reported(1, 5), Work::default(), TOOK)));
        assert_eq!((reports.observed("a", "d"), &reports.all()["a"].queues[..]), (None, &[3.0][..]));
        reports.reported("a", Instant::now(), Ok((reported(2, 6), Work::default(), TOOK)));
        assert_eq!(reports.observed("a", "d").unwrap().queue, 3.0);
    }
}
