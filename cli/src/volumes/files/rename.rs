//! `weft mv`: renames files of a volume that is not mounted.

use super::{at, find, parent_path};
use crate::failure::{Failure, Outcome};
use crate::show;
use crate::volumes::{Address, Open, open};
use clap::Args;
use fs::{FileKind, RenameMode};
use serde_json::json;
use std::ffi::OsString;

/// Rename files within a volume
#[derive(Args)]
#[command(after_help = "Examples:
  weft mv /srv/films:/old.mkv /srv/films:/new.mkv
  weft mv /srv/films:/a.mkv /srv/films:/b.mkv \\
      /srv/films:/2024

Unlike mv(1), it replaces an existing file only with --force.")]
pub struct Arguments {
    /// Files, then the new name or a directory for them; each is VOLUME:/path
    #[arg(required = true, num_args = 2.., value_name = "VOLUME:/path")]
    addresses: Vec<OsString>,
    /// Replace existing files
    #[arg(short, long)]
    force: bool,
}

pub fn run(arguments: &Arguments, as_json: bool) -> Outcome {
    let mut from: Vec<Address> =
        arguments.addresses.iter().map(|given| Address::required(given)).collect::<Result<_, _>>()?;
    let to = from.pop().ok_or_else(|| Failure::Usage("give one or more files and a new name".into()))?;
    if let Some(other) = from.iter().find(|address| address.volume != to.volume) {
        let what = format!("{} and {} are in two volumes; use weft cp", other.shown(), to.shown());
        return Err(Failure::Usage(what));
    }
    let volume = open(&to.volume, false)?;
    let mut renamed = 0;
    let done: Outcome = from.iter().try_for_each(|address| {
        rename(&volume, address, &to, from.len() > 1, arguments.force)?;
        renamed += 1;
        Ok(())
    });
    // Files that were renamed before a failure stay renamed.
    let finished = volume.finish();
    done?;
    finished?;
    if as_json { show::json(&json!({ "renamed": renamed })) } else { Ok(()) }
}

fn rename(volume: &Open, from: &Address, to: &Address, into: bool, force: bool) -> Outcome {
    let Some(name) = from.names().last() else {
        return Err(Failure::Usage("the root of a volume cannot be renamed".into()));
    };
    let old = Address { path: parent_path(&from.path), ..from.clone() };
    let old = find(volume, &old)?.ino;
    find(volume, from)?;
    let (target, new, new_name) = match find(volume, to) {
        Ok(there) if there.kind == FileKind::Directory => {
            let path = [&to.path[..], name].join(&b'/');
            (Address { path, ..to.clone() }, there.ino, name)
        }
        _ if into => return Err(Failure::Usage(format!("{} is not a directory", to.shown()))),
        _ => {
            let above = Address { path: parent_path(&to.path), ..to.clone() };
            let new_name = to.names().last().unwrap_or_default();
            (to.clone(), find(volume, &above)?.ino, new_name)
        }
    };
    if !force && volume.lookup(new, new_name).is_ok() {
        return Err(Failure::Other(format!("{} exists; give --force to replace it", target.shown())));
    }
    let mode = if force { RenameMode::Replace } else { RenameMode::NoReplace };
    volume.rename((old, name), (new, new_name), mode).map_err(at(&target))
}
