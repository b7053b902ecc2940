//! Everything that a run has: the stores, the metadata server, the clients and the network between
//! them.

use crate::broken::Broken;
use crate::history::History;
use crate::network::{Host, Network};
use crate::server::Server;
use crate::store::Store;
use crate::view::View;
use fs::FileSystem;
use fs::label::{Label, Member};
use plan::TargetId;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use volume::lock;
use volume::target::Target;
use world::Process;

/// How long a silent client keeps its session.
pub const LEASE: Duration = Duration::from_secs(8);
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
}

impl Lab {
    /// A volume on new stores. No process runs.
    pub fn new(broken: Broken) -> Arc<Self> {
        let (code, count) = world::roll(|dice| *dice.choose(&CODES).expect("there are codes"));
        let shape = ec::parse(code).expect("the code is known").shape();
        let member = |number: usize| Member::new(TargetId(number as u16), PathBuf::new());
        let durability = shape.k + usize::from(shape.m > 0);
        let label = Label::new([7; 16], "simulated", code, CHUNK, durability, (0..count).map(member).collect());
        let stores: Vec<Arc<Store>> = (0..count).map(Store::new).collect();
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
        };
        let places = lab.places(Host::Meta, None);
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

    /// Kills the metadata server's process.
    pub fn kill_server(&self) {
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

    /// Starts a metadata server, on a machine that was restarted.
    pub fn start_server(self: &Arc<Self>) {
        let start = self.starts.fetch_add(1, Ordering::SeqCst) + 1;
        *lock(&self.meta) = Some(Server::start(self, start));
    }
}
