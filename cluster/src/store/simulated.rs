//! A simulation of storage servers and writers. The real writer makes the stripes, and the real
//! reader reads what comes back. Both work on memory at the client; the data between that memory
//! and the stores crosses the simulated network.
//!
//! The simulation checks, whatever fails: no read returns data that was not written. Synced data
//! stays on every store that confirmed the sync. No call takes longer than its limit. When nothing
//! fails any more, everything works again. Clients pause between attempts to reach a store that is
//! down.

use super::protocol::{Operands, encode, method};
use super::remote::{OPERATION_TIMEOUT, RemoteTarget, way};
use super::service::Store;
use crate::StoreAddress;
use crate::simulation::{Faults, Hosts, Network, PORT, Record, Slow, for_seeds, serve, world};
use ec::Code;
use fastrand::Rng;
use plan::{Position, SetId, Span, StripeSeq, TargetId};
use std::collections::BTreeSet;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};
use volume::format::{CHUNK_HEADER_BYTES, VolumeId};
use volume::target::{Crash, Durable, Memory, ReadAt, Target, TargetFile};
use volume::{BufferPool, SetLayout, SetWriter, Targets, record_range};
use wire::{Client, ClientOptions, ServerOptions};

const CODE: &str = "rs:4+2";
const K: usize = 4;
const STORES: usize = 6;
/// A stripe counts as written when this many stores have it.
const WRITE_QUORUM: usize = K + 1;
const STRIPE: usize = 64 << 10;
const CHUNK: u32 = 1 << 20;

/// Faults happen until this time.
const FAULTS_UNTIL: Duration = Duration::from_secs(45);
/// Everything works again by this time.
const WORKS: Duration = Duration::from_secs(65);
/// The simulation ends at this time.
const END: Duration = Duration::from_secs(72);

/// A probe asks a store this often whether it is there.
const PROBE_INTERVAL: Duration = Duration::from_millis(100);
/// A probe connects at most this often within this time, although every request could cause a new
/// connection.
const MAX_CONNECTS: (usize, Duration) = (40, Duration::from_secs(10));

/// A stripe that was synced.
struct Stripe {
    span: Span,
    data: Vec<u8>,
    /// The positions whose stores confirmed the sync.
    synced: Vec<usize>,
}

impl Stripe {
    /// The range of the stripe in its chunks.
    fn range(&self) -> Range<u64> {
        record_range(self.span.record, self.span.block)
    }
}

struct Lab {
    record: Record,
    network: Network,
    code: Arc<dyn Code>,
    pool: Arc<BufferPool>,
    disks: Vec<Arc<Crash>>,
    /// How often the stores' machines were started.
    starts: Vec<AtomicU64>,
    sets: AtomicU64,
    lives: AtomicU64,
    stripes: Mutex<Vec<Arc<Stripe>>>,
    seed: u64,
    /// How many synced stripes were read back, and how many of them after everything worked again.
    read: AtomicUsize,
    after: AtomicUsize,
}

/// The store of a position of a set.
fn store_of(set: SetId, position: usize) -> usize {
    (set.0 as usize + position) % STORES
}

fn file(set: SetId, position: usize) -> TargetFile {
    TargetFile::Chunk { set, position: Position::at(position) }
}

fn now() -> Duration {
    turmoil::sim_elapsed().unwrap_or_default()
}

/// A writer and reader, until it dies.
struct Life {
    lab: Arc<Lab>,
    who: String,
    stores: Vec<Arc<RemoteTarget>>,
    dice: Rng,
}

impl Lab {
    fn new(seed: u64) -> Arc<Self> {
        let (record, code) = (Record::default(), ec::parse(CODE).unwrap());
        Arc::new(Self {
            network: Network::new(seed, &record),
            pool: Arc::new(BufferPool::new(&*code, STRIPE, 4)),
            disks: (0..STORES).map(|_| Arc::new(Crash::new(Arc::new(Memory::default())))).collect(),
            starts: (0..STORES).map(|_| AtomicU64::new(1)).collect(),
            sets: AtomicU64::new(1),
            lives: AtomicU64::new(0),
            stripes: Mutex::default(),
            read: AtomicUsize::new(0),
            after: AtomicUsize::new(0),
            record,
            code,
            seed,
        })
    }

    fn store(self: &Arc<Self>, number: usize) -> Store {
        Store::on("disk", self.disks[number].clone(), self.starts[number].load(Ordering::Relaxed))
    }

    fn target(&self, who: &str, number: usize, channels: usize) -> Arc<RemoteTarget> {
        let server = format!("store{number}:{PORT}");
        let options = ClientOptions { channels, connect: self.network.connect(who), ..way() };
        let client = Client::new(Handle::current(), &server, options);
        Arc::new(RemoteTarget::over(StoreAddress { server, target: "disk".into() }, client))
    }

    fn layout(&self, set: SetId) -> SetLayout {
        let places = (0..STORES).map(|position| Some(TargetId(position as u16))).collect();
        SetLayout { volume: VolumeId([7; 16]), set, code: self.code.clone(), places }
    }

    /// Decodes these pieces of chunks with the real reader. Each piece begins where the stripe
    /// begins in its chunk.
    fn decode(&self, stripe: &Stripe, pieces: &[(usize, Vec<u8>)]) -> volume::Result<Vec<u8>> {
        let targets = Targets::new();
        for position in 0..STORES {
            let memory = Memory::default();
            for (_, bytes) in pieces.iter().filter(|(of, _)| *of == position) {
                let file = file(stripe.span.set, position);
                memory.write(file, stripe.range().start, &[IoSlice::new(bytes)], Durable::Later).unwrap();
            }
            targets.add(TargetId(position as u16), Arc::new(memory));
        }
        let mut data = vec![0; stripe.data.len()];
        volume::read(&targets, &self.layout(stripe.span.set), stripe.span, &mut data).map(|_| data)
    }
}

impl Life {
    fn new(lab: &Arc<Lab>, who: &str) -> Self {
        let life = lab.lives.fetch_add(1, Ordering::Relaxed);
        let who = format!("{who}.{life}");
        let stores = (0..STORES).map(|number| lab.target(&who, number, way().channels)).collect();
        Self { lab: lab.clone(), stores, dice: Rng::with_seed(lab.seed << 8 | life), who }
    }

    async fn run(mut self) -> turmoil::Result {
        for number in 0..STORES {
            let target = self.lab.target(&format!("{}'s probe", self.who), number, 1);
            let (lab, who) = (self.lab.clone(), self.who.clone());
            tokio::spawn(async move {
                loop {
                    let _ = ask(&lab, &who, &target, method::SPACE, TargetFile::Label, 0, Bytes::Read(0)).await;
                    sleep(PROBE_INTERVAL).await;
                }
            });
        }
        loop {
            self.write_a_set().await;
            sleep(Duration::from_millis(self.dice.u64(10..400))).await;
        }
    }

    /// Sends requests to the stores of some positions of a set at the same time; returns their
    /// answers by position.
    async fn ask_all(
        &self,
        method: u16,
        set: SetId,
        offset: u64,
        what: Vec<(usize, Bytes)>,
    ) -> Vec<(usize, io::Result<Vec<u8>>)> {
        let begin = |(position, bytes): (usize, Bytes)| {
            let (lab, who) = (self.lab.clone(), self.who.clone());
            let target = self.stores[store_of(set, position)].clone();
            let file = file(set, position);
            let task = async move { ask(&lab, &who, &target, method, file, offset, bytes).await };
            (position, tokio::spawn(task))
        };
        let mut answers = Vec::new();
        for (position, answer) in what.into_iter().map(begin).collect::<Vec<_>>() {
            answers.push((position, answer.await.unwrap()));
        }
        answers
    }

    /// Writes some stripes to a new set, as long as enough stores take them.
    async fn write_a_set(&mut self) {
        let lab = self.lab.clone();
        let set = SetId(lab.sets.fetch_add(1, Ordering::Relaxed));
        let local = Arc::new(Targets::new());
        let disks: Vec<Arc<Memory>> = (0..STORES).map(|_| Arc::default()).collect();
        for (position, disk) in disks.iter().enumerate() {
            local.add(TargetId(position as u16), disk.clone());
        }
        let writer = SetWriter::create(local, lab.pool.clone(), lab.layout(set), CHUNK, WRITE_QUORUM - K);
        let mut failed = BTreeSet::new();
        let mut written: Vec<(Span, Vec<u8>)> = Vec::new();
        for sequence in 0..self.dice.u64(1..6) {
            let mut buffer = lab.pool.take();
            let mut data = vec![0; self.dice.usize(1..STRIPE)];
            self.dice.fill(&mut data);
            buffer.extend_from_slice(&data);
            let stripe = writer.append(buffer, StripeSeq(set.0 << 16 | sequence), &[]).expect("memory takes it");
            let span = Span { set, record: stripe.record, block: stripe.block, start: 0 };
            let range = record_range(span.record, span.block);
            let begin = if span.record.0 as usize == CHUNK_HEADER_BYTES { 0 } else { range.start };
            let there = (0..STORES).filter(|position| !failed.contains(position));
            let pieces = there.map(|position| {
                let mut bytes = vec![0; (range.end - begin) as usize];
                disks[position].read_at(file(set, position), begin, &mut bytes).expect("it was just written");
                (position, Bytes::Write(bytes))
            });
            let answers = self.ask_all(method::WRITE, set, begin, pieces.collect()).await;
            failed.extend(answers.iter().filter(|(_, answer)| answer.is_err()).map(|(position, _)| *position));
            if STORES - failed.len() < WRITE_QUORUM {
                return lab.record.note(format_args!("{}: set {set} is given up", self.who));
            }
            written.push((span, data));
            if self.dice.bool() {
                self.pause(set).await;
                if !self.sync(set, &mut failed, &mut written).await {
                    return;
                }
                self.read_one().await;
            }
        }
    }

    /// Syncs a set; returns false when too few stores confirmed it.
    async fn sync(&self, set: SetId, failed: &mut BTreeSet<usize>, written: &mut Vec<(Span, Vec<u8>)>) -> bool {
        let there =
            (0..STORES).filter(|position| !failed.contains(position)).map(|position| (position, Bytes::Read(0)));
        let answers = self.ask_all(method::SYNC, set, 0, there.collect()).await;
        failed.extend(answers.iter().filter(|(_, answer)| answer.is_err()).map(|(position, _)| *position));
        let synced: Vec<usize> = (0..STORES).filter(|position| !failed.contains(position)).collect();
        self.lab.record.note(format_args!("{}: set {set} is synced on {synced:?}", self.who));
        if synced.len() < K {
            return false;
        }
        let stripe = |(span, data)| Arc::new(Stripe { span, data, synced: synced.clone() });
        self.lab.stripes.lock().unwrap().extend(written.drain(..).map(stripe));
        true
    }

    /// Reads a stripe that some client synced, from all stores that must have it.
    async fn read_one(&mut self) {
        let lab = self.lab.clone();
        let stripe = self.dice.choice(&*lab.stripes.lock().unwrap()).cloned();
        let Some(stripe) = stripe else { return };
        let (range, set) = (stripe.range(), stripe.span.set);
        let length = range.end - range.start;
        let wanted = stripe.synced.iter().map(|&position| (position, Bytes::Read(length)));
        let answers = self.ask_all(method::READ, set, range.start, wanted.collect()).await;
        let pieces: Vec<(usize, Vec<u8>)> =
            answers.into_iter().filter_map(|(position, answer)| Some((position, answer.ok()?))).collect();
        match lab.decode(&stripe, &pieces) {
            Ok(data) if data == stripe.data => {
                lab.read.fetch_add(1, Ordering::Relaxed);
                lab.after.fetch_add(usize::from(now() > WORKS), Ordering::Relaxed);
            }
            Ok(_) => lab.record.wrong(format_args!("{:?}: not what was written", stripe.span)),
            Err(why) if pieces.len() >= K => {
                lab.record.wrong(format_args!("{:?} of {} stores: {why}", stripe.span, pieces.len()));
            }
            Err(_) => {}
        }
    }

    /// Lets time pass. Real clients check their targets, so connections may be opened again before
    /// anything is synced; this does the same.
    async fn pause(&mut self, set: SetId) {
        let pause = if self.dice.u32(..3) == 0 { self.dice.u64(..6000) } else { self.dice.u64(..200) };
        sleep(Duration::from_millis(pause)).await;
        if pause > 200 {
            for _ in 0..2 {
                let all = (0..STORES).map(|position| (position, Bytes::Read(0))).collect();
                self.ask_all(method::SPACE, set, 0, all).await;
                sleep(*way().backoff.end()).await;
            }
        }
    }
}

/// The bytes to write, or the number of bytes to read.
enum Bytes {
    Write(Vec<u8>),
    Read(u64),
}

/// Sends one request to a store, as a target does.
async fn ask(
    lab: &Lab,
    who: &str,
    target: &RemoteTarget,
    method: u16,
    file: TargetFile,
    offset: u64,
    bytes: Bytes,
) -> io::Result<Vec<u8>> {
    let (length, data) = match bytes {
        Bytes::Write(data) => (0, data),
        Bytes::Read(length) => (length, Vec::new()),
    };
    let operands = Operands { offset, length, ..target.operands(file) };
    let (begun, when) = (Instant::now(), now());
    let parts = [IoSlice::new(&data)];
    let parts = if data.is_empty() { &[][..] } else { &parts };
    let sent = target.moment();
    let answer = target.client().call(method, &encode(&operands), parts, OPERATION_TIMEOUT).await;
    let answer = target.settle(method, file, answer, sent).map(|answer| answer.payload.to_vec());
    let what = format!("{who}: {method} of {file:?} at {offset} of {}", target.server());
    match &answer {
        Ok(_) if method == method::SPACE => {}
        Ok(bytes) => lab.record.note(format_args!("{what}: {} bytes", bytes.len())),
        Err(why) if when > WORKS => lab.record.wrong(format_args!("{what}, when everything works: {why}")),
        Err(why) => lab.record.note(format_args!("{what}: {why}")),
    }
    if begun.elapsed() > OPERATION_TIMEOUT + Duration::from_millis(10) {
        lab.record.wrong(format_args!("{what} took {:?}", begun.elapsed()));
    }
    answer
}

/// Runs the simulation; returns the hash of its record.
fn run(seed: u64) -> blake3::Hash {
    let lab = Lab::new(seed);
    let mut sim = world(seed);
    let hosts = Hosts {
        servers: (0..STORES).map(|number| format!("store{number}")).collect(),
        clients: (0..2).map(|number| format!("writer{number}")).collect(),
        dead: STORES - K,
        clients_die: true,
    };
    for (number, name) in hosts.servers.iter().enumerate() {
        let lab = lab.clone();
        sim.host(name.as_str(), move || {
            let service = Slow { inner: Arc::new(lab.store(number)), network: lab.network.clone(), spared: None };
            serve(lab.network.clone(), Arc::new(service), ServerOptions::default())
        });
    }
    for name in &hosts.clients {
        let (lab, who) = (lab.clone(), name.clone());
        sim.host(name.as_str(), move || {
            let (lab, who) = (lab.clone(), who.clone());
            async move { Life::new(&lab, &who).run().await }
        });
    }
    let mut dice = Rng::with_seed(seed);
    let done = Faults::new(seed, &hosts, FAULTS_UNTIL).run(&mut sim, &lab.network, &lab.record, END, |host| {
        // The process died, or the whole machine.
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
    lab.check(&mut dice);
    lab.record.finish()
}

impl Lab {
    /// Checks what must be true in the end.
    fn check(&self, dice: &mut Rng) {
        let stripes = std::mem::take(&mut *self.stripes.lock().unwrap());
        for stripe in &stripes {
            let range = stripe.range();
            let mut pieces: Vec<(usize, Vec<u8>)> = stripe
                .synced
                .iter()
                .map(|&position| {
                    let mut bytes = vec![0; (range.end - range.start) as usize];
                    let disk = &self.disks[store_of(stripe.span.set, position)];
                    let found = disk.read_at(file(stripe.span.set, position), range.start, &mut bytes).unwrap_or(0);
                    bytes.truncate(found);
                    (position, bytes)
                })
                .collect();
            // Any k of the stores that confirmed the sync suffice, so each of them must have its
            // block.
            dice.shuffle(&mut pieces);
            for some in pieces.windows(K) {
                match self.decode(stripe, some) {
                    Ok(data) if data == stripe.data => {}
                    Ok(_) => self.record.wrong(format_args!("{:?}: it is something else now", stripe.span)),
                    Err(why) => {
                        self.record.wrong(format_args!("{:?} was synced on {:?}: {why}", stripe.span, stripe.synced))
                    }
                }
            }
        }
        let (attempts, who) = self.network.most_attempts("probe", MAX_CONNECTS.1);
        if attempts > MAX_CONNECTS.0 {
            self.record.wrong(format_args!("{who} connected {attempts} times in {:?}", MAX_CONNECTS.1));
        }
        let (read, after) = (self.read.load(Ordering::Relaxed), self.after.load(Ordering::Relaxed));
        self.record.note(format_args!("{} stripes, {read} reads, {after} at the end", stripes.len()));
        if stripes.is_empty() || after == 0 {
            self.record.wrong("nothing was written, or nothing was read at the end");
        }
    }
}

#[test]
fn what_was_synced_stays_whatever_fails() {
    for_seeds(12, |seed| _ = run(seed));
}

#[test]
fn the_same_seed_is_the_same_run() {
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}
