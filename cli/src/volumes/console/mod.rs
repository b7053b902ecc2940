//! `weft console`: a web page about a volume. What it shows is what `weft status --json` says, and
//! the metrics of processes that it is told of; what operators do there are commands of `weft`.

mod act;
mod events;
mod history;
mod http;
mod key;
mod metrics;
mod page;
mod sample;
mod words;

use super::metrics::metrics_address;
use super::remote::{self, Answer};
use super::respond;
use super::server::{Signals, bind, io, ready};
use crate::failure::{Failure, Outcome};
use crate::{commands, parse, show, spelling};
use clap::Args;
use cluster::runtime;
use std::ffi::OsString;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use volume::{Control, Shown};

/// Serve a web page about a volume: its health, space, load, repairs and events
#[derive(Args)]
#[command(after_help = "Examples:
  weft console /srv/films
  weft console weft://127.0.0.1:7600/films \\
      --listen 127.0.0.1:7680
  # With latency and clients, by metrics of processes.
  weft console weft://127.0.0.1:7600/films \\
      --metrics 127.0.0.1:9100 --metrics 127.0.0.1:9102
  # Who has the key file may drain and replace targets.
  weft console /srv/films --key-file console.key

The page needs nothing from elsewhere. Reading needs no login, so it is for this machine alone unless --plain-http \
says otherwise; from another one: ssh -L 7680:127.0.0.1:7680 HOST. Operators log in with the key file, which is made \
if it is not there; what they do is done with the identity of this process.")]
pub struct Arguments {
    /// The volume, or its mount point
    volume: PathBuf,
    /// Where to listen
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7680", env = "WEFT_CONSOLE_LISTEN")]
    listen: SocketAddr,
    /// Also show the metrics that a metadata server or a mount serves there
    #[arg(long, value_name = "ADDRESS:PORT", env = "WEFT_CONSOLE_METRICS", value_delimiter = ',')]
    metrics: Vec<SocketAddr>,
    /// Look this often
    #[arg(
        long, value_name = "SECONDS", default_value_t = 2, env = "WEFT_CONSOLE_EVERY",
        value_parser = clap::value_parser!(u64).range(1..=3600)
    )]
    every: u64,
    /// The file with the key for operators; without it the page is for reading
    #[arg(long, value_name = "FILE", env = "WEFT_CONSOLE_KEY_FILE")]
    key_file: Option<PathBuf>,
    /// Let others read the page, without encryption
    #[arg(long, env = "WEFT_CONSOLE_PLAIN_HTTP")]
    plain_http: bool,
    /// A host name by which browsers reach the page, such as that of a proxy before it; IP
    /// addresses and localhost are always right
    #[arg(long = "host", value_name = "NAME", env = "WEFT_CONSOLE_HOST", value_delimiter = ',')]
    hosts: Vec<String>,
}

/// What a console asks: somebody that carries commands of `weft` out.
pub trait Source: Send + Sync + 'static {
    /// Carries a command out: its words without `weft`, with the volume where `None` stands.
    fn ask(&self, words: &[Option<&str>]) -> Answer;
}

/// A volume, as commands take it.
struct Volume(PathBuf);

impl Source for Volume {
    fn ask(&self, words: &[Option<&str>]) -> Answer {
        let word = |word: &Option<&str>| word.map_or_else(|| self.0.clone().into_os_string(), OsString::from);
        let given: Vec<OsString> = ["weft".into()].into_iter().chain(words.iter().map(word)).collect();
        remote::asked(&self.0, given.clone()).unwrap_or_else(|| {
            let (status, output, errors) = show::captured(|| {
                let commands = commands();
                let given = spelling::today(&commands, given);
                parse(commands, given).map_or(2, |(arguments, _)| crate::run(arguments))
            });
            Answer { status, output, errors }
        })
    }
}

/// A volume that a metadata server has, asked in its own process.
pub struct Own(pub Arc<super::hosted::Hosted>);

impl Source for Own {
    fn ask(&self, words: &[Option<&str>]) -> Answer {
        // The server takes its own volume, whatever the address says.
        let word = |word: &Option<&str>| OsString::from(word.unwrap_or("."));
        let given = ["weft".into()].into_iter().chain(words.iter().map(word)).collect();
        respond::carry_out_for(&self.0, OsString::new(), given, true, &Arc::<Control>::default())
    }
}

/// What a console is about.
pub struct Subject {
    pub source: Arc<dyn Source>,
    pub name: String,
    /// Where metrics are, beside what the source says.
    pub metrics: Vec<SocketAddr>,
    pub every: Duration,
    pub key: Option<PathBuf>,
    /// Host names by which browsers reach the page.
    pub hosts: Vec<String>,
}

/// Serves a console as long as the process lives. Returns the address.
pub fn serve(listener: TcpListener, subject: Subject) -> Result<SocketAddr, Failure> {
    let address = listener.local_addr().map_err(io)?;
    let key = subject.key.as_deref().map(key::Key::open).transpose()?;
    let console = Arc::new(page::Console::new(subject, key));
    let looking = console.clone();
    std::thread::Builder::new().name("console".into()).spawn(move || looking.look()).map_err(io)?;
    http::serve(listener, console)?;
    Ok(address)
}

/// Listens: for this machine alone, if not said otherwise.
pub fn listen(address: SocketAddr, plain: bool) -> Result<TcpListener, Failure> {
    if !address.ip().is_loopback() && !plain {
        return Err(Failure::Usage(format!(
            "{address} can be reached by others, who could read the page and see what operators send: listen on \
             127.0.0.1, or give --plain-http"
        )));
    }
    bind(address)
}

/// Reads `PORT`, which is one of this machine alone, or `ADDRESS:PORT` of it.
pub fn console_address(text: &str) -> Result<SocketAddr, String> {
    let address = metrics_address(text)?;
    if address.ip().is_loopback() { Ok(address) } else { Err("it is for this machine alone: give PORT".into()) }
}

pub fn run(arguments: &Arguments, as_json: bool) -> Outcome {
    let signals = Signals::new()?;
    let listener = listen(arguments.listen, arguments.plain_http)?;
    let path = &arguments.volume;
    let volume = match super::mounts::directory_of_mountpoint(path) {
        Some(directory) => directory,
        None if cluster::VolumeAddress::is_one(path) => path.clone(),
        None => std::path::absolute(path).map_err(io)?,
    };
    let subject = Subject {
        source: Arc::new(Volume(volume)),
        name: Shown(path).to_string(),
        metrics: arguments.metrics.clone(),
        every: Duration::from_secs(arguments.every),
        key: arguments.key_file.clone(),
        hosts: arguments.hosts.clone(),
    };
    let address = serve(listener, subject)?;
    ready(as_json, "console", address, &format!("{} at http://{address}/", Shown(path)), None)?;
    runtime().block_on(signals.wait());
    Ok(())
}
