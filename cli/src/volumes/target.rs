//! `weft target`: growing a volume, emptying a disk, replacing a dead one.

use super::remote::resolve;
use super::{new_target, open_own, plain, verify};
use crate::failure::Outcome;
use crate::{interrupt, progress, show};
use clap::{Args, Subcommand};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Instant;
use volume::Shown;

/// Add a target to a volume, empty one, or replace a dead one
#[derive(Args)]
#[command(after_help = "Examples:
  weft target add /srv/films /disk7
  weft target drain /srv/films /disk2
  weft target replace /srv/films /disk3 /newdisk")]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Use one more directory for new data
    Add {
        /// The volume
        volume: PathBuf,
        /// The new directory
        target: PathBuf,
    },
    /// Move everything from a target to the others, and take it out of the volume
    Drain {
        /// The volume
        volume: PathBuf,
        /// The target
        target: PathBuf,
    },
    /// Put a new directory in the place of a target, which may be dead
    Replace {
        /// The volume
        volume: PathBuf,
        /// The old target
        target: PathBuf,
        /// The new directory
        new: PathBuf,
    },
}

impl Arguments {
    /// The volume that it works on.
    pub fn volume(&self) -> &PathBuf {
        match &self.command {
            Command::Add { volume, .. } | Command::Drain { volume, .. } | Command::Replace { volume, .. } => volume,
        }
    }
}

/// The path of a target as the volume knows it, however it is given: through links, too, and when it is gone.
fn known(volume: &Path, target: &Path) -> PathBuf {
    let place = |path: &Path| {
        let above = path.parent().and_then(|above| above.canonicalize().ok());
        path.canonicalize().ok().or_else(|| Some(above?.join(path.file_name()?)))
    };
    let target = plain(target);
    let members = fs::label::Label::read_pointer(&resolve(volume)).map(|label| label.targets).unwrap_or_default();
    let found = members.into_iter().map(|member| member.path).find(|path| {
        *path == target || place(path).is_some_and(|path| place(&target).is_some_and(|target| target == path))
    });
    found.unwrap_or(target)
}

pub fn run(arguments: &Arguments, as_json: bool) -> Outcome {
    let volume = open_own(arguments.volume(), false)?;
    let control = interrupt::control(false);
    let begun = Instant::now();
    match &arguments.command {
        Command::Add { target, .. } => {
            let id = volume.add_target(&new_target(target)?)?;
            if as_json {
                show::json(&json!({ "target": id.0, "path": show::path(target) }))?;
            } else {
                show::text(format_args!("{} is target {}; new data goes there too", Shown(target), id.0))?;
            }
        }
        Command::Drain { target, .. } => {
            let done = progress::shown("draining", &control, || {
                volume.drain_target(&known(arguments.volume(), target), &control)
            })?;
            verify::print(&done, begun, as_json)?;
            if !as_json {
                show::text(format_args!("{} is empty and no target any more", Shown(target)))?;
            }
        }
        Command::Replace { target, new, .. } => {
            let (old, place) = (known(arguments.volume(), target), new_target(new)?);
            let done = progress::shown("replacing", &control, || volume.replace_target(&old, &place, &control))?;
            verify::print(&done, begun, as_json)?;
            if !as_json {
                show::text(format_args!("{} has taken the place of {}", Shown(new), Shown(target)))?;
            }
        }
    }
    if !as_json {
        // What was written while a target was missing is on no target yet.
        let waiting = volume.status()?.to_repair;
        if waiting > 0 {
            let sets = show::count(waiting, "chunk set");
            show::text(format_args!("{sets} still to repair: weft repair {}", Shown(arguments.volume())))?;
        }
    }
    volume.finish()
}
