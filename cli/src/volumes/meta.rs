//! `weft meta`: the metadata servers of a volume.

use super::hosted::post;
use super::{served, server_of};
use crate::failure::{Failure, Outcome};
use crate::show;
use clap::{Args, Subcommand};
use cluster::meta_server::Post;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// List the metadata servers of a volume, or give it to another one
#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    Handover(HandoverArguments),
    Forget(ForgetArguments),
}

/// Give a volume to another of its metadata servers, without an error to any client
#[derive(Args)]
#[command(after_help = "Examples:
  weft status weft://10.0.0.1:7600/films -v
  weft meta handover weft://10.0.0.1:7600/films meta2

The server that has the volume answers what was asked, commits everything and stands by. It may then be ended, \
updated or moved.")]
pub struct HandoverArguments {
    /// The volume: weft://HOST:PORT/NAME, or its directory where a server of it runs
    volume: PathBuf,
    /// The server that gets it: its name or address, as weft status shows it
    name: String,
}

/// Take a metadata server that does not come back out of the list of servers
#[derive(Args)]
#[command(after_help = "Examples:
  weft meta forget weft://10.0.0.1:7600/films meta3

Clients and other servers look for it no more. A server that is started again is in the list again.")]
pub struct ForgetArguments {
    /// The volume: weft://HOST:PORT/NAME, or its directory where a server of it runs
    volume: PathBuf,
    /// Its name or address, as weft status shows it
    name: String,
}

/// The post of this process; elsewhere the server of the volume carries the command out.
fn of_server(volume: &Path) -> Result<Arc<Post>, Failure> {
    if let Some(post) = post() {
        return Ok(post);
    }
    if served().is_some() {
        return Err(Failure::Other("a mount has the volume, no metadata server".into()));
    }
    let why = match server_of(volume)? {
        Some(address) => format!("{} does not answer", address.server_list()),
        None => format!("no metadata server of {} runs here", volume::Shown(volume)),
    };
    Err(Failure::Busy(volume.to_path_buf(), why))
}

pub fn run(arguments: &Arguments, as_json: bool) -> Outcome {
    match &arguments.command {
        Command::Handover(HandoverArguments { volume, name }) => {
            let took = of_server(volume)?.hand_over(name).map_err(Failure::Other)?;
            if as_json {
                return show::json(&json!({ "holder": name, "seconds": took.as_secs_f64() }));
            }
            show::text(format_args!("{name} has the volume; nobody had it for {} ms", took.as_millis()))
        }
        Command::Forget(ForgetArguments { volume, name }) => {
            if of_server(volume)?.forget(name) {
                return if as_json { show::json(&json!({ "forgotten": name })) } else { Ok(()) };
            }
            Err(Failure::Other(format!("no other metadata server of the volume has the name {name}")))
        }
    }
}
