//! A metadata server as a process: of each of its volumes, it has the volume or stands by for
//! another server that has it.

use super::console::{self, console_address};
use super::meta_host::{Behaviour, MetaHost};
use super::metrics::{Rate, metrics_address, rate_option, tell};
use super::server::{Signals, cluster_key, io, listen, server_options};
use super::{patiently, places};
use crate::failure::{Failure, Outcome};
use crate::show;
use clap::Args;
use cluster::meta_server::VolumesService;
use cluster::metrics::PostMetrics;
use cluster::{ClusterKey, Peer, VolumeAddress, runtime};
use fs::label::Label;
use plan::topology::layers::SMALL_CLUSTER;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use volume::Shown;
use wire::{Role, Server, ServerOptions};

/// Serve the metadata of volumes, or stand by for other servers that do; clients mount
/// weft://HOST:PORT/NAME
#[derive(Args)]
#[command(after_help = "Examples:
  weft serve meta /srv/films --listen 127.0.0.1:7600
  weft serve meta /srv/films --metrics 9100 \\
      --repair-limit 200M
  # One more server, on another machine.
  weft serve meta /srv/films --listen 127.0.0.1:7601 \\
      --join weft://127.0.0.1:7600/films
  # Two volumes, which may share disks (create --shared).
  weft serve meta /srv/films /srv/mails
  weft serve meta --config /etc/weft/weft.toml
  weft mount weft://127.0.0.1:7600/films /mnt
  weft status weft://127.0.0.1:7600/films

Of the metadata servers of a volume one has it, and the others stand by: if it dies, one of them takes over within \
seconds. The server may start before the stores: it waits for them (--patience). At SIGTERM it commits everything, \
leaves the volume to another server if there is one, and ends. Clients wait until one is there.")]
pub struct MetaArguments {
    /// The volumes, from `weft volume create`; with --join directories that need not be there
    #[arg(required = true, value_name = "VOLUME")]
    volume: Vec<PathBuf>,
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
    /// Be one more metadata server of this volume; with several, once for each, in their order
    #[arg(long, value_name = "weft://HOST:PORT/NAME", env = "WEFT_JOIN")]
    join: Vec<String>,
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
    /// Rebuild no more bytes of a volume than this in a second, all its repairs together; off is no
    /// limit
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
    /// With more stores than this, ask one store of each cabinet for the reports of all its stores
    #[arg(long, default_value_t = SMALL_CLUSTER, value_name = "STORES", env = "WEFT_PRIMES_ABOVE")]
    primes_above: usize,
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
    /// Serve a web page about the volume to this machine (see weft console)
    #[arg(long, value_name = "PORT", value_parser = console_address, env = "WEFT_CONSOLE")]
    console: Option<SocketAddr>,
    /// The file with the key for operators on that page, made if it is not there; without it the
    /// page is for reading
    #[arg(long, value_name = "FILE", requires = "console", env = "WEFT_CONSOLE_KEY_FILE")]
    console_key: Option<PathBuf>,
}

pub(super) fn serve(arguments: &MetaArguments, identity: Option<&Path>, signals: Signals, as_json: bool) -> Outcome {
    let options = server_options(Role::META, identity)?;
    let listener = listen(arguments.listen, identity)?;
    let certificate = identity.and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    let behaviour = Behaviour {
        lease: Duration::from_secs(arguments.lease),
        down_out: Duration::from_secs(arguments.down_out),
        repair_limit: arguments.repair_limit,
        report_every: Duration::from_secs(arguments.report_every),
        primes_above: arguments.primes_above,
        patience: Duration::from_secs(arguments.patience),
        metrics: arguments.metrics,
        console: arguments.console.map(|address| (address, arguments.console_key.clone())),
        key: cluster_key(identity)?,
        name: arguments.name.clone().or(certificate),
        advertise: arguments.advertise.clone(),
    };
    let listens = listener.local_addr().map_err(io)?;
    if listens.ip().is_unspecified() && behaviour.advertise.is_none() {
        let address = own(&behaviour, listens).address;
        show::warning(format_args!(
            "clients and other servers are told to reach this server at {address}; --advertise HOST:PORT says another \
             address"
        ));
    }
    let absolute = |directory| std::path::absolute(directory).map_err(io);
    let directories: Vec<PathBuf> = arguments.volume.iter().map(absolute).collect::<Result<_, _>>()?;
    if !arguments.join.is_empty() {
        if arguments.join.len() != directories.len() {
            let (volumes, joins) = (show::count(directories.len(), "volume"), arguments.join.len());
            return Err(Failure::Usage(format!("{volumes}, but {joins} --join: give one for each volume")));
        }
        let own = own(&behaviour, listens);
        for (directory, volume) in directories.iter().zip(&arguments.join) {
            join(directory, volume, &own, behaviour.key.clone())?;
        }
    }
    serve_meta(&directories, listener, options, behaviour, signals, as_json)
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
    let (label, servers) = cluster::meta_server::join(&address, own, key)?;
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

/// Serves volumes until a signal comes. A directory that cannot be used ends the start. One of
/// several volumes that cannot be opened is tried again and again, and the others are served; what
/// fails for good is in the exit status in the end.
pub(super) fn serve_meta(
    directories: &[PathBuf],
    listener: TcpListener,
    options: ServerOptions,
    behaviour: Behaviour,
    signals: Signals,
    as_json: bool,
) -> Outcome {
    let address = listener.local_addr().map_err(io)?;
    let own = own(&behaviour, address);
    let behaviour = Arc::new(behaviour);
    let mut hosts: Vec<MetaHost> = Vec::new();
    for directory in directories {
        let label = Label::read_pointer(directory)?;
        if let Some(other) = hosts.iter().find(|other| other.name == label.name) {
            if other.directory == *directory {
                return Err(Failure::Usage(format!("{} is given twice", Shown(directory))));
            }
            let (one, other) = (Shown(directory), Shown(&other.directory));
            let why =
                format!("{other} and {one} have the same name, {}: clients could not tell them apart", label.name);
            return Err(Failure::Usage(why));
        }
        let lock = patiently(directory, || fs::lock_directory(directory))?;
        let how = (directories.len() == 1, as_json);
        hosts.push(MetaHost::new(directory, label.name, lock, own.clone(), address, behaviour.clone(), how)?);
    }
    let service = Server::new(VolumesService::new(hosts.iter().map(|host| (&host.name[..], &*host.post))), options);
    let load = service.clone();
    let posts = || hosts.iter().map(|host| (host.name.clone(), host.post.clone())).collect();
    let stores = places().stores().clone();
    let subject = || PostMetrics { posts: posts(), server: Box::new(move || load.load()), stores };
    let metrics = tell(behaviour.metrics, || Arc::new(subject()))?;
    if let Some((place, key)) = &behaviour.console {
        show_console(*place, key.clone(), &hosts, metrics)?;
    }
    let hosts: Vec<Arc<MetaHost>> = hosts.into_iter().map(|host| Arc::new(host.with_metrics(metrics))).collect();
    let stops: Vec<_> = hosts.iter().map(|host| host.post.clone()).collect();
    runtime().spawn(async move {
        signals.wait().await;
        stops.iter().for_each(|post| post.stop());
    });
    let (end, ended) = watch::channel(false);
    let serving = runtime().spawn(async move { service.serve(listener, Signals::of(ended).wait()).await });
    let outcomes = run_all(&hosts);
    end.send_replace(true);
    let _ = runtime().block_on(serving);
    let outcomes: Vec<Outcome> = hosts.iter().zip(outcomes).map(|(host, outcome)| host.end(outcome)).collect();
    outcomes.into_iter().collect()
}

/// Serves a page about the volume that the process has.
fn show_console(
    place: SocketAddr,
    key: Option<PathBuf>,
    hosts: &[MetaHost],
    metrics: Option<SocketAddr>,
) -> Result<(), Failure> {
    let [host] = hosts else {
        let why = "a page is about one volume, and there are several: run weft console for each";
        return Err(Failure::Usage(why.into()));
    };
    let subject = console::Subject {
        source: Arc::new(console::Own(host.hosted())),
        name: host.name.clone(),
        metrics: metrics.into_iter().collect(),
        every: Duration::from_secs(2),
        key,
        hosts: Vec::new(),
    };
    let address = console::serve(console::listen(place, false)?, subject)?;
    show::warning(format_args!("the console is at http://{address}/"));
    Ok(())
}

/// Serves each volume until its end.
fn run_all(hosts: &[Arc<MetaHost>]) -> Vec<fs::Result<usize>> {
    let run = |host: &Arc<MetaHost>| {
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| host.post.run(host)));
        // Nothing would open, renew or give the volume away, while requests were still answered.
        let outcome = ended.unwrap_or_else(|_| {
            show::warning(format_args!("a defect of Weft ends this server: nothing drives the volume {}", host.name));
            std::process::abort()
        });
        match &outcome {
            Err(why) if hosts.len() > 1 => {
                show::warning(format_args!("the volume {} is not served any more: {why}", host.name));
            }
            _ => {}
        }
        outcome
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = hosts[1..].iter().map(|host| scope.spawn(move || run(host))).collect();
        let first = run(&hosts[0]);
        let joined = others.into_iter().map(|it| it.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        std::iter::once(first).chain(joined.collect::<Vec<_>>()).collect()
    })
}
