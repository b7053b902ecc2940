//! Everything that a run has: the stores, the metadata server, the clients and the network between
//! them.

use crate::broken::Broken;
use crate::history::History;
use crate::index::Kept;
use crate::network::{Host, Network};
use crate::server::Server;
use crate::store::Store;
use crate::view::View;
use crate::work::CLIENTS;
use fs::FileSystem;
use fs::label::{Label, Member};
use plan::TargetId;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use volume::lock;
use volume::target::{Clock, Target};
use world::Process;

/// How long a silent client keeps its session.
pub const LEASE: Duration = Duration::from_secs(8);
/// How long a silent metadata server keeps the volume.
pub const SERVER_LEASE: Duration = Duration::from_secs(2);
/// Machines on which the metadata server may be.
pub const MACHINES: usize = 3;
/// How far clocks run wrong at most, in millionths. Crystals are wrong by 100.
pub const DRIFT: i64 = 2000;
/// The shortest chunks that a volume may have, so that there are many chunk sets.
const CHUNK: u32 = 3 << 20;
/// The codes of the volumes, with the number of stores.
const CODES: [(&str, usize); 4] = [("rs:2+1", 4), ("rs:2+1", 5), ("rs:4+2", 7), ("rs:2+2", 5)];

/// The parts of a run.
pub struct Lab {
    pub label: Label,
    /// How many stores the code can lose.
    pub spare: usize,
    pub stores: Vec<Arc<Store>>,
    pub network: Arc<Network>,
    pub history: History,
    pub broken: Broken,
    /// The process of the metadata server, if one runs.
    pub meta: Mutex<Option<Process>>,
    /// The server in it, when it has the volume open.
    pub server: Mutex<Option<Arc<Server>>>,
    /// How often a server was started.
    pub starts: AtomicU64,
    /// The machine of the server that was started last.
    machine: AtomicUsize,
    /// Its index.
    index: Mutex<Kept>,
    /// The index whose disk is full. A server that has it goes on when another takes over.
    full: Mutex<Option<Kept>>,
    /// The server before it, whose process goes on.
    former: Mutex<Option<(Process, usize)>>,
}

/// How a server leaves without its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Away {
    /// Its process is stopped.
    Stopped,
    /// It is cut off from everything: in both directions, or in the one to it or from it.
    Cut(bool, bool),
    /// The same, but from the stores only.
    CutFromStores(bool, bool),
}

/// A clock that runs a little too fast or too slow.
fn clock() -> Clock {
    let drift = world::roll(|dice| dice.below(2 * DRIFT as u64)) as i64 - DRIFT;
    Clock::new(move || {
        let now = world::now().as_nanos() as i64;
        Duration::from_nanos((now + now / 1_000_000 * drift) as u64)
    })
}

impl Lab {
    /// A volume on new stores. No process runs.
    pub fn new(broken: Broken) -> Arc<Self> {
        let (code, count) = world::roll(|dice| *dice.choose(&CODES).expect("there are codes"));
        let shape = ec::parse(code).expect("the code is known").shape();
        let member = |number: usize| Member::new(TargetId(number as u16), PathBuf::new());
        let durability = shape.k + usize::from(shape.m > 0);
        let label = Label::new([7; 16], "simulated", code, CHUNK, durability, (0..count).map(member).collect());
        let stores: Vec<Arc<Store>> = (0..count).map(|number| Store::with_clock(number, clock())).collect();
        world::note(format_args!("{code} on {count} stores"));
        let lab = Self {
            label,
            spare: shape.m,
            stores,
            network: Arc::default(),
            history: History::default(),
            broken,
            meta: Mutex::default(),
            server: Mutex::default(),
            starts: AtomicU64::new(0),
            machine: AtomicUsize::new(0),
            index: Mutex::default(),
            full: Mutex::default(),
            former: Mutex::default(),
        };
        let places = lab.places(lab.host(), None);
        FileSystem::create_on(&lab.label, places).expect("a volume can be made on stores without faults");
        if broken == Broken::Disks {
            lab.stores.iter().for_each(|store| store.lies.store(true, Ordering::Relaxed));
        }
        Arc::new(lab)
    }

    /// The stores as a machine sees them.
    pub fn views(&self, host: Host, session: Option<&Arc<AtomicU64>>) -> Vec<Arc<View>> {
        self.stores.iter().map(|store| View::new(store, &self.network, host, session.cloned())).collect()
    }

    /// The same, with the numbers of the targets.
    pub fn places(&self, host: Host, session: Option<&Arc<AtomicU64>>) -> Vec<(TargetId, Arc<dyn Target>)> {
        let views = self.views(host, session).into_iter().enumerate();
        views.map(|(number, view)| (TargetId(number as u16), view as Arc<dyn Target>)).collect()
    }

    /// The server that runs.
    pub fn serving(&self) -> Option<Arc<Server>> {
        lock(&self.server).clone()
    }

    /// The machine of the server that was started last.
    pub fn host(&self) -> Host {
        Host::Server(self.machine.load(Ordering::SeqCst))
    }

    /// The index of that server, new.
    pub fn new_index(&self) -> Kept {
        let new = Kept::default();
        *lock(&self.index) = new.clone();
        new
    }

    /// The disk with the index of the server that was started last is full.
    pub fn fill_server(&self) {
        let index = lock(&self.index).clone();
        index.set_full(true);
        *lock(&self.full) = Some(index);
    }

    /// That disk has space again.
    pub fn free_server(&self) {
        if let Some(index) = lock(&self.full).take() {
            index.set_full(false);
        }
    }

    /// Sets the wall clock of its machine wrong.
    pub fn set_server_clock(&self, offset_ns: i64) {
        lock(&self.meta).inspect(|process| process.set_wall_clock(offset_ns));
    }

    /// The server goes away; the next one starts on another machine. Returns whether this was done.
    pub fn give_up_server(&self, away: Away) -> bool {
        let former = *lock(&self.former);
        if let Some((former, _)) = former {
            if self.serving().is_none_or(|server| server.process == former) {
                return false;
            }
            former.kill();
        }
        let Some(process) = lock(&self.meta).take() else { return false };
        let machine = self.machine.load(Ordering::SeqCst);
        *lock(&self.former) = Some((process, machine));
        self.set_away(away, true);
        self.machine.store((machine + 1) % MACHINES, Ordering::SeqCst);
        true
    }

    /// The server that went away goes on. It may have been taken over, and does not know that.
    pub fn wake_server(&self, away: Away) {
        self.set_away(away, false);
    }

    fn set_away(&self, away: Away, begins: bool) {
        let Some((process, machine)) = *lock(&self.former) else { return };
        let (only_stores, to, from) = match away {
            Away::Stopped => return process.stop(begins),
            Away::Cut(to, from) => (false, to, from),
            Away::CutFromStores(to, from) => (true, to, from),
        };
        let clients = (0..=CLIENTS).filter(|_| !only_stores).map(Host::Client);
        for other in (0..self.stores.len()).map(Host::Store).chain(clients) {
            self.network.cut(other, Host::Server(machine), begins && to);
            self.network.cut(Host::Server(machine), other, begins && from);
        }
    }

    /// A server has the volume from now on.
    pub fn serve(&self, server: Server) {
        let before = world::atomically(|| lock(&self.server).replace(Arc::new(server)));
        if before.is_some() {
            // It was taken over: what was not synced may be lost.
            self.history.server_died();
        }
        // Its process goes on without it.
        std::mem::forget(before);
    }

    /// Kills the metadata server's process.
    pub fn kill_server(&self) {
        if let Some((former, _)) = lock(&self.former).take() {
            former.kill();
        }
        let Some(process) = lock(&self.meta).take() else { return };
        process.kill();
        self.history.server_died();
        // Its end would close the volume.
        std::mem::forget(lock(&self.server).take());
    }

    /// Stops the process, or lets it go on.
    pub fn stop_server(&self, stopped: bool) {
        lock(&self.meta).inspect(|process| process.stop(stopped));
    }
}
