//! The server, its targets, and what is durable on them.

use crate::meta_server::{Commands, MetaServer};
use crate::simulation::{Network, Record, Slow, serve};
use fs::label::{Label, Member};
use fs::{FileSystem, OpenOptions, Sessions};
use meta::kv::MemoryIndex;
use plan::TargetId;
use session::port::ENTER;
use std::io::IoSlice;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::sleep;
use volume::target::{ClaimRequest, Durable, Memory, ReadAt, Target};
use wire::{Payload, Peer, Reply, Request, ServerOptions, Service};

const TARGETS: usize = 3;
/// The number of the operation that makes earlier changes durable.
const SYNC: u16 = 25;
/// The number of the operation that makes a file. The first one in a server's life makes the lease
/// of its file numbers durable.
const MAKE: u16 = 11;
/// Longer than a simulation takes, because leases use another clock.
const LEASE: Duration = Duration::from_secs(24 * 60 * 60);

type Disks = Vec<Arc<Memory>>;

fn copy(disks: &Disks) -> Disks {
    let copy = |disk: &Arc<Memory>| {
        let copy = Memory::default();
        for (file, length) in disk.list().unwrap() {
            let mut bytes = vec![0; length as usize];
            let found = disk.read_at(file, 0, &mut bytes).unwrap_or(0);
            copy.write(file, 0, &[IoSlice::new(&bytes[..found])], Durable::Later).unwrap();
        }
        let held = disk.claim(&ClaimRequest::Read).unwrap();
        if let Some(claim) = held.claim {
            copy.claim(&ClaimRequest::Take { claim, lease: Duration::ZERO, blank: held.blank }).unwrap();
        }
        Arc::new(copy)
    };
    disks.iter().map(copy).collect()
}

pub(super) struct Lab {
    pub record: Record,
    pub network: Network,
    pub label: Label,
    /// The server's targets, and their durable content as of the last sync that it answered.
    pub disks: Mutex<Disks>,
    pub durable: Mutex<Disks>,
    pub open: Mutex<Option<Arc<FileSystem>>>,
    /// The server's machine loses power when the server dies.
    pub loses: bool,
    /// How often the server died.
    pub deaths: AtomicU64,
    pub done: AtomicUsize,
    pub after: AtomicUsize,
    /// Number of workers that came to their end.
    pub through: AtomicUsize,
}

impl Lab {
    pub fn new(seed: u64) -> Arc<Self> {
        let record = Record::default();
        let member = |number: usize| Member::new(TargetId(number as u16), PathBuf::new());
        let label = Label::new([7; 16], "simulated", "rs:2+1", 6 << 20, 2, (0..TARGETS).map(member).collect());
        let disks: Disks = (0..TARGETS).map(|_| Arc::default()).collect();
        FileSystem::create_on(&label, places(&disks)).unwrap();
        Arc::new(Self {
            network: Network::new(seed, &record),
            durable: Mutex::new(copy(&disks)),
            disks: Mutex::new(disks),
            open: Mutex::default(),
            loses: seed.is_multiple_of(2),
            deaths: AtomicU64::new(0),
            done: AtomicUsize::new(0),
            after: AtomicUsize::new(0),
            through: AtomicUsize::new(0),
            record,
            label,
        })
    }

    /// Starts the server, which runs until it dies.
    pub async fn serve(self: Arc<Self>) -> turmoil::Result {
        let options = OpenOptions { serve: true, ..OpenOptions::default() };
        let places = places(&self.disks.lock().unwrap());
        let volume = FileSystem::open_on(self.label.clone(), places, Box::new(MemoryIndex::default()), options)?;
        *self.open.lock().unwrap() = Some(volume.clone());
        // Opening the volume is durable, and with it the key that verifies the sessions.
        let durable = copy(&self.disks.lock().unwrap());
        *self.durable.lock().unwrap() = durable;
        let server = Arc::new(MetaServer::new(Sessions::new(volume, LEASE), Commands::new(|_, _, _| Vec::new())));
        let kept = Arc::new(Keeps { inner: server.service(), lab: self.clone(), numbers: AtomicBool::new(false) });
        let slow = Slow { inner: kept, network: self.network.clone(), spared: Some(ENTER) };
        serve(self.network.clone(), Arc::new(slow), ServerOptions::default()).await
    }

    /// The server died.
    pub fn dies(&self) {
        let Some(volume) = self.open.lock().unwrap().take() else { return };
        self.deaths.fetch_add(1, Ordering::SeqCst);
        let mut disks = self.disks.lock().unwrap();
        if self.loses {
            *disks = copy(&self.durable.lock().unwrap());
        } else {
            volume.sync_all().unwrap();
            *disks = copy(&disks);
        }
        // Its threads may still write, but only to disks that no process reads any more.
        std::thread::spawn(move || volume.abandon());
    }
}

fn places(disks: &Disks) -> Vec<(TargetId, Arc<dyn Target>)> {
    let place = |(number, disk): (usize, &Arc<Memory>)| (TargetId(number as u16), disk.clone() as Arc<dyn Target>);
    disks.iter().enumerate().map(place).collect()
}

/// Copies the durable state when the server answers a sync.
struct Keeps<S> {
    inner: Arc<S>,
    lab: Arc<Lab>,
    /// Whether the server has leased file numbers.
    numbers: AtomicBool,
}

impl<S: Service> Keeps<S> {
    /// Repeats a request from time to time, and late: over a connection that its client gave up
    /// long ago.
    fn repeat(&self, request: &Request) {
        let late = self.lab.network.dice(|dice| (dice.u32(..10) == 0).then(|| dice.u64(..20_000)));
        let Some(late) = late.filter(|_| request.payload.is_empty()) else { return };
        let copy = Request {
            peer: request.peer.clone(),
            method: request.method,
            body: request.body.clone(),
            payload: Payload::default(),
            deadline: request.deadline,
            one_way: request.one_way,
            items: None,
        };
        let inner = self.inner.clone();
        tokio::spawn(async move {
            sleep(Duration::from_millis(late)).await;
            inner.call(copy).await
        });
    }
}

impl<S: Service> Service for Keeps<S> {
    async fn call(&self, request: Request) -> Reply {
        let method = request.method;
        if method != ENTER {
            self.repeat(&request);
        }
        let reply = self.inner.call(request).await;
        let does = reply.status == 0 && self.lab.loses;
        if does && (method == SYNC || method == MAKE && !self.numbers.swap(true, Ordering::Relaxed)) {
            let durable = copy(&self.lab.disks.lock().unwrap());
            *self.lab.durable.lock().unwrap() = durable;
        }
        reply
    }

    fn connected(&self, peer: &Arc<Peer>) -> Result<(), String> {
        self.inner.connected(peer)
    }
}
