//! What a run has: stores, servers, clients, the network, and what clients were told.

use super::figures::Figures;
use super::server::Server;
use super::stored::add;
use crate::broken::Broken;
use crate::index::Kept;
use crate::network::{Host, Network};
use crate::store::Store;
use crate::view::View;
use meta::journal::{Access, JournalLimits, MirrorTarget, Options};
use plan::TargetId;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use volume::lock;
use volume::target::{Clock, Holder, Target};

pub const SERVERS: usize = 3;
pub const CLIENTS: usize = 3;
/// Stores, and how many of them may be lost.
const SIZES: [(usize, usize); 4] = [(3, 1), (4, 1), (5, 2), (6, 2)];
/// The leases that are tried. The program's is two seconds; nothing else depends on it, and a
/// shorter one makes more takeovers in a run.
const LEASES: [u64; 3] = [240, 480, 960];
/// How far clocks run wrong at most, in millionths. Crystals are wrong by 100.
pub const DRIFT: i64 = 2000;
/// What clients were told, by request: its position in the history.
#[derive(Debug, Default)]
pub struct Told {
    by_request: BTreeMap<u64, u64>,
    by_position: BTreeMap<u64, u64>,
}

impl Told {
    /// The newest position that anybody was told.
    pub fn newest(&self) -> u64 {
        self.by_position.last_key_value().map_or(0, |(position, _)| *position)
    }

    pub fn all(&self) -> &BTreeMap<u64, u64> {
        &self.by_request
    }

    /// A client learns that its request is durable, at a position.
    fn add(&mut self, request: u64, position: u64) {
        let other = self.by_position.insert(position, request).filter(|other| *other != request);
        if let Some(other) = other {
            world::fail(&format!("forked: position {position} has the requests {other} and {request}"));
        }
        let other = self.by_request.insert(request, position).filter(|other| *other != position);
        if let Some(other) = other {
            world::fail(&format!("doubled: request {request} has the positions {other} and {position}"));
        }
    }
}

/// A machine for a metadata server.
#[derive(Default)]
pub struct Machine {
    pub index: Kept,
    /// The server in its process, while it has the volume.
    pub serving: Mutex<Option<Arc<Server>>>,
}

/// The parts of a run.
pub struct Lab {
    pub losses: usize,
    pub lease: Duration,
    pub stores: Vec<Arc<Store>>,
    pub network: Arc<Network>,
    pub machines: Vec<Machine>,
    pub told: Mutex<Told>,
    pub figures: Mutex<Figures>,
    pub broken: Broken,
    /// The run comes to its end.
    pub stop: AtomicBool,
}

/// The clock of a store. It runs a little too fast or too slow; with a broken rule it jumps.
fn clock(broken: Broken) -> Clock {
    let drift = world::roll(|dice| dice.below(2 * DRIFT as u64)) as i64 - DRIFT;
    let jumped = AtomicI64::new(0);
    Clock::new(move || {
        if broken == Broken::Leases {
            jumped.fetch_add(1, Ordering::SeqCst);
        }
        let now = world::now().as_nanos() as i64;
        let hours = jumped.load(Ordering::SeqCst) as u64 * 3600;
        Duration::from_nanos((now + now / 1_000_000 * drift) as u64) + Duration::from_secs(hours)
    })
}

impl Lab {
    pub fn new(broken: Broken) -> Arc<Self> {
        let (count, losses) = world::roll(|dice| *dice.choose(&SIZES).expect("there are some"));
        let lease = Duration::from_millis(world::roll(|dice| *dice.choose(&LEASES).expect("there are some")));
        let stores: Vec<Arc<Store>> = (0..count).map(|number| Store::with_clock(number, clock(broken))).collect();
        world::note(format_args!("{count} stores, {losses} may be lost; a lease of {lease:?}"));
        Arc::new(Self {
            losses,
            lease,
            stores,
            network: Arc::default(),
            machines: (0..SERVERS).map(|_| Machine::default()).collect(),
            told: Mutex::default(),
            figures: Mutex::default(),
            broken,
            stop: AtomicBool::new(false),
        })
    }

    /// The options of an opening by a server.
    pub fn options(&self, server: usize) -> Options {
        let place = |store: &Arc<Store>| {
            // With a broken rule, stores do not look at who asks.
            let disk = match self.broken {
                Broken::Fences => store.disk.clone(),
                _ => Arc::new(store.disk.open_again()),
            };
            let view = View::of(store, disk, &self.network, Host::Server(server), None, self.lease / 4);
            let view = if self.broken == Broken::Witnesses { view.remembering() } else { view };
            (TargetId(store.number as u16), Arc::new(view) as Arc<dyn Target>)
        };
        let targets: Vec<MirrorTarget> = self.stores.iter().map(place).collect();
        Options {
            volume: *b"many failovers!!",
            voters: targets.iter().map(|(id, _)| *id).collect(),
            targets,
            losses: self.losses,
            generation: 1,
            holder: Holder { id: server as u128 + 1, name: format!("server{server}"), address: String::new() },
            lease: Some(self.lease),
            access: Access::Write,
            index: Box::new(self.machines[server].index.clone()),
            merge: add,
            limits: JournalLimits {
                segment_bytes: 4 << 10,
                group_bytes: 1 << 10,
                pending_bytes: 64 << 10,
                delay: Duration::from_millis(5),
                overlay_bytes: 2 << 10,
                snapshot_bytes: 8 << 10,
                // Files that were removed may be back after a power loss, and all are looked at.
                deadline: Duration::from_secs(5),
                retry: Duration::from_millis(20),
            },
            accept_loss: false,
            local_wal: None,
        }
    }

    /// The server of a machine, if it has the volume or believes so.
    pub fn serving(&self, server: usize) -> Option<Arc<Server>> {
        world::atomically(|| lock(&self.machines[server].serving).clone())
    }

    pub fn count(&self, what: &str, count: u64) {
        world::atomically(|| lock(&self.figures).add(what, count));
    }

    /// A client learns that its request is durable.
    pub fn tell(&self, request: u64, position: u64) {
        world::atomically(|| lock(&self.told).add(request, position));
    }

    /// The newest position that anybody was told.
    pub fn newest(&self) -> u64 {
        world::atomically(|| lock(&self.told).newest())
    }

    /// What a read must not be older than, and what it found.
    pub fn is_new(&self, before: u64, found: u64) {
        if found < before {
            world::fail(&format!("an old read: it found {found} requests, and {before} had been told before"));
        }
    }
}
