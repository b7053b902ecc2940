//! `weft mkdir`: directories in a volume that is not mounted.

use super::{at, find, parent_path};
use crate::failure::{Failure, Outcome};
use crate::show;
use crate::volumes::{Address, Open, open};
use clap::Args;
use fs::{FileKind, New};
use serde_json::json;
use std::ffi::OsString;

/// Make directories in a volume
#[derive(Args)]
#[command(after_help = "Examples:
  weft mkdir /srv/films:/2024
  weft mkdir -p /srv/films:/2024/12/31")]
pub struct Arguments {
    /// VOLUME:/path
    #[arg(required = true)]
    addresses: Vec<OsString>,
    /// Make the directories above, too, and accept one that exists
    #[arg(short, long)]
    parents: bool,
}

pub fn run(arguments: &Arguments, as_json: bool) -> Outcome {
    let addresses: Vec<Address> =
        arguments.addresses.iter().map(|given| Address::required(given)).collect::<Result<_, _>>()?;
    let (mode, mut made) = (0o777 & !umask(), 0);
    for of_volume in addresses.chunk_by(|a, b| a.volume == b.volume) {
        let volume = open(&of_volume[0].volume, false)?;
        let done = of_volume.iter().try_for_each(|address| {
            if arguments.parents {
                make_all(&volume, address, mode, &mut made)
            } else {
                make(&volume, address, mode, &mut made)
            }
        });
        // Directories that were made before a failure stay.
        let finished = volume.finish();
        done?;
        finished?;
    }
    if as_json { show::json(&json!({ "made": made })) } else { Ok(()) }
}

/// Makes a directory in one that exists.
fn make(volume: &Open, address: &Address, mode: u32, made: &mut usize) -> Outcome {
    let Some(name) = address.names().last() else {
        return Err(Failure::Other(format!("{} exists", address.shown())));
    };
    let above = Address { path: parent_path(&address.path), ..address.clone() };
    let parent = find(volume, &above)?;
    if parent.kind != FileKind::Directory {
        return Err(Failure::Other(format!("{} is not a directory", above.shown())));
    }
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let new = New { kind: FileKind::Directory, mode, uid, gid, device: 0, link: Vec::new() };
    volume.make(parent.ino, name, &new).map_err(at(address))?;
    *made += 1;
    Ok(())
}

/// Makes a directory, and those above it that are missing.
fn make_all(volume: &Open, address: &Address, mode: u32, made: &mut usize) -> Outcome {
    let mut path = Vec::new();
    for name in address.names() {
        path.push(name);
        let part = Address { path: path.join(&b'/'), ..address.clone() };
        match find(volume, &part) {
            Ok(there) if there.kind == FileKind::Directory => {}
            Ok(_) => return Err(Failure::Other(format!("{} is not a directory", part.shown()))),
            // If it cannot be made, that error says again why it cannot be found.
            Err(_) => make(volume, &part, mode, made)?,
        }
    }
    Ok(())
}

/// The permissions that this process withholds from new files. They are read from `/proc`, because
/// the system call would change them for a moment.
fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    mask.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok()).unwrap_or(0o022)
}
