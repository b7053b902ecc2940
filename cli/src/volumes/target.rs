//! `weft target`: growing a volume, emptying a disk, replacing a dead one.

use super::paths::resolve;
use super::placement;
use super::{new_target, open_own, plain, serves_others, verify};
use crate::failure::{Failure, Outcome};
use crate::{interrupt, progress, show};
use clap::{Args, Subcommand};
use cluster::StoreAddress;
use fs::{Coordinates, Domain};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Instant;
use volume::Shown;

/// Add, drain and replace the targets of a volume
#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Add a target for new data
    #[command(after_help = "Examples:
  weft target add /srv/films /disk7
  weft target add weft://10.0.0.1:7600/films \\
      store://10.0.0.4:7701/disk0 --domain rack2/host4
  weft target add weft://10.0.0.1:7600/films \\
      store://10.0.0.5:7701/disk0 --at 1,0,3")]
    Add {
        /// The volume
        volume: PathBuf,
        /// The new directory
        target: PathBuf,
        /// Its failure domain, such as rack1/host3 [default: what its store says]
        #[arg(long, value_name = "PATH")]
        domain: Option<Domain>,
        /// The place of its server in the volume's torus [default: that of the server's other
        /// targets, or the next one that is free]
        #[arg(long, value_name = "PLACE")]
        at: Option<Coordinates>,
    },
    /// Move everything from targets to the others, and remove them from the volume
    #[command(
        override_usage = "weft target drain [OPTIONS] <VOLUME> [TARGET]...",
        after_help = "Examples:
  weft target drain /srv/films /disk2
  weft target drain /srv/films /disk2 /disk3
  weft target drain weft://10.0.0.1:7600/films \\
      --store 10.0.0.4:7701
  weft target drain weft://10.0.0.1:7600/films \\
      --domain rack1"
    )]
    Drain {
        /// The volume
        volume: PathBuf,
        #[command(flatten)]
        which: Which,
    },
    /// Stop draining targets; what was moved stays where it is
    #[command(
        override_usage = "weft target undrain [OPTIONS] <VOLUME> [TARGET]...",
        after_help = "Examples:
  weft target undrain /srv/films /disk2
  weft target undrain weft://10.0.0.1:7600/films \\
      --domain rack1"
    )]
    Undrain {
        /// The volume
        volume: PathBuf,
        #[command(flatten)]
        which: Which,
    },
    /// Replace a target, dead or alive, by a new directory
    #[command(after_help = "Examples:
  weft target replace /srv/films /disk3 /newdisk")]
    Replace {
        /// The volume
        volume: PathBuf,
        /// The old target
        target: PathBuf,
        /// The new directory
        new: PathBuf,
        /// Its failure domain [default: what its store says, or that of the old target]
        #[arg(long, value_name = "PATH")]
        domain: Option<Domain>,
    },
    /// Set the failure domain of a target, for new data and repairs
    #[command(
        override_usage = "weft target domain <VOLUME> <TARGET> [DOMAIN]",
        after_help = "Examples:
  weft target domain /srv/films /disk3 rack1/host3"
    )]
    Domain {
        /// The volume
        volume: PathBuf,
        /// The target
        target: PathBuf,
        /// A path from the large to the small, such as rack1/host3 [default: a domain of its own]
        domain: Option<Domain>,
    },
    Placement(placement::Arguments),
}

/// Some targets of a volume.
#[derive(Args)]
#[group(required = true, multiple = false)]
struct Which {
    /// The targets
    #[arg(value_name = "TARGET")]
    targets: Vec<PathBuf>,
    /// All targets of a store, by its address
    #[arg(long, value_name = "HOST:PORT")]
    store: Option<String>,
    /// All targets in a failure domain, such as rack1
    #[arg(long, value_name = "PATH")]
    domain: Option<Domain>,
}

/// The targets of a volume on a store, by its address with or without `store://`.
fn on_store(fs: &fs::FileSystem, store: &str) -> Result<Vec<PathBuf>, Failure> {
    let wanted = store.strip_prefix("store://").unwrap_or(store).trim_end_matches('/');
    let all = fs.known_targets().into_iter().map(|target| target.path);
    let all: Vec<(String, PathBuf)> =
        all.filter_map(|path| Some((StoreAddress::of(&path)?.ok()?.server, path))).collect();
    let found: Vec<PathBuf> = all.iter().filter(|(server, _)| server == wanted).map(|(_, path)| path.clone()).collect();
    if !found.is_empty() {
        return Ok(found);
    }
    let mut known: Vec<&str> = all.iter().map(|(server, _)| &server[..]).collect();
    known.sort_unstable();
    known.dedup();
    let known = if known.is_empty() { "none".into() } else { known.join(", ") };
    Err(Failure::Other(format!("no target of this volume is on {wanted}; its stores: {known}")))
}

impl Which {
    /// The paths of the targets, as the volume knows them.
    fn paths(&self, volume: &Path, fs: &fs::FileSystem) -> Result<Vec<PathBuf>, Failure> {
        match (&self.store, &self.domain) {
            (Some(store), _) => on_store(fs, store),
            (_, Some(domain)) => Ok(fs.targets_in_domain(&domain.to_string())?),
            _ => Ok(self.targets.iter().map(|target| known(volume, target)).collect()),
        }
    }

    /// The same as they were given.
    fn shown<'a>(&'a self, found: &'a [PathBuf]) -> &'a [PathBuf] {
        if self.targets.is_empty() { found } else { &self.targets }
    }
}

impl Arguments {
    /// The volume that it works on.
    pub fn volume(&self) -> &PathBuf {
        match &self.command {
            Command::Add { volume, .. }
            | Command::Drain { volume, .. }
            | Command::Undrain { volume, .. }
            | Command::Replace { volume, .. }
            | Command::Domain { volume, .. } => volume,
            Command::Placement(arguments) => &arguments.volume,
        }
    }
}

/// The path of a target as the volume knows it, however it is given: through links, too, and even
/// if it is gone. A path from another machine is not a path of this one.
fn known(volume: &Path, target: &Path) -> PathBuf {
    if serves_others() {
        return target.to_path_buf();
    }
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
    let only_shows = matches!(&arguments.command, Command::Placement(placement) if !placement.changes());
    let volume = open_own(arguments.volume(), only_shows)?;
    let control = interrupt::control(false);
    let begun = Instant::now();
    match &arguments.command {
        Command::Add { target, domain, at, .. } => {
            let id = volume.add_target_at(&new_target(target)?, domain.clone(), at.as_ref())?;
            if as_json {
                show::json(&json!({ "target": id.0, "path": show::path(target) }))?;
            } else {
                show::text(format_args!("{} is target {}; new data goes there too", Shown(target), id.0))?;
            }
        }
        Command::Drain { which, .. } => {
            let targets = which.paths(arguments.volume(), &volume)?;
            let done = progress::shown("draining", &control, || volume.drain_targets(&targets, &control))?;
            verify::print(&done, begun, as_json)?;
            if !as_json {
                for target in which.shown(&targets) {
                    show::text(format_args!("{} is empty and no longer a target", Shown(target)))?;
                }
            }
        }
        Command::Undrain { which, .. } => {
            let targets = which.paths(arguments.volume(), &volume)?;
            volume.undrain_targets(&targets)?;
            let shown = which.shown(&targets);
            if as_json {
                let paths: Vec<_> = shown.iter().map(|target| show::path(target)).collect();
                show::json(&json!({ "path": paths[0], "paths": paths, "role": "active" }))?;
            } else {
                for target in shown {
                    show::text(format_args!("{} is used again; what was moved stays where it is", Shown(target)))?;
                }
            }
        }
        Command::Replace { target, new, domain, .. } => {
            let (old, place) = (known(arguments.volume(), target), known(arguments.volume(), &new_target(new)?));
            let done = progress::shown("replacing", &control, || {
                volume.replace_target(&old, &place, domain.clone(), &control)
            })?;
            verify::print(&done, begun, as_json)?;
            if !as_json {
                show::text(format_args!("{} has taken the place of {}", Shown(new), Shown(target)))?;
            }
        }
        Command::Domain { target, domain, .. } => {
            volume.set_domain(&known(arguments.volume(), target), domain.clone())?;
            let name = domain.as_ref().map(ToString::to_string);
            if as_json {
                show::json(&json!({ "path": show::path(target), "domain": name }))?;
            } else {
                let what = name.map_or_else(|| "on its own".into(), |name| format!("in the domain {name}"));
                show::text(format_args!("{} is {what}; what is on it stays", Shown(target)))?;
            }
        }
        Command::Placement(given) => {
            placement::run(given, &volume, |target| known(arguments.volume(), target), as_json)?;
        }
    }
    if !as_json && !only_shows {
        // Blocks that were written while a target was missing are on no target yet.
        let waiting = volume.status()?.to_repair;
        if waiting > 0 {
            let sets = show::count(waiting, "chunk set");
            show::text(format_args!("{sets} still to repair: weft volume repair {}", Shown(arguments.volume())))?;
        }
    }
    volume.finish()
}
