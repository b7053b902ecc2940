//! `weft cluster init`: an authority and certificates, and with `--address` the first machine of a
//! cluster that others join.

use super::DIRECTORY;
use super::files::{give, make_directory};
use super::machine::{MachineArguments, Settings, at, host, quoted, start};
use super::token::{self, TokenOptions};
use crate::failure::{Failure, Outcome};
use crate::show;
use clap::Args;
use cluster::admission::{Kind, Machine, Register};
use serde_json::json;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use volume::Shown;

/// Create a cluster's authority, and certificates for its servers and clients, or its first machine
#[derive(Args)]
#[command(
    override_usage = "weft cluster init --address <ADDRESS> [OPTIONS]\n       \
        weft cluster init <DIRECTORY> [OPTIONS]\n            \
        --member <NAME[=ADDRESS,...]> --operator <NAME>",
    after_help = "Examples:
  # The first of several machines; the others join.
  weft cluster init --address 10.0.0.1 --disk /disks/*
  # Certificates alone, to be copied by hand.
  weft cluster init /etc/weft --operator admin \\
      --member meta=10.0.0.1 --member laptop \\
      --member store1=10.0.0.1,node1.example
  weft serve store /disk1 --listen 10.0.0.1:7701 \\
      --identity /etc/weft/store1
  weft mount weft://10.0.0.1:7600/films /mnt \\
      --identity /etc/weft/laptop

With --address, this machine gets a certificate, settings for its store, an operator admin, and a token with which \
others join (weft cluster join). Where systemd runs and has the packages' units, they are started. After a failure, \
give the same command again.

Run it again to add members. An operator is a client that may also change targets and repair and check volumes. Each \
member gets NAME.pem and NAME.key (mode 0600) and needs authority.pem beside them; authority.key stays where it is. \
Servers, and nobody else, also get cluster.key (mode 0600): its holder may read and write everything."
)]
pub struct Arguments {
    /// The directory of the certificates
    #[arg(default_value = DIRECTORY)]
    directory: PathBuf,
    /// A server or client; for a server with the addresses at which clients reach it
    #[arg(long = "member", required_unless_present_any = ["operators", "address"], value_name = "NAME[=ADDRESS,...]")]
    members: Vec<String>,
    /// A client that may also change targets, and repair and check volumes
    #[arg(long = "operator", value_name = "NAME")]
    operators: Vec<String>,
    /// Be the first machine of a cluster, which others reach at this IP address; more, and host
    /// names, after commas
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    address: Vec<String>,
    #[command(flatten)]
    machine: MachineArguments,
    /// With --address: the port at which others join
    #[arg(long, default_value_t = 7599)]
    join_port: u16,
    #[command(flatten)]
    token: TokenOptions,
}

/// The operator that the first machine gets.
const ADMIN: &str = "admin";

pub fn run(arguments: &Arguments, as_json: bool) -> Outcome {
    let member = |text: &String| {
        let (name, addresses) = text.split_once('=').unwrap_or((text, ""));
        let addresses = addresses.split(',').filter(|address| !address.is_empty()).map(str::to_owned).collect();
        (name.to_owned(), addresses)
    };
    let members = cluster::Members {
        members: arguments.members.iter().map(member).collect(),
        operators: arguments.operators.clone(),
    };
    if !arguments.address.is_empty() {
        return first(arguments, host(&arguments.address)?, members, as_json);
    }
    let made = cluster::make_identities(&arguments.directory, &members)?;
    if as_json {
        return show::json(&json!({ "directory": show::path(&arguments.directory), "made": made }));
    }
    for name in &made {
        show::text(format_args!("{}: --identity {}", name, Shown(&arguments.directory.join(name))))?;
    }
    if made.is_empty() { show::text("all of these had certificates already") } else { Ok(()) }
}

/// Makes this machine the first of a cluster.
fn first(arguments: &Arguments, host: IpAddr, mut members: cluster::Members, as_json: bool) -> Outcome {
    let directory = std::path::absolute(&arguments.directory).map_err(super::super::server::io)?;
    let machine = &arguments.machine;
    let name = machine.name();
    members.members.push((name.clone(), arguments.address.clone()));
    if members.operators.is_empty() {
        members.operators.push(ADMIN.into());
    }
    let known = Machine::first(&name, arguments.address.clone(), machine.addresses(host)?);
    // What cannot be is refused before anything is written.
    known.check()?;
    make_directory(&directory)?;
    let register = Register::open(&directory)?;
    if let Some(other) = register.first()?.filter(|other| other.name != name) {
        let why = format!("{} has a first machine already: {}", Shown(&directory), other.name);
        return Err(Failure::Other(why));
    }
    cluster::make_identities(&directory, &members)?;
    check_certificate(&directory.join(format!("{name}.pem")), &arguments.address)?;
    // The authority's key stays root's: only the desk needs it.
    for file in [format!("{name}.key"), format!("{name}.pem"), "authority.pem".into(), "cluster.key".into()] {
        give(&directory.join(file))?;
    }
    let more = format!(
        "\n# weft-join@{name}.service\n[join]\nlisten = {}\ndirectory = {}\n",
        quoted(&at(host, arguments.join_port)),
        quoted(&directory.to_string_lossy()),
    );
    register.note(&known)?;
    Settings::create(&directory, machine, host, &more)?;
    let token = token::new(&register, &at(host, arguments.join_port), Kind::Server, &arguments.token)?;
    drop(register);
    let admin = directory.join(&members.operators[0]);
    let begin = || {
        let [store, join] = ["store", "join"].map(|kind| start(kind, &directory, &name, !machine.no_start));
        Ok::<_, Failure>((store?, join?))
    };
    if as_json {
        let (store, join) = begin()?;
        return show::json(&json!({
            "machine": name,
            "directory": show::path(&directory),
            "token": token.reveal(),
            "uses": arguments.token.uses,
            "expires_in_s": arguments.token.expires,
            "operator": show::path(&admin),
            "running": { "store": store.runs, "join": join.runs },
        }));
    }
    // Units may fail to start: the token is good anyhow. (A document is whole or not there. If they
    // fail then, weft cluster token makes another token.)
    show::text(format_args!("{name} is the first machine of a cluster."))?;
    show::text(format_args!("On each other machine, {}:", arguments.token.words()))?;
    show::text(format_args!("  weft cluster join {} --disk DIR ..", token.reveal()))?;
    show::text("Then, here: weft cluster volume NAME")?;
    let (store, join) = begin()?;
    show::text(format_args!("  its store         {}", store.words))?;
    show::text(format_args!("  for others        {}", join.words))?;
    show::text(format_args!("  as an operator    --identity {}", Shown(&admin)))
}

/// Refuses a certificate of an earlier try that is for other addresses.
fn check_certificate(path: &Path, addresses: &[String]) -> Outcome {
    for address in addresses {
        if !wire::is_for_host(path, address).map_err(|why| Failure::Other(why.to_string()))? {
            return Err(Failure::Other(format!(
                "{} is there already, and is not for {address}: remove it, and give the same command again",
                Shown(path)
            )));
        }
    }
    Ok(())
}
