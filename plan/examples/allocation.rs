//! The time of one allocation among 10,000 targets in 500 cabinets, and what reports cost the
//! metadata server, told by each target or by primes.
//!
//! ```text
//! cargo run --release -p plan --example allocation
//! ```

use plan::membership::TargetState;
use plan::placement::score::{Coefficients, Typical};
use plan::placement::{Adaptive, Placer, Report, Rules, TargetCandidate, Tuning, place};
use plan::topology::summary::{CabinetSummary, SubNetworkSummary, tell};
use plan::topology::{Layers, Primes};
use plan::{SetId, TargetId};
use std::collections::BTreeMap;
use std::time::Duration;

const TARGETS: u16 = 10_000;
const IN_CABINET: u16 = 20;
const SETS: u64 = 200_000;
const INTERVALS: u32 = 50;

fn main() {
    let targets: Vec<TargetCandidate> = (0..TARGETS).map(target).collect();
    for (width, spare) in [(6, 2), (8, 2), (14, 4), (24, 4)] {
        let rules = Rules { width, spare, domain_level: Some(3), need: 64 << 20 };
        let mut placer = Placer::new(rules, Tuning::default(), 1);
        placer.handle_members(&targets);
        report_all(&mut placer);
        let begin = processor_time();
        for set in 0..SETS {
            // Between two reports some hundred sets are placed.
            if set % 1000 == 999 {
                placer.handle_interval();
            }
            std::hint::black_box(placer.place(SetId(set)));
        }
        let each = (processor_time() - begin).as_secs_f64() * 1e6 / SETS as f64;
        println!("{TARGETS} targets, {width} chunks: {each:.2} us for a set");
        let begin = processor_time();
        (0..20).for_each(|set| drop(std::hint::black_box(place(&Adaptive::default(), &targets, &rules, SetId(set)))));
        println!("  as a policy without memory: {:.0} us", (processor_time() - begin).as_secs_f64() * 1e6 / 20.0);
    }
    reports(&targets);
}

/// The processor time of this thread, so that other programs do not count. Where the system does
/// not tell, real time.
fn processor_time() -> Duration {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = told.and_then(|text| text.split(' ').next()?.parse().ok());
    nanoseconds.map_or_else(|| std::time::UNIX_EPOCH.elapsed().unwrap_or_default(), Duration::from_nanos)
}

fn target(id: u16) -> TargetCandidate {
    let cabinet = id / IN_CABINET;
    let domain = format!("net{}/row{}/cabinet{cabinet}/host{id}", cabinet / 100, cabinet / 10).parse().ok();
    let total = [4, 8, 16][usize::from(id % 3)] << 40;
    TargetCandidate { id: TargetId(id), free: total, total, domain, state: TargetState::Up, load: None }
}

fn report_of(id: u16) -> Report {
    let (idle, total) = (f64::from(id % 11) / 10.0, [4, 8, 16][usize::from(id % 3)] << 40);
    let queue = f64::from(id % 11);
    let load = Report { queue, service: 0.01, answer: 0.001, ..Report::default() };
    Report { idle, network: 1.0 - idle, temperature: f64::from(id % 101), free: total, total, ..load }
}

fn report_all(placer: &mut Placer) {
    (0..TARGETS).for_each(|id| placer.handle_report(TargetId(id), &report_of(id)));
    placer.handle_interval();
}

/// The processor time of the reports of one interval, as a part of a second.
fn reports(targets: &[TargetCandidate]) {
    let rules = Rules { width: 8, spare: 2, domain_level: Some(3), need: 64 << 20 };
    let mut placer = Placer::new(rules, Tuning::default(), 1);
    placer.handle_members(targets);
    let begin = processor_time();
    (0..INTERVALS).for_each(|_| report_all(&mut placer));
    println!("reports of {TARGETS} targets: {:.2} ms", ((processor_time() - begin) / INTERVALS).as_secs_f64() * 1e3);

    let layers = Layers::of(targets.iter().map(|target| (target.id, target.domain.as_ref())), 3);
    let begin = processor_time();
    let primes: Primes = layers.primes(|_| true);
    println!(
        "choosing {} primes of cabinets: {:.2} ms",
        primes.cabinets.len(),
        (processor_time() - begin).as_secs_f64() * 1e3
    );
    let typical = Typical { idle: 0.5, network: 0.5, temperature: 50.0, ..Typical::default() };
    let cabinet = |(name, ids): (&String, &Vec<TargetId>)| {
        let of: Vec<TargetCandidate> = ids.iter().map(|id| targets[usize::from(id.0)].clone()).collect();
        CabinetSummary::of(name, &of, &typical, &Coefficients::default())
    };
    let network = |(name, rows): (&String, &BTreeMap<String, BTreeMap<String, Vec<TargetId>>>)| {
        SubNetworkSummary::of(name, rows.values().map(|row| row.iter().map(cabinet).collect()))
    };
    let told: Vec<SubNetworkSummary> = layers.sub_networks.iter().map(network).collect();
    let by_name: BTreeMap<&str, &[TargetId]> = layers.cabinets().collect();
    let begin = processor_time();
    for _ in 0..INTERVALS {
        told.iter().for_each(|summary| tell(&mut placer, summary, |name| by_name[name]));
        placer.handle_interval();
    }
    let each = ((processor_time() - begin) / INTERVALS).as_secs_f64() * 1e3;
    println!("the same by primes, {} messages: {each:.2} ms", told.len());
}
