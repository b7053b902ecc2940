//! `weft s3`: a volume as buckets and objects.

use super::hosted::{Hosted, Serving};
use super::metrics::{metrics_address, tell};
use super::s3_keys::{self, key_file};
use super::server::{Signals, bind, ready};
use super::{Writing, open_with, respond, server_of};
use crate::failure::{Failure, Outcome};
use clap::{Args, Subcommand, ValueEnum};
use cluster::metrics::MountMetrics;
use plan::sizes;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Serve a volume to S3 clients, and manage their access keys
#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Examples:
  weft s3 key add /srv/films
  weft s3 /srv/films
  weft s3 /srv/films --listen 127.0.0.1:9000 --memory 1G
  weft s3 weft://127.0.0.1:7600/films \\
      --key-file /etc/weft/s3.key
  weft s3 /srv/films --listen 0.0.0.0:9000 \\
      --tls-certificate s3.pem --tls-key s3.pem.key

Buckets are the directories in the root of the volume, or in --root; keys are paths. What a mount writes is an object, \
and an object is a file. An object is acknowledged when it is durable, and readers see the old one or the new one.

Several gateways may serve a volume that metadata servers have, beside mounts. A volume that no server has is open in \
one process, so a gateway and a mount of it exclude each other.

SIGTERM lets requests in progress end for 30 seconds."
)]
pub struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// The volume
    #[arg(required = true)]
    volume: Option<PathBuf>,
    /// Where to listen. Others reach it only with certificates, or with --plain-http
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9000", env = "WEFT_S3_LISTEN")]
    listen: SocketAddr,
    /// The directory of the volume whose directories are buckets
    #[arg(long, value_name = "PATH", default_value = "/", env = "WEFT_S3_ROOT")]
    root: String,
    /// The file with the key that opens the secrets of access keys [default: s3.key in the
    /// volume's directory]
    #[arg(long, value_name = "FILE", env = "WEFT_S3_KEY_FILE")]
    key_file: Option<PathBuf>,
    /// A PEM file with the certificate for TLS, and those above it
    #[arg(long, value_name = "FILE", requires = "tls_key", env = "WEFT_S3_TLS_CERTIFICATE")]
    tls_certificate: Option<PathBuf>,
    /// A PEM file with the private key of the certificate
    #[arg(long, value_name = "FILE", requires = "tls_certificate", env = "WEFT_S3_TLS_KEY")]
    tls_key: Option<PathBuf>,
    /// Listen for others without TLS: they can read what is on the way, not sign requests
    #[arg(long, env = "WEFT_S3_PLAIN_HTTP")]
    plain_http: bool,
    /// A name of this gateway, so that BUCKET.NAME is a bucket
    #[arg(long, value_name = "NAME", env = "WEFT_S3_DOMAIN", value_delimiter = ',')]
    domain: Vec<String>,
    /// What the bodies of requests may take in memory together; a page of a directory with millions
    /// of names takes a sixteenth of that besides, as free buffers do, and the volume has its own
    #[arg(
        long, value_name = "SIZE", default_value = "512M", value_parser = sizes::length::<u64>,
        env = "WEFT_S3_MEMORY"
    )]
    memory: u64,
    /// What the ETag of an object is made of that is put in one piece
    #[arg(long, value_enum, value_name = "HASH", default_value_t = Etag::Md5, env = "WEFT_S3_ETAG")]
    etag: Etag,
    /// The most connections
    #[arg(
        long, value_name = "N", default_value_t = 10_000, env = "WEFT_S3_CONNECTIONS",
        value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1_000_000)
    )]
    connections: usize,
    /// Give up multipart uploads that nobody completes in this many days; 0 for never
    #[arg(long, value_name = "DAYS", default_value_t = 7, env = "WEFT_S3_EXPIRE_UPLOADS")]
    expire_uploads: u32,
    /// Serve metrics over HTTP for Prometheus: /metrics, /health and /ready
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = metrics_address, env = "WEFT_METRICS")]
    metrics: Option<SocketAddr>,
    /// Wait this long for a metadata server that does not answer
    #[arg(
        long, default_value_t = 300, value_name = "SECONDS", env = "WEFT_PATIENCE",
        value_parser = clap::value_parser!(u64).range(1..=86400)
    )]
    patience: u64,
}

#[derive(Clone, Copy, ValueEnum)]
enum Etag {
    /// Its MD5, as S3 does it: clients may compare it with their bytes
    Md5,
    /// Its BLAKE3 hash, shortened, and -0: a large put takes about half of the processor time, and
    /// clients do not compare it. A request with a Content-MD5 gets that as its ETag
    Blake3,
}

impl From<Etag> for s3::Etag {
    fn from(etag: Etag) -> Self {
        match etag {
            Etag::Md5 => Self::Md5,
            Etag::Blake3 => Self::Blake3,
        }
    }
}

#[derive(Subcommand)]
enum Command {
    Key(s3_keys::Arguments),
}

impl Arguments {
    /// Whether the process that has the volume open may carry it out for another one.
    pub fn is_about_keys(&self) -> bool {
        self.command.is_some()
    }
}

pub fn run(arguments: &Arguments, as_json: bool) -> Outcome {
    match (&arguments.command, &arguments.volume) {
        (Some(Command::Key(arguments)), _) => s3_keys::run(arguments, as_json),
        (None, Some(volume)) => serve(arguments, volume, as_json),
        (None, None) => Err(Failure::Usage("give the volume".into())),
    }
}

fn serve(arguments: &Arguments, volume: &Path, as_json: bool) -> Outcome {
    let address = arguments.listen;
    let tls = match (&arguments.tls_certificate, &arguments.tls_key) {
        (Some(certificate), Some(key)) => Some(s3::tls(certificate, key)?),
        _ => None,
    };
    if !address.ip().is_loopback() && tls.is_none() && !arguments.plain_http {
        return Err(Failure::Usage(format!(
            "{address} can be reached by others, who could read what is on the way: give --tls-certificate and \
             --tls-key, or --plain-http, or listen on 127.0.0.1"
        )));
    }
    cluster::set_server_timeout(Duration::from_secs(arguments.patience));
    let path = key_file(volume, arguments.key_file.as_ref())?;
    if !path.exists() {
        return Err(Failure::Other(format!(
            "there is no key file {}: make an access key first, with weft s3 key add",
            volume::Shown(&path)
        )));
    }
    let key = s3::keys::KeyFile::read(&path)?;
    // The socket is bound first: a gateway that cannot listen need not open the volume.
    let listener = bind(address)?;
    let address = listener.local_addr().map_err(super::server::io)?;
    let signals = Signals::new()?;
    volume::allow_many_open_files();
    let opened = open_with(volume, false, &Writing::default())?;
    let fs = opened.shared().clone();
    let metrics =
        tell(arguments.metrics, || Arc::new(MountMetrics::new(fs.clone(), super::places().stores().clone())))?;
    let hosted = Arc::<Hosted>::default();
    hosted.set_serving(Serving {
        fs: fs.clone(),
        place: format!("served to S3 clients on {address}; use its files there, or end that gateway first"),
        to_others: false,
    });
    // A volume of a cluster has its commands carried out by its server.
    let served = match server_of(volume)? {
        Some(_) => None,
        None => respond::serve(volume, hosted, || true),
    };
    fs.rebalance_by_itself();
    let scheme = if tls.is_some() { "https" } else { "http" };
    let options = s3::Options {
        memory: arguments.memory.max(16 << 20),
        etag: arguments.etag.into(),
        connections: arguments.connections,
        tls,
        domains: arguments.domain.clone(),
        expire: (arguments.expire_uploads > 0)
            .then(|| Duration::from_secs(u64::from(arguments.expire_uploads) * 24 * 3600)),
    };
    let outcome = s3::Objects::new(fs.clone(), &arguments.root).map_err(Failure::from).and_then(|objects| {
        ready(as_json, "s3", address, &format!("{} at {scheme}://{address}", volume::Shown(volume)), metrics)?;
        Ok(s3::run(listener, objects, key, options, signals.wait())?)
    });
    if let Some(served) = &served {
        served.stop();
    }
    let closed = fs.close_volume().map_err(Failure::from);
    let outcome = outcome.and(closed);
    if let Some(served) = &served {
        served.ended(&outcome);
    }
    outcome
}
