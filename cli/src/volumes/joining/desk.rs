//! `weft serve join`: the desk at which machines join a cluster.

use super::DIRECTORY;
use crate::failure::{Failure, Outcome};
use crate::show;
use crate::volumes::server::{Signals, bind, io, ready};
use clap::Args;
use cluster::admission::Desk;
use cluster::runtime;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Let machines join the cluster: answer `weft cluster join`
#[derive(Args)]
#[command(after_help = "Examples:
  weft serve join --config /etc/weft/node1.toml
  weft serve join --identity /etc/weft/node1 \\
      --listen 10.0.0.1:7599

On the first machine, which has the authority's key. It gives certificates to machines that show a token \
(weft cluster token), and can be stopped when all have joined. Connections are encrypted, and machines check its \
certificate by the token.")]
pub struct Arguments {
    /// The directory with the authority
    #[arg(long, value_name = "DIR", default_value = DIRECTORY, env = "WEFT_DIRECTORY")]
    directory: PathBuf,
    /// Where to listen
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7599", env = "WEFT_LISTEN")]
    listen: SocketAddr,
}

pub fn run(arguments: &Arguments, identity: Option<&Path>, signals: Signals, as_json: bool) -> Outcome {
    let identity = identity.ok_or_else(|| Failure::Usage("give --identity, the certificate of this machine".into()))?;
    let desk = Desk::open(&arguments.directory, identity)?;
    let listener = bind(arguments.listen)?;
    let address = listener.local_addr().map_err(io)?;
    ready(as_json, "join", address, "machines that show a token", None)?;
    std::thread::spawn(move || desk.serve(&listener, show::warning));
    runtime().block_on(signals.wait());
    Ok(())
}
