//! `weft volume fsck`: metadata against chunks, and metadata from chunks.

use super::{open_own, patiently, places};
use crate::failure::{Failure, Outcome};
use crate::show;
use clap::Args;
use serde_json::json;
use std::path::{Path, PathBuf};
use volume::Shown;

/// Check the metadata of a volume against its chunks, or rebuild it from the chunks
#[derive(Args)]
#[command(after_help = "Examples:
  weft volume fsck /srv/films
  weft volume fsck --rebuild /srv/films

--rebuild is the last resort, when the metadata is lost on all of its m+1 targets. Files come back under the \
names that they had at their last write. Files that were removed since then may come back, too. Empty files, \
empty directories, links, extended attributes, and small data that is not in a stripe yet do not come back. \
Weft refuses to rebuild metadata that it can read, unless --force is given. It names each chunk set, stripe \
and part of a file that it cannot bring back, and exits with status 1 if there is any.")]
pub struct Arguments {
    /// The volume
    volume: PathBuf,
    /// Rebuild the metadata from the chunks
    #[arg(long)]
    rebuild: bool,
    /// With --rebuild: even if the metadata can be read
    #[arg(long, requires = "rebuild")]
    force: bool,
}

impl Arguments {
    /// Whether it rebuilds the metadata.
    pub fn rebuild(&self) -> bool {
        self.rebuild
    }
}

/// A rebuild from chunks alone has less than the metadata.
fn refuse_if_readable(volume: &Path) -> Outcome {
    // Old metadata is more than none.
    super::allow_possibly_old();
    match open_own(volume, true) {
        Ok(_) => Err(Failure::Other(format!(
            "the metadata of {} can be read, and chunks alone give back less; give --force to rebuild it nevertheless",
            Shown(volume)
        ))),
        Err(busy @ Failure::Busy(..)) => Err(busy),
        Err(_) => Ok(()),
    }
}

pub fn run(arguments: &Arguments, as_json: bool) -> Outcome {
    if arguments.rebuild {
        if !arguments.force {
            refuse_if_readable(&arguments.volume)?;
        }
        // A process that opened its targets a moment ago may not have closed all of them yet.
        let done = patiently(&arguments.volume, || fs::rebuild(&arguments.volume, places()))?;
        if as_json {
            show::json(&json!({
                "files": done.files,
                "bytes": done.bytes,
                "chunk_sets": done.sets,
                "unnamed": done.unnamed,
                "problems": done.problems,
                "unlisted_problems": done.unlisted,
            }))?;
        } else {
            print_rebuilt(&done)?;
        }
        return if done.is_whole() { Ok(()) } else { Err(Failure::Found) };
    }
    let volume = open_own(&arguments.volume, true)?;
    let found = volume.check()?;
    if as_json {
        show::json(&json!({
            "files": found.files,
            "extents": found.extents,
            "stripes": found.stripes,
            "problems": found.problems,
        }))?;
    } else {
        for problem in &found.problems {
            show::text(problem)?;
        }
        show::text(format_args!(
            "{}, {}, {}: {}",
            show::count(found.files, "file"),
            show::count(found.extents, "extent"),
            show::count(found.stripes, "stripe"),
            if found.problems.is_empty() { "all agree".into() } else { show::count(found.problems.len(), "problem") }
        ))?;
    }
    if found.problems.is_empty() { Ok(()) } else { Err(Failure::Found) }
}

fn print_rebuilt(done: &fs::Rebuilt) -> Outcome {
    for problem in &done.problems {
        show::text(problem)?;
    }
    if done.unlisted > 0 {
        show::text(format_args!("and {} more", show::count(done.unlisted, "problem")))?;
    }
    let lost = if done.is_whole() { "" } else { "; NOT ALL could be brought back" };
    show::text(format_args!(
        "{} with {} from {}; {} without a name are in lost+found{lost}",
        show::count(done.files, "file"),
        show::bytes(done.bytes),
        show::count(done.sets, "chunk set"),
        done.unnamed
    ))
}
