//! A simulation of servers that claim the same stores, as metadata servers do. Each one takes the
//! claim on enough stores, reads what they have, and goes on counting from there. Servers die, stop
//! and are cut off, and come back in the belief that they still hold the claim.
//!
//! The simulation checks: each later server finds what an earlier one called durable.

use super::claim::{decode_state, encode_ask, encode_epoch};
use super::protocol::{Operands, encode, method};
use super::remote::{RemoteTarget, way};
use super::service::Store;
use crate::StoreAddress;
use crate::simulation::{Faults, Hosts, Network, PORT, Record, Slow, for_seeds, serve, world};
use fastrand::Rng;
use std::collections::BTreeSet;
use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::sleep;
use volume::format::VolumeId;
use volume::target::{Claim, ClaimRequest, ClaimState, Clock, Crash, Epoch, Holder, Memory, Refusal, TargetFile};
use wire::{Client, ClientOptions, ServerOptions};

/// The parameters and the body of an answer.
type Answered = (Vec<u8>, Vec<u8>);

const STORES: usize = 5;
/// How many stores may be lost.
const LOSS: usize = 2;
const SERVERS: usize = 3;
const LEASE: Duration = Duration::from_millis(1500);
const CALL_TIMEOUT: Duration = Duration::from_secs(2);
/// Faults happen until this time.
const FAULTS_UNTIL: Duration = Duration::from_secs(45);
const END: Duration = Duration::from_secs(70);
/// What the servers write. It needs the claim, and has one length.
const FILE: TargetFile = TargetFile::Label;

/// The number of an opening, and a count that goes on from that of the opening before.
type Value = (u64, u64);

struct Lab {
    record: Record,
    network: Network,
    disks: Vec<Arc<Crash>>,
    starts: Vec<AtomicU64>,
    lives: AtomicU64,
    /// What was called durable, with the number of the opening.
    durable: Mutex<Vec<Value>>,
    /// The openings: their number, and the newest value that they found.
    openings: Mutex<Vec<(u64, Value)>>,
    seed: u64,
}

fn now() -> Duration {
    turmoil::sim_elapsed().unwrap_or_default()
}

/// A server until it dies.
struct Life {
    lab: Arc<Lab>,
    who: String,
    holder: Holder,
    stores: Vec<Arc<RemoteTarget>>,
    dice: Rng,
}

impl Lab {
    fn new(seed: u64) -> Arc<Self> {
        let record = Record::default();
        let disk = || Arc::new(Crash::new(Arc::new(Memory::with_clock(Clock::new(now)))));
        Arc::new(Self {
            network: Network::new(seed, &record),
            disks: (0..STORES).map(|_| disk()).collect(),
            starts: (0..STORES).map(|_| AtomicU64::new(1)).collect(),
            lives: AtomicU64::new(0),
            durable: Mutex::default(),
            openings: Mutex::default(),
            record,
            seed,
        })
    }

    /// What a server called durable, every later opening has found.
    fn check(&self) {
        let (durable, openings) = (self.durable.lock().unwrap(), self.openings.lock().unwrap());
        for &(number, found) in &*openings {
            if let Some(lost) = durable.iter().find(|value| value.0 < number && **value > found) {
                self.record.wrong(format_args!("opening {number} found {found:?}, and {lost:?} was durable"));
            }
        }
        let numbers: BTreeSet<u64> = openings.iter().map(|(number, _)| *number).collect();
        if numbers.len() < openings.len() {
            self.record.wrong("two openings got the same number");
        }
        self.record.note(format_args!("{} openings, {} durable values", openings.len(), durable.len()));
        if openings.len() < 3 || durable.len() < 20 {
            self.record.wrong("too little happened");
        }
    }
}

impl Life {
    fn new(lab: &Arc<Lab>, number: usize) -> Self {
        let life = lab.lives.fetch_add(1, Ordering::Relaxed);
        let who = format!("server{number}.{life}");
        let target = |store: usize| {
            let server = format!("store{store}:{PORT}");
            let options = ClientOptions { connect: lab.network.connect(&who), ..way() };
            let client = Client::new(Handle::current(), &server, options);
            Arc::new(RemoteTarget::over(StoreAddress { server, target: "disk".into() }, client))
        };
        let stores = (0..STORES).map(target).collect();
        let holder = Holder { id: number as u128, name: who.clone(), address: String::new() };
        Self { stores, holder, dice: Rng::with_seed(lab.seed << 8 | life), who, lab: lab.clone() }
    }

    async fn run(mut self) -> turmoil::Result {
        let mut highest = 0;
        loop {
            highest = self.open_once(highest).await;
            sleep(Duration::from_millis(self.dice.u64(10..1500))).await;
        }
    }

    /// Sends a request to some stores at the same time; returns their answers.
    async fn ask_all(
        &self,
        stores: &[usize],
        method: u16,
        epoch: Option<Epoch>,
        payload: &[u8],
    ) -> Vec<(usize, io::Result<(Vec<u8>, Vec<u8>)>)> {
        let begin = |&store: &usize| {
            let (target, payload) = (self.stores[store].clone(), payload.to_vec());
            let task = async move {
                let operands = Operands { length: 16, ..target.operands(FILE) };
                let body = [encode(&operands), encode_epoch(epoch)].concat();
                let parts = [IoSlice::new(&payload)];
                let parts = if payload.is_empty() { &[][..] } else { &parts };
                let sent = target.moment();
                let answer = target.client().call(method, &body, parts, CALL_TIMEOUT).await;
                target.settle(method, FILE, answer, sent).map(|answer| (answer.body.to_vec(), answer.payload.to_vec()))
            };
            (store, tokio::spawn(task))
        };
        let mut answers = Vec::new();
        for (store, answer) in stores.iter().map(begin).collect::<Vec<_>>() {
            answers.push((store, answer.await.unwrap()));
        }
        answers
    }

    async fn claim(&self, stores: &[usize], ask: &ClaimRequest) -> Vec<(usize, io::Result<ClaimState>)> {
        let answers = self.ask_all(stores, method::CLAIM, None, &encode_ask(ask)).await;
        answers.into_iter().map(|(store, answer)| (store, answer.and_then(|(body, _)| decode_state(&body)))).collect()
    }

    /// Opens and writes until the claim is lost. Returns the highest number that was seen.
    async fn open_once(&mut self, highest: u64) -> u64 {
        let lab = self.lab.clone();
        let all: Vec<usize> = (0..STORES).collect();
        let number = highest + 1;
        let epoch = Epoch { number, id: u128::from(self.dice.u64(..)) };
        let claim =
            Claim { volume: VolumeId([7; 16]), generation: 1, epoch, mirrors: Vec::new(), holder: self.holder.clone() };
        let take = ClaimRequest::Take { claim, lease: LEASE, blank: 0 };
        let (mut granted, mut highest) = (Vec::new(), number);
        for (store, answer) in self.claim(&all, &take).await {
            match answer {
                Ok(_) => granted.push(store),
                Err(why) => {
                    highest = highest.max(Refusal::fenced(&why).map_or(0, |claim| claim.epoch.number));
                    lab.record.note(format_args!("{}: store {store} does not give {number}: {why}", self.who));
                }
            }
        }
        let found: Vec<(usize, Value)> = self.read(&granted).await;
        if found.len() < STORES - LOSS {
            if self.dice.bool() {
                self.claim(&granted, &ClaimRequest::Release(epoch)).await;
            }
            return highest;
        }
        let newest = found.iter().map(|(_, value)| *value).max().unwrap_or_default();
        lab.record.note(format_args!("{}: opening {number} found {newest:?}", self.who));
        lab.openings.lock().unwrap().push((number, newest));
        let mut there: Vec<usize> = found.into_iter().map(|(store, _)| store).collect();
        for count in newest.1 + 1.. {
            there = self.write(&there, epoch, (number, count)).await;
            if there.len() <= LOSS {
                break;
            }
            lab.durable.lock().unwrap().push((number, count));
            match self.dice.u32(..12) {
                // It is stopped for a while, and goes on as if nothing had happened.
                0 => sleep(Duration::from_millis(self.dice.u64(..5000))).await,
                1 => {
                    self.claim(&there, &ClaimRequest::Release(epoch)).await;
                    break;
                }
                _ => sleep(Duration::from_millis(self.dice.u64(..200))).await,
            }
            if self.dice.bool() {
                self.claim(&there, &take).await;
            }
        }
        highest
    }

    async fn read(&self, stores: &[usize]) -> Vec<(usize, Value)> {
        let answers = self.ask_all(stores, method::READ, None, &[]).await;
        let value = |(store, answer): (usize, io::Result<Answered>)| match answer {
            Ok((_, bytes)) => {
                let (number, count) = bytes.split_first_chunk().expect("16 bytes");
                let count = count.first_chunk().expect("16 bytes");
                Some((store, (u64::from_le_bytes(*number), u64::from_le_bytes(*count))))
            }
            Err(why) if why.kind() == io::ErrorKind::NotFound => Some((store, Value::default())),
            Err(_) => None,
        };
        answers.into_iter().filter_map(value).collect()
    }

    /// Writes a value; returns the stores that have it.
    async fn write(&self, stores: &[usize], epoch: Epoch, value: Value) -> Vec<usize> {
        let bytes = [value.0.to_le_bytes(), value.1.to_le_bytes()].concat();
        let answers = self.ask_all(stores, method::WRITE_DURABLY, Some(epoch), &bytes).await;
        let done = |(store, answer): (usize, io::Result<_>)| match answer {
            Ok(_) => Some(store),
            Err(why) => {
                self.lab.record.note(format_args!("{}: store {store} does not take {value:?}: {why}", self.who));
                None
            }
        };
        answers.into_iter().filter_map(done).collect()
    }
}

/// Runs the simulation; returns the hash of its record.
fn run(seed: u64) -> blake3::Hash {
    let lab = Lab::new(seed);
    let mut sim = world(seed);
    let hosts = Hosts {
        servers: (0..STORES).map(|number| format!("store{number}")).collect(),
        clients: (0..SERVERS).map(|number| format!("server{number}")).collect(),
        dead: LOSS,
        clients_die: true,
    };
    for (number, name) in hosts.servers.iter().enumerate() {
        let lab = lab.clone();
        sim.host(name.as_str(), move || {
            let store = Store::on("disk", lab.disks[number].clone(), lab.starts[number].load(Ordering::Relaxed));
            let service = Slow { inner: Arc::new(store), network: lab.network.clone(), spared: None };
            serve(lab.network.clone(), Arc::new(service), ServerOptions::default())
        });
    }
    for (number, name) in hosts.clients.iter().enumerate() {
        let lab = lab.clone();
        sim.host(name.as_str(), move || {
            let lab = lab.clone();
            async move { Life::new(&lab, number).run().await }
        });
    }
    let mut dice = Rng::with_seed(seed);
    let done = Faults::new(seed, &hosts, FAULTS_UNTIL).run(&mut sim, &lab.network, &lab.record, END, |host| {
        if let Some(number) = hosts.servers.iter().position(|name| name == host)
            && dice.bool()
        {
            lab.record.note(format_args!("{host} loses power"));
            lab.disks[number].crash(dice.u64(..)).unwrap();
            lab.starts[number].fetch_add(1, Ordering::Relaxed);
        }
    });
    done.unwrap();
    drop(sim);
    lab.check();
    lab.record.finish()
}

#[test]
fn what_one_server_called_durable_each_later_one_finds() {
    for_seeds(10, |seed| _ = run(seed));
}

#[test]
fn the_same_seed_gives_the_same_claims() {
    assert_eq!(run(3), run(3));
}
