//! What a storage server tells of itself every second, and what two such reports say of the time
//! between them.
//!
//! A report has counters that only grow, and no rates: so several clients may ask one server at any
//! time, a lost report does no harm, and the server need not remember when each of them asked.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// A storage server, looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// When: how long it runs.
    pub uptime: Duration,
    /// What its machine's processors did since that began.
    pub processor: Ticks,
    /// Bytes of data that came to it.
    pub received_bytes: u64,
    /// Bytes of data that it sent.
    pub sent_bytes: u64,
    /// Connections to it.
    pub connections: u32,
    /// Bytes of requests that it has in memory.
    pub request_bytes: u64,
    /// Its targets.
    pub targets: Vec<TargetReport>,
}

/// What a storage server tells of itself beside its [`Report`], in the same message behind it: one
/// of before does not, and one that does not know it leaves it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// Stripes that it coded as Master for clients.
    pub coded_stripes: u64,
    /// User data of these stripes, in bytes.
    pub coded_bytes: u64,
    /// For how long operations of each target waited and ran, all added up, in microseconds; in the
    /// order of the report.
    pub waited: Vec<u64>,
    /// Writes and syncs of chunks, in the same order: how many, and for how long they waited and
    /// ran, all added up, in microseconds.
    pub writes: Vec<(u64, u64)>,
}

/// Time of processors, in a unit that does not matter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ticks {
    /// In which they had nothing to do.
    pub idle: u64,
    /// All of it.
    pub all: u64,
}

/// A target of a storage server, looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetReport {
    /// What the server calls it.
    pub name: String,
    /// Bytes in all and bytes that are free, as last said; None when it does not answer.
    pub space: Option<(u64, u64)>,
    /// Reads and writes of it so far.
    pub accesses: u64,
    /// Operations that it does, and that wait for it.
    pub queued: u32,
}

/// How busy a storage server was between two reports.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Load {
    /// The share of the time in which its processors had nothing to do: 0 to 1.
    pub processor_idle: f64,
    /// Bytes of data in a second, both ways.
    pub network_bytes_per_second: f64,
    /// Reads and writes of each target, in the order of the later report.
    pub accesses: Vec<u64>,
    /// The time that it is of, in seconds.
    pub seconds: f64,
}

/// The targets of the earlier report of two. They are nearly always the same and in the same order,
/// and a metadata server reads thousands of reports in a second: so names are looked up in a map
/// only where one is not in its place.
struct Before<'a> {
    targets: &'a [TargetReport],
    by_name: Option<BTreeMap<&'a str, usize>>,
}

impl<'a> Before<'a> {
    fn of(targets: &'a [TargetReport]) -> Self {
        Self { targets, by_name: None }
    }

    /// The place of a target that has this one in the later report.
    fn place(&mut self, later: usize, name: &str) -> Option<usize> {
        if self.targets.get(later).is_some_and(|target| target.name == name) {
            return Some(later);
        }
        let targets = self.targets;
        let all = || targets.iter().enumerate().map(|(place, target)| (&target.name[..], place)).collect();
        self.by_name.get_or_insert_with(all).get(name).copied()
    }
}

impl Work {
    /// How many operations each target of the later report had on average, waiting and running,
    /// with the report before it and the time between them (Little's law). A server that does not
    /// tell says how many it has at the moment.
    pub fn queues(later: (&Report, &Self), earlier: (&Report, &Self), seconds: f64) -> Vec<f64> {
        let both = Self::both(later, earlier, |work| &work.waited);
        let queue = |(both, target): (Option<(u64, u64)>, &TargetReport)| {
            let waited = both.and_then(|(now, before)| now.checked_sub(before)).filter(|_| seconds > 0.0);
            waited.map_or(f64::from(target.queued), |waited| waited as f64 / 1e6 / seconds)
        };
        both.into_iter().zip(&later.0.targets).map(queue).collect()
    }

    /// Writes and syncs of chunks of each target of the later report since the report before it,
    /// and for how long they waited and ran, all added up, in seconds. 0 of a server that does not
    /// tell.
    pub fn writes(later: (&Report, &Self), earlier: (&Report, &Self)) -> Vec<(u64, f64)> {
        let since = |((count, waited), before): ((u64, u64), (u64, u64))| {
            Some((count.checked_sub(before.0)?, waited.checked_sub(before.1)? as f64 / 1e6))
        };
        let both = Self::both(later, earlier, |work| &work.writes);
        both.into_iter().map(|both| both.and_then(since).unwrap_or_default()).collect()
    }

    /// What is told of each target of the later report, now and in the one before, where both tell.
    fn both<T: Copy>(
        later: (&Report, &Self),
        earlier: (&Report, &Self),
        of: impl Fn(&Self) -> &[T],
    ) -> Vec<Option<(T, T)>> {
        let mut before = Before::of(&earlier.0.targets);
        let both = |(number, target): (usize, &TargetReport)| {
            let place = before.place(number, &target.name)?;
            Some((*of(later.1).get(number)?, *of(earlier.1).get(place)?))
        };
        later.0.targets.iter().enumerate().map(both).collect()
    }
}

impl Load {
    /// What happened between two reports of one server; None when it was started anew between them,
    /// or they are one and the same.
    pub fn between(earlier: &Report, later: &Report) -> Option<Self> {
        let time = later.uptime.checked_sub(earlier.uptime).filter(|time| !time.is_zero())?;
        let received = later.received_bytes.checked_sub(earlier.received_bytes)?;
        let sent = later.sent_bytes.checked_sub(earlier.sent_bytes)?;
        let idle = later.processor.idle.saturating_sub(earlier.processor.idle);
        let all = later.processor.all.saturating_sub(earlier.processor.all);
        let mut before = Before::of(&earlier.targets);
        let since = |(number, target): (usize, &TargetReport)| {
            let place = before.place(number, &target.name);
            target.accesses.saturating_sub(place.map_or(0, |place| earlier.targets[place].accesses))
        };
        Some(Self {
            // Processors of which nothing is known are taken for idle.
            processor_idle: if all == 0 { 1.0 } else { (idle as f64 / all as f64).min(1.0) },
            network_bytes_per_second: (received as f64 + sent as f64) / time.as_secs_f64(),
            accesses: later.targets.iter().enumerate().map(since).collect(),
            seconds: time.as_secs_f64(),
        })
    }

    /// Reads and writes of all targets.
    pub fn all_accesses(&self) -> u64 {
        self.accesses.iter().fold(0, |sum, accesses| sum.saturating_add(*accesses))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(seconds: u64, bytes: u64, ticks: (u64, u64), accesses: &[(&str, u64)]) -> Report {
        let target =
            |&(name, accesses): &(&str, u64)| TargetReport { name: name.into(), accesses, ..Default::default() };
        Report {
            uptime: Duration::from_secs(seconds),
            processor: Ticks { idle: ticks.0, all: ticks.1 },
            received_bytes: bytes,
            sent_bytes: 2 * bytes,
            targets: accesses.iter().map(target).collect(),
            ..Report::default()
        }
    }

    #[test]
    fn two_reports_tell_what_was_between_them() {
        let earlier = report(10, 1000, (50, 100), &[("a", 5), ("b", 7)]);
        let later = report(12, 3000, (200, 300), &[("b", 9), ("new", 4), ("a", 5)]);
        let load = Load::between(&earlier, &later).unwrap();
        assert_eq!((load.processor_idle, load.network_bytes_per_second), (0.75, 3000.0));
        assert_eq!((&load.accesses[..], load.all_accesses()), (&[2, 4, 0][..], 6));
    }

    #[test]
    fn a_server_that_was_started_anew_has_no_before() {
        let (old, new) = (report(10, 1000, (50, 100), &[]), report(1, 10, (60, 120), &[]));
        assert_eq!(Load::between(&old, &new), None);
        assert_eq!(Load::between(&old, &old), None);
        // Also when it has been up for longer than the old one was.
        assert_eq!(Load::between(&old, &report(20, 10, (60, 120), &[])), None);
    }

    #[test]
    fn whatever_is_told_is_taken() {
        let odd = |accesses| Report {
            processor: Ticks { idle: u64::MAX, all: 3 },
            targets: ["a", "a", "b"]
                .map(|name| TargetReport { name: name.into(), accesses, ..Default::default() })
                .into(),
            ..report(1, u64::MAX / 2, (0, 0), &[])
        };
        let load = Load::between(&report(0, 0, (0, 0), &[]), &odd(u64::MAX)).unwrap();
        assert_eq!((load.all_accesses(), load.processor_idle), (u64::MAX, 1.0));
        let later = Report { uptime: Duration::MAX, ..odd(0) };
        assert_eq!(Load::between(&odd(7), &later).unwrap().accesses, [0, 0, 0]);
    }

    #[test]
    fn queues_are_means_or_what_is_there_now() {
        let (earlier, mut later) =
            (report(10, 0, (0, 0), &[("a", 1), ("b", 1)]), report(12, 0, (0, 0), &[("b", 1), ("a", 1)]));
        later.targets.iter_mut().for_each(|target| target.queued = 7);
        let work = |waited: &[u64]| Work { waited: waited.into(), ..Work::default() };
        let queues = |before: &[u64], now: &[u64]| Work::queues((&later, &work(now)), (&earlier, &work(before)), 2.0);
        assert_eq!(queues(&[1_000_000, 0], &[500_000, 4_000_000]), [0.25, 1.5]);
        // One of before, one that was started anew, and nonsense.
        assert_eq!(queues(&[], &[]), [7.0, 7.0]);
        assert_eq!(queues(&[5, 5], &[6, 4]), [5e-7, 7.0]);
        assert_eq!(queues(&[5], &[6]), [7.0, 7.0]);
        let work = |writes: &[(u64, u64)]| Work { writes: writes.into(), ..Work::default() };
        let writes = |before: &[_], now: &[_]| Work::writes((&later, &work(now)), (&earlier, &work(before)));
        assert_eq!(writes(&[(7, 1_000_000), (0, 0)], &[(1, 500_000), (9, 4_000_000)]), [(1, 0.5), (2, 3.0)]);
        assert_eq!(writes(&[], &[]), [(0, 0.0); 2]);
        assert_eq!(writes(&[(5, 5), (5, 5)], &[(6, 6), (6, 4)]), [(1, 1e-6), (0, 0.0)]);
    }

    #[test]
    fn processors_that_tell_nothing_are_idle() {
        let load = Load::between(&report(1, 0, (0, 0), &[]), &report(2, 0, (0, 0), &[])).unwrap();
        assert_eq!(load.processor_idle, 1.0);
    }
}
