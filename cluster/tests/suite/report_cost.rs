//! What the load reports of 10,000 stores cost a metadata server: the processor time of the threads
//! that ask and that take the answers in, over real connections. The stores are one service of this
//! process with threads of its own, which do not count; it gives reports of the usual size.
//!
//! ```text
//! cargo test --release -p cluster --test suite report_cost -- --ignored --nocapture
//! ```

use cluster::ClusterPlaces;
use cluster::store::watch;
use fs::{Gauge, Places as _};
use plan::membership::TargetState;
use plan::placement::temperature::Tau;
use plan::placement::{Observed, Observer, Placer, Rules, TargetCandidate, Tuning};
use plan::report::{Report, TargetReport, Ticks, Work};
use plan::{SetId, TargetId};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use wire::{Reply, Request, Server, ServerOptions, Service};

const GATHER: u16 = 34;
const IN_CABINET: usize = 20;
const DISKS: usize = 2;
const ROUNDS: u32 = 20;
const PAUSE: Duration = Duration::from_secs(1);

/// All stores: what one is asked does not depend on which it is.
struct Fakes(Instant);

impl Fakes {
    fn report(&self) -> Vec<u8> {
        let uptime = self.0.elapsed();
        let so_far = uptime.as_micros() as u64;
        let target = |number: usize| TargetReport {
            name: format!("disk{number}"),
            space: Some((16_000_900_661_248, 9_123_456_789_012 - so_far)),
            accesses: so_far,
            queued: 3,
        };
        let report = Report {
            uptime,
            processor: Ticks { idle: so_far / 2, all: so_far },
            received_bytes: 100 * so_far,
            sent_bytes: 50 * so_far,
            connections: 900,
            request_bytes: 4 << 20,
            targets: (1..=DISKS).map(target).collect(),
        };
        let work = Work {
            coded_stripes: so_far / 10,
            coded_bytes: 400 * so_far,
            waited: vec![2 * so_far; DISKS],
            writes: vec![(so_far, so_far); DISKS],
        };
        [postcard::to_stdvec(&report).unwrap(), postcard::to_stdvec(&work).unwrap()].concat()
    }
}

impl Service for Fakes {
    async fn call(&self, request: Request) -> Reply {
        if request.method != GATHER {
            return Reply::ok(self.report());
        }
        let (_, others, _): (&[u8], Vec<&str>, u32) = postcard::from_bytes(&request.body).unwrap();
        let told: Vec<Result<(u64, Vec<u8>), String>> = (0..=others.len()).map(|_| Ok((300, self.report()))).collect();
        Reply::default().with_payload(postcard::to_stdvec(&told).unwrap())
    }
}

/// The processor time of the threads of this name, and of this thread.
fn spent() -> Duration {
    let mut spent = 0;
    let of = |schedstat: PathBuf| std::fs::read_to_string(schedstat).ok()?.split(' ').next()?.parse::<u64>().ok();
    for task in std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path()) {
        if std::fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim_end() == "messages") {
            spent += of(task.join("schedstat")).unwrap_or(0);
        }
    }
    Duration::from_nanos(spent + of("/proc/thread-self/schedstat".into()).unwrap())
}

/// Asks this number of stores for their reports, and prints what a round costs.
fn measure(stores: usize, port: u16, primes: bool) {
    let places = ClusterPlaces::default();
    places.stores().set_small_cluster(if primes { 128 } else { usize::MAX });
    let path = |store: usize, disk: usize| {
        PathBuf::from(format!("store://127.1.{}.{}:{port}/disk{disk}", store / 250, 1 + store % 250))
    };
    let mut targets = Vec::new();
    for store in 0..stores {
        let cabinet = store / IN_CABINET;
        let domain: plan::Domain = format!("row{}/cabinet{cabinet}/host{store}", cabinet / 10).parse().unwrap();
        for disk in 1..=DISKS {
            places.open(&path(store, disk)).unwrap();
            places.arrange(&[(path(store, disk), domain.clone())]);
            let (id, total) = (TargetId(targets.len() as u16), 16 << 40);
            let domain = Some(domain.clone());
            let candidate = TargetCandidate { id, free: total, total, domain, state: TargetState::Up, load: None };
            targets.push((candidate, path(store, disk)));
        }
    }
    let gauge = |(target, path): &(TargetCandidate, PathBuf)| (target.id, places.gauge(path).unwrap());
    let gauges: Vec<(TargetId, Gauge)> = targets.iter().map(gauge).collect();
    let candidates: Vec<TargetCandidate> = targets.iter().map(|(candidate, _)| candidate.clone()).collect();
    let rules = Rules { width: 8, spare: 2, domain_level: Some(2), need: 64 << 20 };
    let mut placer = Placer::new(rules, Tuning::default(), 1);
    placer.handle_members(&candidates);
    let mut observer = Observer::new(Tau::Tuned);
    watch(places.stores(), PAUSE);
    let (mut begun, mut spent_before, mut requests) = (Instant::now(), Duration::ZERO, (0, 0));
    let (mut placing, mut all) = (Duration::ZERO, 0);
    // The first rounds open connections.
    for round in 0..ROUNDS + 5 {
        if round == 5 {
            (begun, spent_before, requests) = (Instant::now(), spent(), places.stores().report_requests());
            (placing, all) = (Duration::ZERO, places.stores().reports.all().values().map(|seen| seen.number).sum());
        }
        std::thread::sleep(PAUSE);
        // As the file system does: once a second all that is known goes to the placement.
        let before = spent();
        let seen: Vec<(TargetId, Observed)> =
            gauges.iter().filter_map(|(id, gauge)| Some((*id, gauge.get()?))).collect();
        observer.handle(&seen, &mut placer);
        placing += spent() - before;
        std::hint::black_box(placer.place(SetId(round.into())));
    }
    let (spent, seconds) = (spent() - spent_before, begun.elapsed().as_secs_f64());
    let asked = places.stores().report_requests();
    let reports = places.stores().reports.all().values().map(|seen| seen.number).sum::<u64>() - all;
    println!(
        "{stores} stores, {}: {:.1} % of a core, of which placement {:.1} %; a second {:.0} reports, {:.0} requests \
         to primes and {:.0} to stores",
        if primes { format!("{} cabinets with primes", stores / IN_CABINET) } else { "no primes".into() },
        100.0 * spent.as_secs_f64() / seconds,
        100.0 * placing.as_secs_f64() / seconds,
        reports as f64 / seconds,
        (asked.0 - requests.0) as f64 / seconds,
        (asked.1 - requests.1) as f64 / seconds,
    );
    assert!(reports as f64 > 0.8 * f64::from(ROUNDS) * stores as f64, "{reports} reports came");
}

#[test]
#[ignore = "measures"]
fn report_cost() {
    cluster::set_channels(1);
    let mut fakes = tokio::runtime::Builder::new_multi_thread();
    let fakes = fakes.worker_threads(2).thread_name("fakes").enable_all().build().unwrap();
    let listener = fakes.block_on(TcpListener::bind("0.0.0.0:0")).unwrap();
    let port = listener.local_addr().unwrap().port();
    let options = ServerOptions::default();
    let server = Server::new(Arc::new(Fakes(Instant::now())), options);
    fakes.spawn(async move { server.serve(listener, std::future::pending()).await });
    println!("a report has {} bytes", Fakes(Instant::now()).report().len());
    for (stores, primes) in [(2000, false), (2000, true), (10_000, true)] {
        measure(stores, port, primes);
    }
}
