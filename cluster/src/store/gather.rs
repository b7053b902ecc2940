//! Load reports through primes (paper 003, ECFS, section IV.C): in a large cluster a metadata
//! server asks one store of each cabinet, its prime, and that one asks the others of its cabinet.
//! So the metadata server's requests and connections in use grow with cabinets, not with stores.
//!
//! Which store is the prime follows from the stores and their domains by
//! [`plan::topology::Layers`]: no store is told that it is one, and any store answers for others
//! that it is asked about. One that does not answer, or is of a version that cannot do it, is left
//! out for a while, and the next one takes its place in the same round. Where no store can, the
//! metadata server asks each itself.
//!
//! What a prime says of others is a report or that it got none, and that is no proof that a store
//! is silent: the prime may be cut off from it, or the store slow. So the metadata server asks such
//! a store itself, at once and for a while. Then a store that hangs delays the reports of its
//! cabinet once, and not in every round.

use super::primes::{MAX_STORES, Primes};
use super::protocol::{encode, method};
use super::remote::{Stores, way};
use super::reports::Slot;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use volume::lock;
use wire::{Client, ClientOptions, ClientTls, Payload, Reply};

/// Of one round, how many stores of a cabinet are tried as its prime.
const TRIES: usize = 2;
/// No prime asks more stores.
const MAX_OTHERS: usize = 4 * MAX_STORES;
/// A prime waits no longer for them, whatever it is asked.
const MAX_WITHIN: Duration = Duration::from_secs(10);
/// Requests that a prime answers at a time: more metadata servers than one may have it as a prime.
const GATHERS_AT_ONCE: usize = 4;
/// The longest report of a store, in bytes: that of some two thousand targets.
const MAX_REPORT_BYTES: usize = 128 << 10;
/// A prime closes its connection to a store that this number of requests did not name.
const UNUSED_GATHERS: u64 = 600;

/// What a metadata server asks a prime: its own report, and those of other stores.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Gather<'a> {
    /// The token that permits it; empty where none is needed.
    #[serde(borrow)]
    pub token: &'a [u8],
    /// The addresses of the other stores.
    #[serde(borrow)]
    pub others: Vec<&'a str>,
    /// How long those may take, in milliseconds.
    pub within_ms: u32,
}

/// What a store told, or why it did not: how long it took in microseconds, and its report as it
/// gives it to who asks itself. First the prime, with how long it waited for the others, then the
/// others as they were asked.
pub(super) type Gathered = Vec<Result<(u64, Vec<u8>), String>>;

/// The same as it is read: a metadata server reads thousands in a second.
type Told<'a> = Vec<Result<(u64, &'a [u8]), &'a str>>;

/// The stores that this store asks as a prime.
pub(super) struct Others {
    tls: Option<ClientTls>,
    state: Mutex<Asked>,
    at_once: Semaphore,
}

#[derive(Default)]
struct Asked {
    /// Requests so far.
    number: u64,
    /// The connections, and the last request that was about each.
    clients: HashMap<String, (u64, Client)>,
}

impl Others {
    /// None yet. The identity of this process is shown to them.
    pub fn new() -> Self {
        Self { tls: crate::identity::client_tls(), state: Mutex::default(), at_once: Semaphore::new(GATHERS_AT_ONCE) }
    }

    /// The connections to these stores.
    fn clients(&self, servers: &[&str]) -> Vec<Client> {
        let mut state = lock(&self.state);
        state.number += 1;
        let number = state.number;
        let options = || ClientOptions { tls: self.tls.clone(), channels: 1, ..way() };
        let mut client = |server: &&str| {
            let new = || Client::new(crate::runtime().handle().clone(), *server, options());
            let (last, client) = state.clients.entry((*server).to_owned()).or_insert_with(|| (number, new()));
            *last = number;
            client.clone()
        };
        let clients = servers.iter().map(&mut client).collect();
        state.clients.retain(|_, (last, _)| *last + UNUSED_GATHERS > number);
        if state.clients.len() > MAX_OTHERS {
            state.clients.retain(|_, (last, _)| *last == number);
        }
        clients
    }

    /// Answers for other stores. `own` is this store's report.
    pub async fn answer(&self, own: Vec<u8>, gather: &Gather<'_>) -> io::Result<Reply> {
        if gather.others.len() > MAX_OTHERS {
            let many = format!("{} stores are more than a prime asks", gather.others.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, many));
        }
        let Ok(_one) = self.at_once.try_acquire() else {
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, "this store asks others already"));
        };
        let within = Duration::from_millis(gather.within_ms.into()).min(MAX_WITHIN);
        let ask = |client: Client| {
            tokio::spawn(async move {
                let begun = Instant::now();
                let answer = client.call(method::REPORT, &[], &[], within).await.map_err(|why| why.to_string())?;
                if answer.body.len() > MAX_REPORT_BYTES {
                    return Err("its report is too long".to_owned());
                }
                Ok((begun.elapsed().as_micros() as u64, answer.body.to_vec()))
            })
        };
        let begun = Instant::now();
        let asked: Vec<_> = self.clients(&gather.others).into_iter().map(ask).collect();
        let mut gathered: Gathered = Vec::with_capacity(asked.len() + 1);
        gathered.push(Err(String::new()));
        for asked in asked {
            gathered.push(asked.await.unwrap_or_else(|why| Err(why.to_string())));
        }
        gathered[0] = Ok((begun.elapsed().as_micros() as u64, own));
        Ok(Reply::default().with_payload(encode(&gathered)))
    }
}

/// A store that is asked, and where what it says is kept.
struct Member {
    server: String,
    client: Client,
    slot: Arc<Slot>,
}

/// Stores of one cabinet, by their places in [`Routes::stores`], and which of them is the prime.
struct Cabinet {
    stores: Vec<usize>,
    prime: Option<usize>,
}

/// Who is asked how. With thousands of stores, sorting them takes longer than reading what they
/// say.
#[derive(Default)]
struct Routes {
    stores: Vec<Member>,
    cabinets: Vec<Cabinet>,
    /// Those that are asked themselves.
    alone: Vec<usize>,
}

impl Routes {
    fn of(stores: &Stores) -> Self {
        let clients: HashMap<String, Client> = stores.clients().into_iter().collect();
        let (cabinets, alone) = stores.primes.sorted(clients.keys().cloned().collect());
        let mut routes = Self::default();
        let add = |routes: &mut Self, server: String| {
            let (client, slot) = (clients[&server].clone(), stores.reports.slot(&server));
            routes.stores.push(Member { server, client, slot });
            routes.stores.len() - 1
        };
        for servers in cabinets {
            let prime = stores.primes.of(&servers);
            let stores = servers.into_iter().map(|server| add(&mut routes, server)).collect();
            routes.cabinets.push(Cabinet { stores, prime });
        }
        let alone = alone.into_iter().map(|server| add(&mut routes, server)).collect();
        Self { alone, ..routes }
    }
}

/// Asks all stores for their reports, through primes where there are many: round by round.
#[derive(Default)]
pub(super) struct Rounds {
    /// The routes of the last round, and what they follow from: the version of the primes, and how
    /// many stores there were.
    routes: Option<((u64, usize), Arc<Routes>)>,
}

impl Rounds {
    /// Begins a round.
    pub fn ask_all(&mut self, stores: &Stores, pause: Duration) {
        let version = (stores.primes.next_round(|server| stores.reports.is_silent(server)), stores.count());
        let routes = match self.routes.take() {
            Some((known, routes)) if known == version => routes,
            _ => Arc::new(Routes::of(stores)),
        };
        self.routes = Some((version, routes.clone()));
        let way = Arc::new(Way { routes, token: stores.token_for_all(), pause, primes: stores.primes.clone() });
        for cabinet in 0..way.routes.cabinets.len() {
            let way = way.clone();
            tokio::spawn(async move { way.through_prime(cabinet).await });
        }
        for &store in &way.routes.alone {
            way.clone().ask(store);
        }
    }
}

/// What a round needs.
struct Way {
    routes: Arc<Routes>,
    token: Vec<u8>,
    pause: Duration,
    primes: Arc<Primes>,
}

impl Way {
    fn server(&self, store: usize) -> &str {
        &self.routes.stores[store].server
    }

    /// Asks a store for itself. One that takes longer than the pause gets a new request.
    fn ask(self: Arc<Self>, store: usize) {
        self.primes.asks_store();
        let asked = Instant::now();
        tokio::spawn(async move {
            let Member { client, slot, .. } = &self.routes.stores[store];
            let answer = client.call(method::REPORT, &[], &[], self.pause).await;
            let told = answer.as_ref().map(|answer| (&answer.body[..], asked.elapsed()));
            if let Err(why) = slot.reported(asked, told.map_err(ToString::to_string)) {
                let _ = slot.reported(asked, Err(why));
            }
        });
    }

    /// Asks the prime of a cabinet, or the next one.
    async fn through_prime(self: Arc<Self>, cabinet: usize) {
        let Cabinet { stores, prime } = &self.routes.cabinets[cabinet];
        let (mut left, mut known) = (stores.clone(), *prime);
        for _ in 0..TRIES {
            let named = || left.iter().map(|&store| self.server(store)).collect::<Vec<&str>>();
            let Some(prime) = known.take().or_else(|| self.primes.of(&named())) else { break };
            let prime = left.remove(prime);
            self.primes.asks_prime();
            let others: Vec<&str> = left.iter().map(|&store| self.server(store)).collect();
            // The prime needs some of the time itself, and the next one takes over in this round.
            let within = self.pause * 3 / 4;
            let gather = Gather { token: &self.token, others, within_ms: within.as_millis() as u32 };
            let asked = Instant::now();
            if let Some(answer) = self.gathered(prime, &gather).await
                && let Some(told) = read_gathered(&answer, asked.elapsed(), left.len())
            {
                let all = [prime].into_iter().chain(left.iter().copied());
                all.zip(told).for_each(|(store, told)| self.told(store, asked, told.ok()));
                return;
            }
            self.primes.fails(self.server(prime));
            self.clone().ask(prime);
        }
        left.into_iter().for_each(|store| self.clone().ask(store));
    }

    /// A prime told this of a store.
    fn told(self: &Arc<Self>, store: usize, asked: Instant, told: Option<(u64, &[u8])>) {
        let Member { server, slot, .. } = &self.routes.stores[store];
        let read = |(took, report)| slot.reported(asked, Ok((report, Duration::from_micros(took)))).is_ok();
        if !told.is_some_and(read) {
            self.primes.fails(server);
            self.clone().ask(store);
        }
    }

    /// What a prime gathered; None if it did not answer or refused.
    async fn gathered(&self, prime: usize, gather: &Gather<'_>) -> Option<Payload> {
        let body = encode(gather);
        Some(self.routes.stores[prime].client.call(method::GATHER, &body, &[], self.pause * 7 / 8).await.ok()?.payload)
    }
}

/// Reads the reports of a prime and of `others` other stores, `took` after the request.
fn read_gathered(answer: &[u8], took: Duration, others: usize) -> Option<Told<'_>> {
    let mut told: Told<'_> = postcard::from_bytes(answer).ok()?;
    if let Some(Ok((waited, _))) = told.first_mut() {
        // What is left is what the prime itself took.
        *waited = (took.as_micros() as u64).saturating_sub(*waited);
    }
    (told.len() == others + 1).then_some(told)
}
