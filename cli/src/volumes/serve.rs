//! `weft serve` and `weft cluster`: the servers of a cluster.

use super::joining::{desk, first, forget, join, standby, token, volume};
use super::meta_host::Behaviour;
use super::metrics::{Rate, metrics_address, tell};
use super::places;
use super::seat::{self, MetaArguments, serve_meta};
use super::server::{Signals, cluster_key, io, listen, ready, server_options};
use crate::failure::{Failure, Outcome};
use crate::unprotected;
use ::volume::Shown;
use clap::{Args, Subcommand};
use cluster::metrics::StoreMetrics;
use cluster::{Store, StoreAddress, runtime};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use wire::{Role, Server, ServerOptions, Service};

/// Run a server of a cluster: of storage, of a volume's metadata, or for machines that join
#[derive(Args)]
pub struct ServeArguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Store(StoreArguments),
    Meta(MetaArguments),
    Join(desk::Arguments),
}

/// Serve directories, one per disk, as targets
#[derive(Args)]
#[command(after_help = "Examples:
  weft serve store /disk1 /disk2 --listen 127.0.0.1:7701
  weft volume create /srv/films --code rs:1+1 \\
      store://127.0.0.1:7701/disk{1,2}
  weft serve store --config /etc/weft/weft.toml
  weft serve store /disk1 --metrics 9101 &
  curl http://127.0.0.1:9101/metrics

The last component of a directory is the name of its target. At SIGTERM the server answers the requests that it has, \
and ends.")]
struct StoreArguments {
    /// Directories, each of them a target or empty
    #[arg(required = true, value_name = "DIR")]
    targets: Vec<PathBuf>,
    /// Where to listen
    #[arg(long, default_value = "127.0.0.1:7701", env = "WEFT_LISTEN")]
    listen: SocketAddr,
    /// Its failure domain, from the large to the small, such as rack1/host3; new volumes spread
    /// their chunks over domains
    #[arg(long, value_name = "PATH", env = "WEFT_DOMAIN")]
    domain: Option<fs::Domain>,
    /// How far its clock and that of the metadata server may differ: it accepts a capability for
    /// this long after it expired
    #[arg(
        long,
        default_value_t = 300,
        value_name = "SECONDS",
        value_parser = clap::value_parser!(u64).range(0..=86400),
        env = "WEFT_CLOCK_TOLERANCE"
    )]
    clock_tolerance: u64,
    /// Serve metrics over HTTP for Prometheus: /metrics, /health and /ready
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = metrics_address, env = "WEFT_METRICS")]
    metrics: Option<SocketAddr>,
}

/// Run a cluster in one process to try it, or make machines a real one
#[derive(Args)]
pub struct ClusterArguments {
    #[command(subcommand)]
    command: ClusterCommand,
}

#[derive(Subcommand)]
enum ClusterCommand {
    Dev(DevArguments),
    Init(first::Arguments),
    Token(token::Arguments),
    Join(join::Arguments),
    Forget(forget::Arguments),
    Volume(volume::Arguments),
    Standby(standby::Arguments),
}

/// Run a whole cluster in one process, to try it
#[derive(Args)]
#[command(after_help = "Examples:
  weft cluster dev /tmp/try
  weft cluster dev /tmp/try --stores 7 --code rs:4+2
  weft cluster dev /tmp/try --port 7600 --metrics 9100
  weft cluster dev /tmp/try --coding server
  weft mount weft://127.0.0.1:7600/try /mnt

It creates the directory, the targets and the volume if they are not there, and uses them if they are. Ctrl-C ends \
it.")]
struct DevArguments {
    /// A directory for everything
    directory: PathBuf,
    /// Number of storage servers; each has one target
    #[arg(
        long,
        value_name = "N",
        default_value_t = 6,
        value_parser = clap::value_parser!(u16).range(1..=1000),
        env = "WEFT_STORES"
    )]
    stores: u16,
    /// The code of the volume
    #[arg(long, default_value = "rs:4+2", env = "WEFT_CODE")]
    code: String,
    /// The port of the metadata server; the stores have the next ones
    #[arg(long, default_value_t = 7600, env = "WEFT_PORT")]
    port: u16,
    /// Who codes stripes where a mount does not say: client, server (the stores) or auto; for a new
    /// volume
    #[arg(long, default_value_t, value_name = "WHO", env = "WEFT_CODING")]
    coding: fs::Coding,
    /// Serve metrics over HTTP: the metadata server on this port, the stores on the next ones
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = metrics_address, env = "WEFT_METRICS")]
    metrics: Option<SocketAddr>,
}

pub fn serve(arguments: &ServeArguments, identity: Option<&Path>, as_json: bool) -> Outcome {
    let signals = Signals::new()?;
    match &arguments.what {
        What::Store(arguments) => {
            let tolerance = Duration::from_secs(arguments.clock_tolerance);
            let store = guarded(Store::open(&arguments.targets)?, identity, tolerance)?;
            let store = store.in_domain(arguments.domain.clone());
            let store = Arc::new(store);
            let names = store.names();
            let options = server_options(Role::STORE, identity)?;
            let listener = listen(arguments.listen, identity)?;
            let address = listener.local_addr().map_err(io)?;
            let targets: Vec<String> = names
                .into_iter()
                .map(|target| StoreAddress { server: address.to_string(), target }.to_string())
                .collect();
            let metrics = tell(arguments.metrics, || Arc::new(StoreMetrics(store.clone())))?;
            let server = store_server(store, options);
            ready(as_json, "store", address, &targets.join(" "), metrics)?;
            runtime().block_on(server.serve(listener, signals.wait()));
            Ok(())
        }
        What::Meta(arguments) => seat::serve(arguments, identity, signals, as_json),
        What::Join(arguments) => desk::run(arguments, identity, signals, as_json),
    }
}

/// A server of a store, whose reports describe this server.
fn store_server(store: Arc<Store>, options: ServerOptions) -> Server<Store> {
    store.look_after();
    let server = Server::new(store.clone(), options);
    store.behind(&server);
    server
}

fn guarded(store: Store, identity: Option<&Path>, clock_tolerance: Duration) -> Result<Store, Failure> {
    Ok(match cluster_key(identity)? {
        Some(key) => store.guarded_by(key, clock_tolerance),
        None => store,
    })
}

pub fn cluster(arguments: &ClusterArguments, as_json: bool) -> Outcome {
    match &arguments.command {
        ClusterCommand::Dev(arguments) => dev(arguments, as_json),
        ClusterCommand::Init(arguments) => first::run(arguments, as_json),
        ClusterCommand::Token(arguments) => token::run(arguments, as_json),
        ClusterCommand::Join(arguments) => join::run(arguments, as_json),
        ClusterCommand::Forget(arguments) => forget::run(arguments, as_json),
        ClusterCommand::Volume(arguments) => volume::run(arguments, as_json),
        ClusterCommand::Standby(arguments) => standby::run(arguments, as_json),
    }
}

fn dev(arguments: &DevArguments, as_json: bool) -> Outcome {
    let signals = Signals::new()?;
    let directory = std::path::absolute(&arguments.directory).map_err(io)?;
    let code = unprotected::parse_if(&arguments.code, false)?;
    if usize::from(arguments.stores) < code.shape().blocks() {
        return Err(Failure::Usage(format!(
            "{} needs {} stores, one for each block of a stripe; give --stores {}",
            code.spec(),
            code.shape().blocks(),
            code.shape().blocks()
        )));
    }
    let mut targets = Vec::new();
    let mut draining = Vec::new();
    for number in 1..=arguments.stores {
        let place = directory.join(format!("store-{number}")).join("target");
        std::fs::create_dir_all(&place).map_err(|why| Failure::Other(format!("{}: {why}", Shown(&place))))?;
        let port = arguments.port.checked_add(number);
        let port = port.ok_or_else(|| Failure::Usage("there are too few ports above --port".into()))?;
        let listener = listen(SocketAddr::from(([127, 0, 0, 1], port)), None)?;
        let address = StoreAddress { server: listener.local_addr().map_err(io)?.to_string(), target: "target".into() };
        targets.push(address.to_path());
        // The metadata server closes its volume before the stores end.
        let (end, ended) = watch::channel(false);
        let store = Arc::new(Store::open(&[place])?);
        tell(behind(arguments.metrics, number)?, || Arc::new(StoreMetrics(store.clone())))?;
        let server = store_server(store, server_options(Role::STORE, None)?);
        let running = runtime().spawn(async move { serve_until(server, listener, Signals::of(ended)).await });
        draining.push((end, running));
    }
    let volume = directory.join("meta");
    if !volume.join("volume.json").exists() {
        let name = directory.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let create = fs::Create {
            coding: arguments.coding,
            places: places(),
            ..fs::Create::new(&name, &code.spec().to_string(), targets)
        };
        create.run(&volume)?;
    }
    let listener = listen(SocketAddr::from(([127, 0, 0, 1], arguments.port)), None)?;
    let behaviour = Behaviour {
        lease: Duration::from_secs(30),
        down_out: Duration::from_secs(300),
        repair_limit: Rate::default(),
        report_every: Duration::from_secs(1),
        primes_above: plan::topology::layers::SMALL_CLUSTER,
        // They are in this process.
        patience: Duration::ZERO,
        metrics: arguments.metrics,
        console: None,
        key: None,
        name: None,
        advertise: None,
    };
    let options = server_options(Role::META, None)?;
    let outcome = serve_meta(&[volume], listener, options, behaviour, signals.copy(), as_json);
    for (end, running) in draining {
        end.send_replace(true);
        let _ = runtime().block_on(running);
    }
    outcome
}

/// The port `number` after that of an address; port 0 (any) stays 0.
fn behind(address: Option<SocketAddr>, number: u16) -> Result<Option<SocketAddr>, Failure> {
    let Some(mut address) = address.filter(|address| address.port() > 0) else { return Ok(address) };
    let port = address.port().checked_add(number);
    address.set_port(port.ok_or_else(|| Failure::Usage("there are too few ports above --metrics".into()))?);
    Ok(Some(address))
}

async fn serve_until<S: Service>(server: Server<S>, listener: TcpListener, signals: Signals) {
    server.serve(listener, signals.wait()).await;
}
