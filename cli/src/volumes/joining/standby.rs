//! `weft cluster standby`: one more metadata server of a volume, on this machine.

use super::machine::{MetaArguments, Settings};
use crate::failure::{Failure, Outcome};
use crate::show;
use clap::Args;
use cluster::VolumeAddress;
use serde_json::json;

/// Let this machine stand by for the metadata server of a volume
#[derive(Args)]
#[command(after_help = "Examples:
  weft cluster standby weft://10.0.0.1:7600/films

On a machine that joined (weft cluster join). If the metadata server of the volume dies, this one takes over. Where \
systemd runs and has the packages' units, it is started.")]
pub struct Arguments {
    /// The volume
    #[arg(value_name = "weft://HOST/NAME")]
    volume: String,
    /// The name of this machine, if there are settings of several
    #[arg(long, value_name = "NAME")]
    machine: Option<String>,
    #[command(flatten)]
    meta: MetaArguments,
}

pub fn run(arguments: &Arguments, as_json: bool) -> Outcome {
    let address: VolumeAddress = arguments.volume.parse()?;
    if address.volume.is_empty() {
        return Err(Failure::Usage("the address names no volume: weft://HOST:PORT/NAME".into()));
    }
    let meta = &arguments.meta;
    let settings = Settings::find(&meta.directory()?, arguments.machine.as_deref())?;
    let place = meta.place(&address.volume)?;
    let started = meta.serve(&settings, &place, Some(&arguments.volume))?;
    if as_json {
        return show::json(&json!({
            "machine": settings.name, "volume": show::path(&place), "running": { "meta": started.runs },
        }));
    }
    show::text(format_args!("{} stands by for {}: {}", settings.name, arguments.volume, started.words))
}
