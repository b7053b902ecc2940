//! `weft cluster join`: this machine becomes a part of a cluster.

use super::DIRECTORY;
use super::files::{is_written, make_directory, write, write_once};
use super::machine::{MachineArguments, Settings, host, start};
use crate::failure::{Failure, Outcome};
use crate::show;
use clap::Args;
use cluster::admission::{Kind, Token, Visit};
use serde_json::json;
use std::io::BufRead;
use std::path::{Path, PathBuf};
use volume::Shown;
use wire::admission::MachineKey;

/// Make this machine a part of a cluster
#[derive(Args)]
#[command(after_help = "Examples:
  weft cluster join weft-join://10.0.0.1:7599/.. \\
      --disk /disks/*
  weft cluster join - --name node2 < token

The token is that of `weft cluster init` or `weft cluster token` on the first machine. This machine makes a key, \
which stays here, gets a certificate for it, and as a server the cluster's key and settings for its store. Where \
systemd runs and has the packages' units, its store is started. A token for clients makes a client. After a failure, \
give the same command again.")]
pub struct Arguments {
    /// The token; - reads it from standard input, where no other user sees it
    #[arg(env = "WEFT_JOIN_TOKEN", hide_env_values = true)]
    token: String,
    /// Where others reach this machine: the IP address at which its store listens; more, and host
    /// names, after commas [default: its address on the way to the first machine]
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    address: Vec<String>,
    #[command(flatten)]
    machine: MachineArguments,
    /// The directory of keys and settings
    #[arg(long, value_name = "DIR", default_value = DIRECTORY)]
    directory: PathBuf,
}

/// Why a file that is there is no good.
const FOREIGN: &str = "is of another cluster, or damaged: remove it, or give another --directory";

/// The token, which may come by standard input.
fn token(given: &str) -> Result<Token, Failure> {
    if given != "-" {
        return Ok(given.parse()?);
    }
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).map_err(crate::volumes::server::io)?;
    Ok(line.parse()?)
}

/// Its key: a new one, or that of a visit whose answer did not arrive.
fn key(path: &Path) -> Result<MachineKey, Failure> {
    let invalid = |why: wire::Error| Failure::Other(format!("{} is no key of a machine: {why}", Shown(path)));
    match std::fs::read_to_string(path) {
        Ok(text) => MachineKey::from_pem(&text).map_err(invalid),
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => {
            let key = MachineKey::generate().map_err(invalid)?;
            write(path, &key.key, 0o600)?;
            Ok(key)
        }
        Err(why) => Err(Failure::Other(format!("cannot read {}: {why}", Shown(path)))),
    }
}

pub fn run(arguments: &Arguments, as_json: bool) -> Outcome {
    let directory = std::path::absolute(&arguments.directory).map_err(crate::volumes::server::io)?;
    let machine = &arguments.machine;
    let name = machine.name();
    let at = |ending: &str| directory.join(format!("{name}.{ending}"));
    if at("pem").exists() {
        return Err(Failure::Other(format!(
            "{} has a member {name} already; to join again, remove {name}.pem and {name}.toml there and keep \
             {name}.key, by which the first machine knows it, or choose another --name",
            Shown(&directory)
        )));
    }
    let own = directory.join("authority.pem");
    if !arguments.address.is_empty() {
        host(&arguments.address)?;
    }
    let visit = Visit::begin(token(&arguments.token)?)?;
    let mut addresses = arguments.address.clone();
    if addresses.is_empty() {
        addresses.push(visit.own.to_string());
    }
    let host = host(&addresses)?;
    // What cannot be is refused before the token is used.
    is_written(&own, &visit.authority, FOREIGN)?;
    make_directory(&directory)?;
    let key = key(&at("key"))?;
    let (admitted, authority) = visit.ask(&name, addresses, machine.addresses(host)?, &key)?;
    write_once(&own, &authority, 0o644, FOREIGN)?;
    if let Some(text) = &admitted.cluster_key {
        write_once(&directory.join("cluster.key"), text, 0o600, FOREIGN)?;
    }
    let serves = admitted.kind == Kind::Server;
    if serves {
        Settings::create(&directory, machine, host, "")?;
    }
    // With it, the machine is complete. Until then, the same command can be given again.
    write(&at("pem"), &admitted.certificate, 0o644)?;
    let store = if serves { Some(start("store", &directory, &name, !machine.no_start)?) } else { None };
    let identity = directory.join(&name);
    if as_json {
        return show::json(&json!({
            "machine": name,
            "kind": admitted.kind.word(),
            "identity": show::path(&identity),
            "running": { "store": store.is_some_and(|store| store.runs) },
        }));
    }
    show::text(format_args!("{name} is a {} of the cluster: --identity {}", admitted.kind.word(), Shown(&identity)))?;
    match store {
        Some(store) => show::text(format_args!("  its store         {}", store.words)),
        None => Ok(()),
    }
}
