//! That targets are level after all, where each is slow at times.

use super::tests::{equal, placer, report};
use crate::placement::policies::mix;
use crate::placement::{Report, TargetCandidate, Tuning};
use crate::{SetId, TargetId};

/// The least and the most chunks of a target beside the mean, after 300 intervals of five sets
/// in which a target is `busy` or not.
fn spread(tuning: Tuning, busy: impl Fn(u64, u16) -> bool) -> (f64, f64) {
    // Nearly empty: only the accounts see to evenness.
    let empty = |target| TargetCandidate { free: 1 << 50, total: 1 << 50, domain: None, ..target };
    let targets: Vec<TargetCandidate> = equal(20).into_iter().map(empty).collect();
    let mut placer = placer(&targets, tuning, 3);
    let mut counts = [0.0f64; 20];
    for interval in 0..300 {
        let load = |id| match busy(interval, id) {
            true => Report { service: 0.4, ..report(0.1, 10.0, 0) },
            false => Report { service: 0.1, ..report(0.9, 10.0, 0) },
        };
        let loads: Vec<_> = (0..20).map(|id| (TargetId(id), load(id))).collect();
        placer.handle_loads(&loads, true);
        for set in (interval * 5..interval * 5 + 5).map(SetId) {
            placer.place(set).into_iter().flatten().for_each(|id| counts[usize::from(id.0)] += 1.0);
        }
    }
    let mean = counts.iter().sum::<f64>() / 20.0;
    (counts.iter().copied().fold(f64::INFINITY, f64::min) / mean, counts.iter().copied().fold(0.0, f64::max) / mean)
}

/// Each target is busy for a fifth of all times of 10 intervals, by chance.
#[test]
fn what_a_target_missed_it_gets_back() {
    let busy = |interval: u64, id: u16| mix(interval / 10, id.into()).is_multiple_of(5);
    let (least, most) = spread(Tuning::default(), busy);
    assert!(least > 0.93 && most < 1.07, "{least} {most}");
    let (least, most) = spread(Tuning { evenness: 0.0, ..Tuning::default() }, busy);
    assert!(least < 0.9 && most > 1.07, "{least} {most}");
}

#[test]
fn who_is_slow_all_the_time_stays_behind() {
    let (least, most) = spread(Tuning::default(), |_, id| id < 4);
    assert!(least < 0.45 && most < 1.3, "{least} {most}");
}

#[test]
fn a_new_target_begins_without_a_debt() {
    let mut placer = placer(&equal(20), Tuning::default(), 3);
    for interval in 0..40 {
        (0..10).for_each(|set| drop(placer.place(SetId(interval * 10 + set))));
        placer.handle_interval();
    }
    placer.handle_members(&equal(25));
    placer.handle_interval();
    let leads: Vec<f64> = placer.members.iter().map(|member| member.account.lead).collect();
    assert!(leads[20..].iter().all(|lead| lead.abs() < 0.1), "{leads:?}");
}
