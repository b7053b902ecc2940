//! From what servers report to the loads that policies look at.
//!
//! Counters go in and shares come out, once in an interval:
//!
//! - **Temperature** is equation 4 over the accesses of each interval ([`super::temperature`]).
//! - **Network**: the bytes that a server moves in a second, as a share of the most that any server
//!   was ever seen to move, or of 125 MB if that is more: a link of 1 Gbit/s. Nobody has to say how
//!   fast links are, and a cluster that does little does not look busy.
//! - **Idle** is the idle share of the server's processors, at least a quarter, times what the
//!   queue of the target leaves. The paper has processors only, which are the same for all stores
//!   of a machine, and which a slow disk leaves idle: its accesses fall, it gets cold, and its
//!   score rises. Its queue tells, and so does the time that the server takes to report, where
//!   its processors or its link are the trouble: that is seen from outside. The quarter is there
//!   as processors that are all busy would hide every queue. With q operations waiting or running
//!   at a time and a mean of M over all targets (at least 1), M / (M + q) is left: 1/2 for the
//!   usual target of a busy cluster, 1 for one without work; with M = 1 it is the idle share of a
//!   server with a queue of that length (M/M/1). Of the times to report the same share is left,
//!   with a mean of at least 10 ms.

use super::placer::{Placer, Report};
use super::score::median;
use super::temperature::{Tau, Temperatures};
use crate::TargetId;
use crate::by_target::ByTarget;
use serde::Serialize;

/// The bytes per second of the slowest network that anybody would build a cluster on.
const LEAST_NETWORK: f64 = 125e6;
/// Nobody is slow who reports within this time, in seconds.
const LEAST_DELAY: f64 = 0.01;
/// The least idle share of processors that counts.
const LEAST_IDLE: f64 = 0.25;
/// The weight of the newest queue. One interval says little of a target with few operations.
const NEWEST: f64 = 0.5;

/// A target as its server reported it last.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Observed {
    /// The number of the report: another one with each.
    pub number: u64,
    /// The idle share of the server's processors, 0 to 1.
    pub idle: f64,
    /// Bytes that the server moved in a second, both ways.
    pub network: f64,
    /// Reads and writes of the target so far.
    pub accesses: u64,
    /// Operations that waited for the target or ran on it, on average since the report before.
    pub queue: f64,
    /// Writes and syncs of chunks since the report before, and for how long they waited and ran,
    /// all added up, in seconds; 0 where the server does not tell.
    pub measured: (u64, f64),
    /// The time between this report and the one before, in seconds.
    pub seconds: f64,
    /// How long the server took to report, in seconds; 0 where nobody was asked.
    pub delay: f64,
}

/// How busy a target is, for people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct TargetLoad {
    /// Reads and writes in a second.
    pub accesses_per_second: f64,
    /// Operations that wait for it or run on it, on average.
    pub queue: f64,
    /// The idle share of its server's processors, 0 to 1.
    pub idle: f64,
    /// The used share of its server's network, 0 to 1.
    pub network: f64,
    /// Accesses, of which older ones count less.
    pub temperature: f64,
    /// How long its server takes to report, in seconds.
    pub delay: f64,
    /// How long a write or sync of a chunk takes that waits for no other one, in seconds; 0 where
    /// that is not measured.
    pub service: f64,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    number: u64,
    accesses: u64,
    load: TargetLoad,
    /// The interval in which it reported last.
    reported: u64,
}

/// What is known of a target that is not accessed is forgotten in about so many intervals.
const FORGET_INTERVALS: f64 = 30.0;

/// Makes loads of reports.
#[derive(Clone, Debug)]
pub struct Observer {
    temperatures: Temperatures,
    known: ByTarget<Known>,
    /// The number of this interval.
    interval: u64,
    fastest: f64,
}

impl Observer {
    /// That has seen nothing.
    pub fn new(tau: Tau) -> Self {
        Self { temperatures: Temperatures::new(tau), known: ByTarget::default(), interval: 1, fastest: LEAST_NETWORK }
    }

    /// Takes in the last reports of the volume's targets, and tells the placer of those that are
    /// new. Reports of which the observer knows already change nothing, so it may be called at any
    /// time. An interval ends when a target reports for the second time in it.
    pub fn handle(&mut self, seen: &[(TargetId, Observed)], placer: &mut Placer) {
        let is_new = |(id, observed): &&(TargetId, Observed)| {
            self.known.get(*id).is_none_or(|known| known.number != observed.number)
        };
        let new: Vec<(TargetId, Observed)> = seen.iter().filter(is_new).copied().collect();
        if new.is_empty() {
            return;
        }
        let (mut accesses, mut interval_ends) = (Vec::with_capacity(new.len()), false);
        let usual = median(self.known.values().map(|known| known.load.service));
        for (id, observed) in &new {
            let before = self.known.get(*id);
            // A counter that falls begins anew. The first report says nothing of an interval.
            let more = before.map(|known| observed.accesses.checked_sub(known.accesses).unwrap_or(observed.accesses));
            let old = before.map_or((observed.queue, observed.delay), |known| (known.load.queue, known.load.delay));
            let mean = |old: f64, new: f64| amount(old) + NEWEST * (amount(new) - amount(old));
            if observed.network.is_finite() {
                self.fastest = self.fastest.max(observed.network);
            }
            let taken = service(observed.measured, observed.seconds);
            let known_service = before.map(|known| known.load.service);
            let load = TargetLoad {
                accesses_per_second: per_second(more.unwrap_or(0), observed.seconds),
                queue: mean(old.0, observed.queue),
                service: match (known_service.filter(|known| *known > 0.0), taken) {
                    (Some(known), Some(taken)) => mean(known, taken),
                    // One that nobody asks is as the others again after a while: it may be faster.
                    (Some(known), None) => known + (usual - known) / FORGET_INTERVALS,
                    (None, taken) => taken.unwrap_or(0.0),
                },
                delay: mean(old.1, observed.delay),
                idle: observed.idle,
                network: observed.network / self.fastest,
                temperature: 0.0,
            };
            let reported = before.map_or(0, |known| known.reported);
            interval_ends |= reported == self.interval;
            let known = Known { number: observed.number, accesses: observed.accesses, load, reported };
            self.known.insert(*id, known);
            accesses.extend(more.map(|more| (*id, more)));
        }
        self.temperatures.handle_interval(&accesses);
        self.interval += u64::from(interval_ends);
        let mean = |of: fn(&TargetLoad) -> f64| {
            self.known.values().map(|known| of(&known.load)).sum::<f64>() / self.known.len().max(1) as f64
        };
        let (queue, delay) = (mean(|load| load.queue).max(1.0), mean(|load| load.delay).max(LEAST_DELAY));
        let report = |(id, _): &(TargetId, Observed)| {
            let Known { load, reported, .. } = self.known.get_mut(*id)?;
            (load.temperature, *reported) = (self.temperatures.of(*id), self.interval);
            let idle = load.idle.max(LEAST_IDLE) * left(load.queue, queue) * left(load.delay, delay);
            let TargetLoad { queue, network, temperature, service, delay: answer, .. } = *load;
            Some((*id, Report { idle, network, temperature, queue, service, answer, free: 0, total: 0 }))
        };
        let reports: Vec<(TargetId, Report)> = new.iter().filter_map(report).collect();
        placer.handle_loads(&reports, interval_ends);
    }

    /// Forgets targets that are not the volume's any more.
    pub fn retain(&mut self, is_there: impl Fn(TargetId) -> bool) {
        self.known.retain(&is_there);
        self.temperatures.retain(is_there);
    }

    /// How busy a target is; None as long as nothing is known of it.
    pub fn load(&self, id: TargetId) -> Option<TargetLoad> {
        self.known.get(id).map(|known| known.load)
    }

    /// What stays of a temperature after an interval at present.
    pub fn tau(&self) -> f64 {
        self.temperatures.tau()
    }
}

/// The share of a target's time that its queue leaves, or that of a server's.
fn left(queue: f64, usual: f64) -> f64 {
    usual / (usual + queue)
}

/// How long an access takes that waits for no other one. Accesses share a target fairly, so each
/// takes as many times as long as there are accesses, itself included. None where nothing was asked
/// of the target.
fn service((accesses, waited): (u64, f64), seconds: f64) -> Option<f64> {
    let (waited, seconds) = (amount(waited), amount(seconds));
    // One that hangs all the time counts as one that takes as long.
    let is_known = seconds > 0.0 && waited > 0.0 && (accesses > 0 || waited > seconds / 2.0);
    is_known.then(|| waited / accesses.max(1) as f64 / (waited / seconds + 1.0))
}

/// Servers are not trusted to report numbers.
fn amount(value: f64) -> f64 {
    if value.is_nan() { 0.0 } else { value.clamp(0.0, 1e9) }
}

fn per_second(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::TargetState;
    use crate::placement::{Rules, TargetCandidate, Tuning};

    const RULES: Rules = Rules { width: 4, spare: 2, domain_level: None, need: 1 };

    fn placer(targets: u16) -> Placer {
        let candidate = |id| TargetCandidate {
            id: TargetId(id),
            free: 1 << 40,
            total: 1 << 40,
            domain: None,
            state: TargetState::Up,
            load: None,
        };
        let mut placer = Placer::new(RULES, Tuning::default(), 1);
        placer.handle_members(&(0..targets).map(candidate).collect::<Vec<_>>());
        placer
    }

    /// Two reports of eight targets: the first two have a long queue, and so fewer accesses.
    fn two_slow(number: u64) -> Vec<(TargetId, Observed)> {
        let observed = |id: u16| {
            let (queue, speed) = if id < 2 { (6.0, 10) } else { (0.3, 40) };
            let (accesses, measured) = (number * speed, (speed, queue));
            Observed { number, idle: 0.9, network: 1e6, accesses, queue, measured, seconds: 1.0, delay: 0.001 }
        };
        (0..8).map(|id| (TargetId(id), observed(id))).collect()
    }

    #[test]
    fn slow_targets_get_fewer_chunks_and_none_starves() {
        let (mut observer, mut placer) = (Observer::new(Tau::Tuned), placer(8));
        let mut counts = [0; 8];
        for set in 0..400 {
            if set % 10 == 0 {
                observer.handle(&two_slow(1 + set / 10), &mut placer);
            }
            let placed = placer.place(crate::SetId(set));
            placed.into_iter().flatten().for_each(|id| counts[usize::from(id.0)] += 1);
        }
        let slow = counts[..2].iter().max().unwrap();
        let (least, most) = (counts[2..].iter().min().unwrap(), counts[2..].iter().max().unwrap());
        assert!(*slow * 2 < *least && counts[..2].iter().all(|&count| count > 20), "{counts:?}");
        assert!(*most < least * 3 / 2, "{counts:?}");
    }

    #[test]
    fn processors_that_are_all_busy_hide_no_queue() {
        let (mut observer, mut placer) = (Observer::new(Tau::Tuned), placer(8));
        for number in 1..6 {
            let mut all = two_slow(number);
            all.iter_mut().for_each(|(_, observed)| (observed.idle, observed.accesses) = (0.0, 10 * number));
            observer.handle(&all, &mut placer);
        }
        let counts = (0..200).map(crate::SetId).fold([0; 8], |mut counts, set| {
            placer.place(set).into_iter().flatten().for_each(|id| counts[usize::from(id.0)] += 1);
            counts
        });
        let slow = counts[..2].iter().max().unwrap();
        assert!(counts[2..].iter().all(|count| slow < count), "{counts:?}");
    }

    #[test]
    fn loads_are_of_the_interval_and_old_reports_change_nothing() {
        let (mut observer, mut placer) = (Observer::new(Tau::Fixed(0.5)), placer(8));
        (1..=3).for_each(|number| observer.handle(&two_slow(number), &mut placer));
        let load = observer.load(TargetId(3)).unwrap();
        assert_eq!((load.accesses_per_second, load.temperature, load.idle), (40.0, 60.0, 0.9));
        assert!(load.network < 0.01 && load.queue > 0.29 && load.queue < 0.31, "{load:?}");
        let before = placer.candidates();
        observer.handle(&two_slow(3), &mut placer);
        assert_eq!(placer.candidates(), before);
        // A server that was started anew counts from zero; one that tells nonsense is believed
        // nothing.
        let odd = Observed { number: 9, queue: f64::NAN, network: f64::NAN, accesses: 5, ..Observed::default() };
        observer.handle(&[(TargetId(3), odd)], &mut placer);
        assert_eq!(observer.load(TargetId(3)).unwrap().temperature, 35.0);
        observer.retain(|id| id != TargetId(3));
        assert_eq!(observer.load(TargetId(3)), None);
    }

    #[test]
    fn a_silent_target_gets_older_with_each_report_of_the_others() {
        let (mut observer, mut placer) = (Observer::new(Tau::Tuned), placer(8));
        observer.handle(&two_slow(1), &mut placer);
        for number in 2..10 {
            observer.handle(&two_slow(number)[1..], &mut placer);
        }
        let ages: Vec<f64> = placer.candidates().iter().map(|target| target.load.unwrap().age).collect();
        assert!(ages[0] >= 7.0 && ages[1..].iter().all(|age| *age == 0.0), "{ages:?}");
    }

    /// One that is stopped most of the time has nothing to do, as far as it can see.
    #[test]
    fn who_reports_late_has_a_lower_score() {
        let (mut observer, mut placer) = (Observer::new(Tau::Tuned), placer(8));
        for number in 1..6 {
            let seen = (0..8).map(|id| {
                let delay = if id == 3 { 0.08 } else { 0.003 };
                (
                    TargetId(id),
                    Observed { number, idle: 0.9, accesses: 10 * number, seconds: 1.0, delay, ..Observed::default() },
                )
            });
            observer.handle(&seen.collect::<Vec<_>>(), &mut placer);
        }
        let counts = (0..200).map(crate::SetId).fold([0; 8], |mut counts, set| {
            placer.place(set).into_iter().flatten().for_each(|id| counts[usize::from(id.0)] += 1);
            counts
        });
        assert!(counts[3] * 2 < counts[4] && counts[3] > 10, "{counts:?}");
    }

    #[test]
    fn the_network_is_a_share_of_the_fastest() {
        let (mut observer, mut placer) = (Observer::new(Tau::Tuned), placer(2));
        let observed = |number, network| Observed { number, network, ..Observed::default() };
        observer.handle(&[(TargetId(0), observed(1, 1.25e9)), (TargetId(1), observed(1, 2.5e8))], &mut placer);
        assert_eq!(observer.load(TargetId(1)).unwrap().network, 0.2);
        observer.handle(&[(TargetId(0), observed(2, 0.0)), (TargetId(1), observed(2, 2.5e8))], &mut placer);
        assert_eq!(observer.load(TargetId(1)).unwrap().network, 0.2);
    }
}
