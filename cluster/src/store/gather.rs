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
use super::reports::Reports;
use plan::report::{Report, Work};
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
/// The longest report of a store, in bytes: that of some hundred targets.
const MAX_REPORT_BYTES: usize = 64 << 10;
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

/// Asks all stores for their reports, through primes where there are many.
pub(super) fn ask_all(stores: &Stores, pause: Duration) {
    let clients: HashMap<String, Client> = stores.clients().into_iter().collect();
    let is_silent = |server: &str| stores.reports.is_silent(server);
    let (cabinets, alone) = stores.primes.begin(clients.keys().cloned().collect(), is_silent);
    let token = stores.token_for_all();
    let way = Arc::new(Way { clients, token, pause, reports: stores.reports.clone(), primes: stores.primes.clone() });
    for servers in cabinets {
        let way = way.clone();
        tokio::spawn(async move { way.through_prime(servers).await });
    }
    for server in alone {
        way.clone().ask(server);
    }
}

/// What a round needs.
struct Way {
    clients: HashMap<String, Client>,
    token: Vec<u8>,
    pause: Duration,
    reports: Arc<Reports>,
    primes: Arc<Primes>,
}

impl Way {
    /// Asks a store for itself. One that takes longer than the pause gets a new request.
    fn ask(self: Arc<Self>, server: String) {
        self.primes.asks_store();
        let asked = Instant::now();
        tokio::spawn(async move {
            self.reports.reported(&server, asked, ask(&self.clients[&server], self.pause).await);
        });
    }

    /// Asks the prime of a cabinet, or the next one.
    async fn through_prime(self: Arc<Self>, mut servers: Vec<String>) {
        for _ in 0..TRIES {
            let Some(prime) = self.primes.of(&servers) else { break };
            let prime = servers.remove(prime);
            self.primes.asks_prime();
            let others: Vec<&str> = servers.iter().map(String::as_str).collect();
            // The prime needs some of the time itself, and the next one takes over in this round.
            let within = self.pause * 3 / 4;
            let gather = Gather { token: &self.token, others, within_ms: within.as_millis() as u32 };
            let asked = Instant::now();
            if let Some(answer) = self.gathered(&prime, &gather).await
                && let Some(told) = read_gathered(&answer, asked.elapsed(), servers.len())
            {
                let all = [prime.as_str()].into_iter().chain(servers.iter().map(String::as_str));
                all.zip(told).for_each(|(server, told)| self.told(server, asked, told.ok()));
                return;
            }
            self.primes.fails(&prime);
            self.clone().ask(prime);
        }
        servers.into_iter().for_each(|server| self.clone().ask(server));
    }

    /// A prime told this of a store.
    fn told(self: &Arc<Self>, server: &str, asked: Instant, told: Option<(u64, &[u8])>) {
        let told = told.and_then(|(took, report)| {
            let (report, work) = read_report(report).ok()?;
            Some((report, work, Duration::from_micros(took)))
        });
        match told {
            Some(told) => self.reports.reported(server, asked, Ok(told)),
            None => {
                self.primes.fails(server);
                self.clone().ask(server.to_owned());
            }
        }
    }

    /// What a prime gathered; None if it did not answer or refused.
    async fn gathered(&self, prime: &str, gather: &Gather<'_>) -> Option<Payload> {
        let body = encode(gather);
        Some(self.clients[prime].call(method::GATHER, &body, &[], self.pause * 7 / 8).await.ok()?.payload)
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

/// Reads what a store told.
fn read_report(told: &[u8]) -> Result<(Report, Work), String> {
    let unread = |_| "it told what cannot be read".to_owned();
    let (report, rest) = postcard::take_from_bytes(told).map_err(unread)?;
    // An older store says nothing more.
    Ok((report, if rest.is_empty() { Work::default() } else { postcard::from_bytes(rest).map_err(unread)? }))
}

/// Requests one report.
async fn ask(client: &Client, timeout: Duration) -> Result<(Report, Work, Duration), String> {
    let begun = Instant::now();
    let answer = client.call(method::REPORT, &[], &[], timeout).await.map_err(|why| why.to_string())?;
    let took = begun.elapsed();
    let (report, work) = read_report(&answer.body)?;
    Ok((report, work, took))
}
