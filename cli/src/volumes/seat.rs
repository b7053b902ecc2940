//! A metadata server as a process: it has the volume, or stands by for another one that has it.

use super::metrics::{metrics_address, rate, tell};
use super::post::take;
use super::server::{Signals, cluster_key, io, listen, ready, server_options};
use super::serving::{Serving, clear_served, set_served};
use super::{patiently, places, respond};
use crate::failure::{Failure, Outcome};
use crate::show;
use clap::Args;
use cluster::meta_server::{Host, Post, PostOptions};
use cluster::metrics::PostMetrics;
use cluster::{ClusterKey, MetaServer, Peer, VolumeAddress, runtime};
use fs::label::Label;
use fs::{FileSystem, Holder, OpenOptions, Sessions};
use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Once};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::watch;
use volume::{Shown, lock};
use wire::{Role, Server, ServerOptions};

/// For this long it opens the volume only with enough stores to have the newest state; after that,
/// with as few as are enough to open it.
const NEWEST_STATE_TIMEOUT: Duration = Duration::from_secs(30);
/// When the reason for waiting changes, it is printed again, but no more often than this.
const NOTICE_INTERVAL: Duration = Duration::from_secs(30);
/// How long the targets keep other servers away when this one does not renew its claim.
const LEASE: Duration = Duration::from_secs(2);
/// How long to wait for a process that is about to close a target.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// Serve the metadata of a volume, or stand by for another server that does; clients mount
/// weft://HOST:PORT/NAME
#[derive(Args)]
#[command(after_help = "Examples:
  weft serve meta /srv/films --listen 127.0.0.1:7600
  weft serve meta /srv/films --metrics 9100 \\
      --repair-limit 200M
  # One more server, on another machine.
  weft serve meta /srv/films --listen 127.0.0.1:7601 \\
      --join weft://127.0.0.1:7600/films
  weft serve meta --config /etc/weft/weft.toml
  weft mount weft://127.0.0.1:7600/films /mnt
  weft status weft://127.0.0.1:7600/films

Of the metadata servers of a volume one has it, and the others stand by: if it dies, one of them takes over within \
seconds. The server may start before the stores: it waits for them (--patience). At SIGTERM it commits everything, \
leaves the volume to another server if there is one, and ends. Clients wait until one is there.")]
pub struct MetaArguments {
    /// The volume, from `weft volume create`; with --join a directory that need not be there
    volume: PathBuf,
    /// Where to listen
    #[arg(long, default_value = "127.0.0.1:7600", env = "WEFT_LISTEN")]
    listen: SocketAddr,
    /// Where clients and other servers reach it, if not at the address of --listen
    #[arg(long, value_name = "HOST:PORT", env = "WEFT_ADVERTISE")]
    advertise: Option<String>,
    /// Its name among the metadata servers of the volume; that of its certificate, or its address,
    /// if not given
    #[arg(long, env = "WEFT_NAME")]
    name: Option<String>,
    /// Be one more metadata server of this volume
    #[arg(long, value_name = "weft://HOST:PORT/NAME", env = "WEFT_JOIN")]
    join: Option<String>,
    /// Rebuild on other stores what is on a store that is down for this long
    #[arg(long, default_value_t = 300, value_name = "SECONDS", env = "WEFT_DOWN_OUT")]
    down_out: u64,
    /// End the session of a client that is silent for this long
    #[arg(
        long,
        default_value_t = 30,
        value_name = "SECONDS",
        value_parser = clap::value_parser!(u64).range(2..=3600),
        env = "WEFT_LEASE"
    )]
    lease: u64,
    /// Rebuild no more bytes than this in a second, all repairs together; off is no limit
    #[arg(long, default_value = "off", value_name = "SIZE", value_parser = rate_option, env = "WEFT_REPAIR_LIMIT")]
    repair_limit: Rate,
    /// Ask the stores for a report this often
    #[arg(
        long,
        default_value_t = 1,
        value_name = "SECONDS",
        value_parser = clap::value_parser!(u64).range(1..=3600),
        env = "WEFT_REPORT_EVERY"
    )]
    report_every: u64,
    /// Wait this long at the start for stores that do not answer yet
    #[arg(
        long,
        default_value_t = 300,
        value_name = "SECONDS",
        value_parser = clap::value_parser!(u64).range(..=86400),
        env = "WEFT_PATIENCE"
    )]
    patience: u64,
    /// Serve metrics over HTTP for Prometheus: /metrics, /health and /ready
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = metrics_address, env = "WEFT_METRICS")]
    metrics: Option<SocketAddr>,
}

/// Bytes a second, or as many as possible.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rate(Option<u64>);

fn rate_option(text: &str) -> Result<Rate, String> {
    rate(text).map(Rate)
}

/// How a metadata server behaves.
pub(super) struct Behaviour {
    pub lease: Duration,
    pub down_out: Duration,
    pub repair_limit: Rate,
    pub report_every: Duration,
    /// How long it waits for stores at the start.
    pub patience: Duration,
    pub metrics: Option<SocketAddr>,
    /// The key that signs capabilities; None if no other machine is in the network.
    pub key: Option<Arc<ClusterKey>>,
    pub name: Option<String>,
    pub advertise: Option<String>,
}

static WATCHES: Once = Once::new();

pub(super) fn serve(arguments: &MetaArguments, identity: Option<&Path>, signals: Signals, as_json: bool) -> Outcome {
    let options = server_options(Role::META, identity)?;
    let listener = listen(arguments.listen, identity)?;
    let certificate = identity.and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    let behaviour = Behaviour {
        lease: Duration::from_secs(arguments.lease),
        down_out: Duration::from_secs(arguments.down_out),
        repair_limit: arguments.repair_limit,
        report_every: Duration::from_secs(arguments.report_every),
        patience: Duration::from_secs(arguments.patience),
        metrics: arguments.metrics,
        key: cluster_key(identity)?,
        name: arguments.name.clone().or(certificate),
        advertise: arguments.advertise.clone(),
    };
    let directory = std::path::absolute(&arguments.volume).map_err(io)?;
    if let Some(volume) = &arguments.join {
        let own = own(&behaviour, listener.local_addr().map_err(io)?);
        join(&directory, volume, &own, behaviour.key.clone())?;
    }
    serve_meta(&directory, listener, options, behaviour, signals, as_json)
}

/// What this server is called, and where others reach it.
fn own(behaviour: &Behaviour, listens: SocketAddr) -> Peer {
    let host = || volume::machine::host().trim().to_owned();
    let address = behaviour.advertise.clone().unwrap_or_else(|| match listens.ip().is_unspecified() {
        true => format!("{}:{}", host(), listens.port()),
        false => listens.to_string(),
    });
    Peer { name: behaviour.name.clone().unwrap_or_else(|| address.clone()), address }
}

/// Makes a directory for one more server of a volume, if it is not there yet.
fn join(directory: &Path, volume: &str, own: &Peer, key: Option<Arc<ClusterKey>>) -> Outcome {
    let address: VolumeAddress = volume.parse()?;
    let is_it = |label: &Label| address.volume.is_empty() || address.volume == label.name;
    match Label::read_pointer(directory) {
        Ok(label) if is_it(&label) => return Ok(()),
        Ok(label) => {
            let shown = Shown(directory);
            return Err(Failure::Other(format!("{shown} is of the volume {}, not {}", label.name, address.volume)));
        }
        Err(fs::Error::NotFound(_)) => {}
        Err(why) => return Err(why.into()),
    }
    let (label, servers) = cluster::meta_server::join(&address.servers, own, key)?;
    let label = Label::from_json(&label)?;
    if !is_it(&label) {
        let servers = address.server_list();
        return Err(Failure::Other(format!("{servers} has the volume {}, not {}", label.name, address.volume)));
    }
    let failed = |why: std::io::Error| Failure::Other(format!("cannot make {}: {why}", Shown(directory)));
    volume::target::make_private(directory).map_err(failed)?;
    cluster::meta_server::write_list(directory, &servers).map_err(failed)?;
    label.write_pointer(directory).map_err(failed)
}

/// Serves a volume until a signal comes.
pub(super) fn serve_meta(
    directory: &Path,
    listener: TcpListener,
    options: ServerOptions,
    behaviour: Behaviour,
    signals: Signals,
    as_json: bool,
) -> Outcome {
    let address = listener.local_addr().map_err(io)?;
    let label = Label::read_pointer(directory)?;
    let lock = patiently(directory, || fs::lock_directory(directory))?;
    let own = own(&behaviour, address);
    let id = fs::holder_id(directory)?;
    let post = Post::new(PostOptions {
        directory: directory.to_path_buf(),
        own: own.clone(),
        id,
        places: places(),
        key: behaviour.key.clone(),
        commands: respond::respond,
    })?;
    take(post.clone());
    let stores = places().stores().clone();
    let service = Server::new(post.service(), options);
    let load = service.clone();
    let subject = || PostMetrics { post: post.clone(), server: Box::new(move || load.load()), stores };
    let metrics = tell(behaviour.metrics, || Arc::new(subject()))?;
    let host = Arc::new(MetaHost {
        directory: directory.to_path_buf(),
        name: label.name,
        own,
        id,
        lock,
        behaviour,
        address,
        metrics,
        as_json,
        begun: Instant::now(),
        was_ready: AtomicBool::new(false),
        gave_up: AtomicBool::new(false),
        last_notice: Mutex::default(),
        served: respond::serve(directory, || true),
    });
    let stops = post.clone();
    runtime().spawn(async move {
        signals.wait().await;
        stops.stop();
    });
    let (end, ended) = watch::channel(false);
    let serving = runtime().spawn(async move { service.serve(listener, Signals::of(ended).wait()).await });
    let outcome = post.run(&host);
    end.send_replace(true);
    let _ = runtime().block_on(serving);
    host.end(outcome)
}

/// What this process does for its post.
struct MetaHost {
    directory: PathBuf,
    /// The name of the volume.
    name: String,
    own: Peer,
    /// Its id in claims.
    id: u128,
    lock: Arc<File>,
    behaviour: Behaviour,
    address: SocketAddr,
    metrics: Option<SocketAddr>,
    as_json: bool,
    begun: Instant,
    was_ready: AtomicBool,
    /// It has waited for the stores long enough.
    gave_up: AtomicBool,
    last_notice: Mutex<Option<(Instant, String)>>,
    served: Option<respond::Served>,
}

impl MetaHost {
    fn url(&self, address: &str) -> String {
        format!("weft://{address}/{}", self.name)
    }

    /// At the end of the process.
    fn end(&self, outcome: fs::Result<usize>) -> Outcome {
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
        Failure::Volume(fs::Error::Unavailable(format!("{why}{waited}")))
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

impl Host for MetaHost {
    fn open(&self, insists: bool) -> fs::Result<Arc<MetaServer>> {
        let opened = self.open_volume(insists)?;
        let Behaviour { lease, down_out, repair_limit, key, .. } = &self.behaviour;
        opened.counts().repairs.set_limit(repair_limit.0);
        let sessions = Sessions::new(opened.clone(), *lease);
        let meta = MetaServer::new(sessions, respond::respond);
        let meta = Arc::new(match key {
            Some(key) => meta.signing(key.clone())?,
            None => meta,
        });
        cluster::keep(&opened, *down_out, |what| show::warning(what));
        // The first opening finds the stores; they are asked from then on.
        WATCHES.call_once(|| cluster::store::watch(places().stores(), self.behaviour.report_every));
        let living = Arc::downgrade(&meta);
        places().stores().tell_of_sessions(move || living.upgrade()?.living_sessions());
        if self.metrics.is_some() {
            opened.watch_status();
        }
        set_served(Serving {
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
                Some(holder) => show::warning(format_args!("this server stands by; {} has the volume", holder.name)),
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
        clear_served();
    }

    fn waits(&self, why: &fs::Error, begun: Duration) -> bool {
        let left = self.behaviour.patience.saturating_sub(begun);
        if left.is_zero() {
            self.gave_up.store(true, Ordering::SeqCst);
            return false;
        }
        let why = why.to_string();
        let mut last_notice = lock(&self.last_notice);
        if last_notice.as_ref().is_none_or(|(when, what)| *what != why && when.elapsed() >= NOTICE_INTERVAL) {
            let left = show::count(left.as_secs().max(1) as usize, "second");
            show::warning(format_args!("waits for the stores, for up to {left}: {why}"));
            *last_notice = Some((Instant::now(), why));
        }
        true
    }

    fn say(&self, line: &str) {
        show::warning(line);
    }
}
