//! What the process of a metadata server does for the post of one volume: it opens the volume, says
//! that it is ready, and carries commands out.

use super::hosted::{Hosted, Serving};
use super::metrics::Rate;
use super::server::ready;
use super::{places, respond};
use crate::failure::{Failure, Outcome};
use crate::show;
use cluster::meta_server::{Commands, Host, Post, PostOptions};
use cluster::{ClusterKey, MetaServer, Peer};
use fs::{FileSystem, Holder, OpenOptions, Sessions};
use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Once};
use std::time::{Duration, Instant};
use volume::{Shown, lock};

/// For this long it opens the volume only with enough stores to have the newest state; after that,
/// with as few as are enough to open it.
const NEWEST_STATE_TIMEOUT: Duration = Duration::from_secs(30);
/// When the reason for waiting changes, it is printed again, but no more often than this.
const NOTICE_INTERVAL: Duration = Duration::from_secs(30);
/// How long the targets keep other servers away when this one does not renew its claim.
const LEASE: Duration = Duration::from_secs(2);
/// How long to wait for a process that is about to close a target.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// How a metadata server behaves.
pub struct Behaviour {
    pub lease: Duration,
    pub down_out: Duration,
    pub repair_limit: Rate,
    pub report_every: Duration,
    /// In larger clusters reports come through primes.
    pub primes_above: usize,
    /// How long it waits for stores at the start.
    pub patience: Duration,
    pub metrics: Option<SocketAddr>,
    /// Where a page about the volume is, and the file of the key for operators.
    pub console: Option<(SocketAddr, Option<PathBuf>)>,
    /// The key that signs capabilities; None if no other machine is in the network.
    pub key: Option<Arc<ClusterKey>>,
    pub name: Option<String>,
    pub advertise: Option<String>,
}

/// The stores are asked for reports once for all volumes.
static WATCHES: Once = Once::new();

/// What this process does for the post of a volume.
pub struct MetaHost {
    pub directory: PathBuf,
    /// The name of the volume.
    pub name: String,
    pub post: Arc<Post>,
    volume: Arc<Hosted>,
    own: Peer,
    /// Its id in claims.
    id: u128,
    lock: Arc<File>,
    behaviour: Arc<Behaviour>,
    address: SocketAddr,
    metrics: Option<SocketAddr>,
    as_json: bool,
    /// The process has no other volume.
    alone: bool,
    begun: Instant,
    was_ready: AtomicBool,
    /// It has waited for the stores long enough.
    gave_up: AtomicBool,
    last_notice: Mutex<Option<(Instant, String)>>,
    served: Option<respond::Served>,
}

impl MetaHost {
    /// For the volume in a directory that this process has locked. It begins to carry commands out.
    pub fn new(
        directory: &Path,
        name: String,
        lock: Arc<File>,
        own: Peer,
        address: SocketAddr,
        behaviour: Arc<Behaviour>,
        (alone, as_json): (bool, bool),
    ) -> Result<Self, Failure> {
        let id = fs::holder_id(directory)?;
        let volume = Arc::<Hosted>::default();
        let post = Post::new(PostOptions {
            directory: directory.to_path_buf(),
            own: own.clone(),
            id,
            places: places(),
            key: behaviour.key.clone(),
            commands: commands(&volume),
        })?;
        volume.set_post(post.clone());
        Ok(Self {
            directory: directory.to_path_buf(),
            name,
            post,
            served: respond::serve(directory, volume.clone(), || true),
            volume,
            own,
            id,
            lock,
            behaviour,
            address,
            metrics: None,
            as_json,
            alone,
            begun: Instant::now(),
            was_ready: AtomicBool::new(false),
            gave_up: AtomicBool::new(false),
            last_notice: Mutex::default(),
        })
    }

    /// The same, with the address of the metrics.
    pub fn with_metrics(self, metrics: Option<SocketAddr>) -> Self {
        Self { metrics, ..self }
    }

    /// The volume, for commands.
    pub fn hosted(&self) -> Arc<Hosted> {
        self.volume.clone()
    }

    fn url(&self, address: &str) -> String {
        format!("weft://{address}/{}", self.name)
    }

    /// At the end of the process.
    pub fn end(&self, outcome: fs::Result<usize>) -> Outcome {
        if let Some(served) = &self.served {
            served.stop();
        }
        let outcome = outcome.map_err(|why| self.explained(why)).map(|away| {
            if away > 0 {
                show::warning(format_args!(
                    "{} cannot be reached: what is not there yet stays in {} until this server is started again",
                    show::count(away, "target"),
                    Shown(&self.directory)
                ));
            }
        });
        if let Some(served) = &self.served {
            served.ended(&outcome);
        }
        outcome
    }

    /// An error that ended a start says how long the start waited.
    fn explained(&self, why: fs::Error) -> Failure {
        if !self.gave_up.load(Ordering::SeqCst) {
            return why.into();
        }
        let patience = self.behaviour.patience;
        let waited = show::count(patience.as_secs() as usize, "second");
        let waited = if patience.is_zero() { String::new() } else { format!("; it was waited for {waited}") };
        let text = format!("{why}{waited}");
        match why {
            fs::Error::TooFew(_) => Failure::TooFew(text),
            _ => Failure::Volume(fs::Error::Unavailable(text)),
        }
    }

    fn options(&self, insists: bool) -> OpenOptions {
        let insists = insists && self.begun.elapsed() < NEWEST_STATE_TIMEOUT.min(self.behaviour.patience);
        let Peer { name, address } = self.own.clone();
        let holder = Holder { id: self.id, name, address };
        let lock = Some(self.lock.clone());
        OpenOptions { serve: true, insists, lock, holder, lease: Some(LEASE), ..super::options(false) }
    }

    /// Opens the volume. Waits for a process that has a target and is about to end.
    fn open_volume(&self, insists: bool) -> fs::Result<Arc<FileSystem>> {
        let begun = Instant::now();
        loop {
            match FileSystem::open_volume(&self.directory, self.options(insists)) {
                Err(fs::Error::Conflict(_) | fs::Error::Volume(volume::Error::Conflict { .. }))
                    if begun.elapsed() < CLOSE_TIMEOUT =>
                {
                    std::thread::sleep(Duration::from_millis(50));
                }
                opened => return opened,
            }
        }
    }
}

/// Carries out commands that come over the network.
fn commands(volume: &Arc<Hosted>) -> Commands {
    let volume = volume.clone();
    Commands::new(move |request, operator, control| respond::respond(&volume, request, operator, control))
}

impl Host for MetaHost {
    fn open(&self, insists: bool) -> fs::Result<Arc<MetaServer>> {
        let opened = self.open_volume(insists)?;
        let Behaviour { lease, down_out, repair_limit, key, .. } = &*self.behaviour;
        opened.counts().repairs.set_limit(repair_limit.0);
        let sessions = Sessions::new(opened.clone(), *lease);
        let meta = MetaServer::new(sessions, commands(&self.volume));
        let meta = Arc::new(match key {
            Some(key) => meta.signing(key.clone())?,
            None => meta,
        });
        cluster::keep(&opened, *down_out, |what| show::warning(what));
        // The first opening finds the stores; they are asked from then on.
        WATCHES.call_once(|| {
            places().stores().set_small_cluster(self.behaviour.primes_above);
            cluster::store::watch(places().stores(), self.behaviour.report_every);
        });
        let living = Arc::downgrade(&meta);
        places().stores().tell_of_sessions(opened.id()?, move || living.upgrade()?.living_sessions());
        if self.metrics.is_some() {
            opened.watch_status();
        }
        self.volume.set_serving(Serving {
            fs: opened,
            place: format!("served on {}; give it as {}", self.address, self.url(&self.own.address)),
            to_others: true,
        });
        Ok(meta)
    }

    fn ready(&self, holder: Option<&Peer>) {
        if self.was_ready.swap(true, Ordering::SeqCst) {
            match holder {
                None => show::warning(format_args!("this server has the volume {} now", self.name)),
                Some(holder) => self.say(&format!("this server stands by; {} has the volume", holder.name)),
            }
            return;
        }
        let at = |address: &str| self.url(address);
        let serves = match holder {
            None => at(&self.address.to_string()),
            Some(holder) if holder.address.is_empty() => format!("stands by; {} has the volume", holder.name),
            Some(holder) => format!("stands by for {}", at(&holder.address)),
        };
        // The process that started it may have gone.
        let _ = ready(self.as_json, "meta", self.address, &serves, self.metrics);
    }

    fn closing(&self) {
        self.served.iter().for_each(respond::Served::interrupt);
    }

    fn closed(&self) {
        self.volume.clear_serving();
    }

    fn waits(&self, why: &fs::Error, begun: Duration) -> bool {
        let left = self.behaviour.patience.saturating_sub(begun);
        // The end of the process would be that of the other volumes.
        if left.is_zero() && self.alone {
            self.gave_up.store(true, Ordering::SeqCst);
            return false;
        }
        let why = why.to_string();
        let is_late = left.is_zero() && !self.gave_up.swap(left.is_zero(), Ordering::SeqCst);
        let mut last_notice = lock(&self.last_notice);
        let is_new = |(when, what): &(Instant, String)| *what != why && when.elapsed() >= NOTICE_INTERVAL;
        if is_late || last_notice.as_ref().is_none_or(is_new) {
            let left = show::count(left.as_secs().max(1) as usize, "second");
            match self.gave_up.load(Ordering::SeqCst) {
                true => self.say(&format!("nobody has the volume, and this server goes on trying: {why}")),
                false => self.say(&format!("waits for the stores, for up to {left}: {why}")),
            }
            *last_notice = Some((Instant::now(), why));
        }
        true
    }

    fn say(&self, line: &str) {
        match self.alone {
            true => show::warning(line),
            false => show::warning(format_args!("{}: {line}", self.name)),
        }
    }
}
