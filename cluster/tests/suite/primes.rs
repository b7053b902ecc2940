//! Reports through primes: the storage servers run in this process and count their requests.

use cluster::store::watch;
use cluster::{ClusterPlaces, Store};
use fs::Places as _;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use wire::{Reply, Request, Server, ServerOptions, Service};

const REPORT: u16 = 32;
const GATHER: u16 = 34;
const FAILED: u16 = 1;
/// What no version knows.
const UNKNOWN: u16 = 999;

/// Long enough for an answer on a machine that is ten times too busy.
const PAUSE: Duration = Duration::from_secs(3);

/// How a store is, and what it was asked.
#[derive(Default)]
struct Watched {
    /// It answers nothing.
    is_dead: AtomicBool,
    /// It knows no primes.
    is_old: AtomicBool,
    /// So many requests for its report fail.
    failing: AtomicUsize,
    reports: AtomicUsize,
    gathers: AtomicUsize,
}

struct Counted {
    store: Store,
    watched: Arc<Watched>,
}

impl Service for Counted {
    async fn call(&self, request: Request) -> Reply {
        let counted = match request.method {
            REPORT => Some(&self.watched.reports),
            GATHER => Some(&self.watched.gathers),
            _ => None,
        };
        counted.inspect(|count| _ = count.fetch_add(1, Ordering::SeqCst));
        if self.watched.is_dead.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        let fails = |left: usize| left.checked_sub(1);
        if request.method == REPORT
            && self.watched.failing.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fails).is_ok()
        {
            return Reply::error(FAILED, Vec::new());
        }
        let is_old = request.method == GATHER && self.watched.is_old.load(Ordering::SeqCst);
        self.store.call(if is_old { Request { method: UNKNOWN, ..request } } else { request }).await
    }
}

/// Four stores in two cabinets.
struct Lab {
    path: PathBuf,
    places: ClusterPlaces,
    stores: BTreeMap<String, Arc<Watched>>,
    cabinets: [[String; 2]; 2],
}

impl Lab {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("weft-primes-{}-{number}", std::process::id()));
        let places = ClusterPlaces::default();
        places.stores().set_small_cluster(3);
        let mut stores = BTreeMap::new();
        let cabinets = [0, 1].map(|cabinet| {
            [0, 1].map(|host| {
                let disk = path.join(format!("{cabinet}-{host}/disk"));
                std::fs::create_dir_all(&disk).unwrap();
                let watched = Arc::<Watched>::default();
                let service = Counted { store: Store::open(&[disk]).unwrap(), watched: watched.clone() };
                let server = Server::new(Arc::new(service), ServerOptions::default());
                let listener = cluster::runtime().block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
                let address = listener.local_addr().unwrap().to_string();
                cluster::runtime().spawn(async move { server.serve(listener, std::future::pending()).await });
                let place = PathBuf::from(format!("store://{address}/disk"));
                places.format(&place).unwrap();
                let domain = format!("row/cabinet{cabinet}/host{host}").parse().unwrap();
                places.arrange(&[(place, domain)]);
                stores.insert(address.clone(), watched);
                address
            })
        });
        Self { path, places, stores, cabinets }
    }

    /// Waits until as many more reports of each of these stores have come.
    #[track_caller]
    fn reported<'a>(&self, servers: impl IntoIterator<Item = &'a String>, more: u64) {
        let count = |server: &str| self.places.stores().reports.all().get(server).map_or(0, |seen| seen.number);
        let wanted: Vec<(&String, u64)> = servers.into_iter().map(|server| (server, count(server) + more)).collect();
        let begun = Instant::now();
        while wanted.iter().any(|(server, wanted)| count(server) < *wanted) {
            assert!(begun.elapsed() < Duration::from_secs(300), "{:?}", self.places.stores().reports.all());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn gathers(&self, server: &str) -> usize {
        self.stores[server].gathers.load(Ordering::SeqCst)
    }

    /// The store of a cabinet that was asked for all, and the other one.
    fn prime_of(&self, cabinet: usize) -> (&String, &String) {
        let [one, other] = &self.cabinets[cabinet];
        assert!((self.gathers(one) == 0) != (self.gathers(other) == 0), "a cabinet has one prime");
        if self.gathers(one) > 0 { (one, other) } else { (other, one) }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

#[test]
fn one_store_of_each_cabinet_is_asked_and_replaced_when_it_dies() {
    let lab = Lab::new();
    watch(lab.places.stores(), PAUSE);
    lab.reported(lab.stores.keys(), 2);
    let (primes, themselves) = lab.places.stores().report_requests();
    let rounds = (0..2).map(|cabinet| lab.gathers(lab.prime_of(cabinet).0)).max().unwrap();
    // Two requests a round for four stores.
    assert!(themselves == 0 && primes <= 2 * rounds as u64 + 2, "{primes} and {themselves} in {rounds} rounds");
    for cabinet in 0..2 {
        let (prime, other) = lab.prime_of(cabinet);
        assert_eq!(lab.stores[prime].reports.load(Ordering::SeqCst), 0, "a prime is asked for all at once");
        assert!(lab.stores[other].reports.load(Ordering::SeqCst) >= 2, "by its prime");
    }
    let load = lab.places.stores().reports.gauge(&lab.cabinets[0][0], "disk").get();
    assert!(load.is_some_and(|load| load.seconds > 0.0), "{load:?}");
    // A prime dies: the other one of its cabinet takes its place, and it is asked itself.
    let (prime, other) = lab.prime_of(0);
    let asked = lab.gathers(prime);
    lab.stores[prime].is_dead.store(true, Ordering::SeqCst);
    let living = lab.stores.keys().filter(|server| *server != prime);
    lab.reported(living, 3);
    assert!(lab.gathers(other) > 0);
    let silent = lab.places.stores().reports.all()[prime].silent.clone();
    assert!(silent.is_some(), "it did not answer for itself either");
    let (prime_1, other_1) = lab.prime_of(1);
    assert_eq!(lab.stores[prime_1].reports.load(Ordering::SeqCst), 0, "in the other cabinet nothing changes");
    assert_eq!(lab.gathers(other_1), 0);
    // It comes back.
    lab.stores[prime].is_dead.store(false, Ordering::SeqCst);
    lab.reported([prime], 1);
    assert!(lab.places.stores().reports.all()[prime].silent.is_none());
    assert!(lab.gathers(prime) <= asked + 2, "it is not tried as a prime in each round");
}

/// What a prime says of others is no proof: it may be cut off from them.
#[test]
fn stores_that_their_prime_cannot_ask_are_asked_themselves() {
    let lab = Lab::new();
    // The first requests are those of the primes.
    lab.stores.values().for_each(|watched| watched.failing.store(1, Ordering::SeqCst));
    watch(lab.places.stores(), PAUSE);
    lab.reported(lab.stores.keys(), 3);
    for cabinet in 0..2 {
        let (prime, other) = lab.prime_of(cabinet);
        assert!(lab.gathers(prime) >= 3 && lab.stores[prime].reports.load(Ordering::SeqCst) == 0);
        assert!(lab.stores[other].reports.load(Ordering::SeqCst) >= 4);
    }
    let (_, themselves) = lab.places.stores().report_requests();
    assert!(themselves >= 6, "{themselves}: each of the two in three rounds");
    assert!(lab.places.stores().reports.all().values().all(|seen| seen.silent.is_none()));
}

#[test]
fn stores_that_cannot_answer_for_others_are_asked_themselves() {
    let lab = Lab::new();
    lab.cabinets[0].iter().for_each(|server| lab.stores[server].is_old.store(true, Ordering::SeqCst));
    watch(lab.places.stores(), PAUSE);
    lab.reported(lab.stores.keys(), 3);
    for server in &lab.cabinets[0] {
        assert_eq!(lab.gathers(server), 1, "it is not asked in each round");
        assert!(lab.stores[server].reports.load(Ordering::SeqCst) >= 3);
    }
    let (prime, _) = lab.prime_of(1);
    assert!(lab.gathers(prime) >= 3 && lab.stores[prime].reports.load(Ordering::SeqCst) == 0);
    assert!(lab.places.stores().report_requests().1 >= 6);
}
