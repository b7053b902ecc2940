//! `weft volume upgrade`: a volume of an older format becomes one of the newest.

use super::{open_own, server_of};
use crate::failure::{Failure, Outcome};
use crate::show;
use clap::Args;
use fs::label::Label;
use serde_json::json;
use std::path::PathBuf;
use volume::Shown;

/// Upgrade a volume of an older format to the newest
#[derive(Args)]
#[command(after_help = "Examples:
  weft volume upgrade /srv/films
  weft volume upgrade --json /srv/films

Every opening for writing upgrades a volume. This command does it and nothing else. Older versions of weft \
refuse the volume afterwards. A volume that is mounted or served was upgraded when it was opened.")]
pub struct Arguments {
    /// The volume's directory
    volume: PathBuf,
}

pub fn run(arguments: &Arguments, as_json: bool) -> Outcome {
    let volume = &arguments.volume;
    if server_of(volume)?.is_some() {
        return Err(Failure::Usage(format!(
            "{} is served: its metadata server upgraded it when it opened it; give the directory of a volume",
            Shown(volume)
        )));
    }
    let from = Label::read_pointer(volume)?.format;
    open_own(volume, false)?.finish()?;
    let to = Label::read_pointer(volume)?.format;
    if as_json {
        return show::json(&json!({ "volume": show::path(volume), "from": from, "to": to }));
    }
    match from == to {
        true => show::text(format_args!("{} is of format {to}; there is nothing to upgrade", Shown(volume))),
        false => show::text(format_args!("{} was of format {from} and is of format {to}", Shown(volume))),
    }
}
