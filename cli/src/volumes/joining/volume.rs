//! `weft cluster volume`: a volume on all machines that joined.

use super::files::give;
use super::machine::{MetaArguments, Settings};
use crate::failure::{Failure, Outcome};
use crate::volumes::places;
use crate::{show, unprotected};
use clap::Args;
use cluster::admission::machines;
use cluster::{Identity, StoreAddress};
use serde_json::json;
use std::path::Path;

/// Create a volume on the disks of all machines of the cluster, and serve it from the first
#[derive(Args)]
#[command(after_help = "Examples:
  weft cluster volume films
  weft cluster volume films --code rs:6+3

On the first machine, when the others have joined and their stores run. Each machine is a failure domain. Where \
systemd runs and has the packages' units, the metadata server is started.")]
pub struct Arguments {
    /// The volume's name
    name: String,
    /// The code; `weft codes` lists them [default: rs:4+2, or rs:2+1 with fewer than six disks]
    #[arg(long)]
    code: Option<String>,
    /// Allow fewer disks than the code has blocks (see weft volume create)
    #[arg(long)]
    allow_sharing: bool,
    #[command(flatten)]
    meta: MetaArguments,
}

pub fn run(arguments: &Arguments, as_json: bool) -> Outcome {
    let meta = &arguments.meta;
    let directory = meta.directory()?;
    let machines = machines(&directory)?;
    let first = machines.iter().find(|machine| machine.is_first()).ok_or_else(|| {
        Failure::Other("no machines are known here: give this command on the first machine of the cluster".into())
    })?;
    let settings = Settings::find(&directory, Some(&first.name))?;
    let store = |target: &String| StoreAddress::of(Path::new(target)).transpose();
    let mut targets = Vec::new();
    for target in machines.iter().flat_map(|machine| &machine.targets) {
        targets.extend(store(target)?.map(|address| address.to_path()));
    }
    let usual = if targets.len() < 6 { "rs:2+1" } else { "rs:4+2" };
    let code = unprotected::parse_if(arguments.code.as_deref().unwrap_or(usual), false)?.spec().to_string();
    cluster::use_identity(&Identity::at(&directory.join(&first.name)))?;
    let place = meta.place(&arguments.name)?;
    let listen = meta.listen(&settings)?;
    let disks = targets.len();
    let create = fs::Create {
        places: places(),
        allow_sharing: arguments.allow_sharing,
        ..fs::Create::new(&arguments.name, &code, targets)
    };
    // An earlier try may have ended between the creation and the settings.
    let is_there = fs::label::Label::read_pointer(&place).is_ok_and(|label| label.name == arguments.name);
    if !is_there {
        create.run(&place)?;
    }
    give(&place)?;
    let started = meta.serve(&settings, &place, None)?;
    let address = format!("weft://{listen}/{}", arguments.name);
    if as_json {
        return show::json(&json!({
            "volume": show::path(&place), "name": arguments.name, "code": code, "targets": disks, "address": address,
            "running": { "meta": started.runs },
        }));
    }
    show::text(format_args!(
        "{} is a volume of code {code} on {} of {}.",
        arguments.name,
        show::count(disks, "disk"),
        show::count(machines.iter().filter(|machine| !machine.targets.is_empty()).count(), "machine"),
    ))?;
    show::text(format_args!("  its metadata server  {}", started.words))?;
    show::text(format_args!(
        "On two other machines, so that another one can take over: weft cluster standby {address}"
    ))?;
    show::text(format_args!("Clients: mount -t weft {address} /mnt -o identity={}/NAME", directory.display()))
}
