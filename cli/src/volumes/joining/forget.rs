//! `weft cluster forget`: a machine that joined may join again with another key.

use super::DIRECTORY;
use crate::failure::Outcome;
use crate::show;
use clap::Args;
use serde_json::json;
use std::path::PathBuf;

/// Forget a machine that joined, so that it, or another one of its name, can join again
#[derive(Args)]
#[command(after_help = "Examples:
  weft cluster forget node2

On the first machine, when a machine has lost its key, such as with its system disk, or is replaced by one of the same \
name or address. Its line in the list of machines and the copy of its certificate go; then it joins again (weft \
cluster join). The certificate and the keys that the machine itself has stay good: this takes no rights away, and \
changes no volume.")]
pub struct Arguments {
    /// The machine
    name: String,
    /// The directory with the authority
    #[arg(long, value_name = "DIR", default_value = DIRECTORY)]
    directory: PathBuf,
}

pub fn run(arguments: &Arguments, as_json: bool) -> Outcome {
    let name = &arguments.name;
    let kind = super::token::register(&arguments.directory)?.forget(name)?;
    if as_json {
        return show::json(&json!({ "forgotten": name, "kind": kind.word() }));
    }
    show::text(format_args!("{name} is forgotten; a machine of that name can join now (weft cluster token)."))
}
