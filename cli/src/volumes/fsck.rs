//! `weft fsck`: metadata against chunks, and metadata from chunks.

use super::open;
use crate::failure::{Failure, Outcome};
use crate::show;
use clap::Args;
use serde_json::json;
use std::path::PathBuf;

/// Check the metadata of a volume against its chunks; with --rebuild, make it again from the chunks alone
#[derive(Args)]
#[command(after_help = "Examples:
  weft fsck /srv/films
  weft fsck --rebuild /srv/films

--rebuild is the last resort, for when the metadata is lost on all of its m+1 targets: files come back under the names
that they had when they were written last. Files that were removed since may come back too; empty files, empty
directories, links and what was too small for a stripe do not.")]
pub struct Arguments {
    /// The volume
    volume: PathBuf,
    /// Make the metadata again from the chunks
    #[arg(long)]
    rebuild: bool,
}

impl Arguments {
    /// Whether the metadata is made again.
    pub fn rebuild(&self) -> bool {
        self.rebuild
    }
}

pub fn run(arguments: &Arguments, as_json: bool) -> Outcome {
    if arguments.rebuild {
        let done = fs::rebuild(&arguments.volume)?;
        if as_json {
            return show::json(
                &json!({ "files": done.files, "bytes": done.bytes, "chunk_sets": done.sets, "unnamed": done.unnamed }),
            );
        }
        return show::text(format_args!(
            "{} with {} from {}; {} without a name are in lost+found",
            show::count(done.files, "file"),
            show::bytes(done.bytes),
            show::count(done.sets, "chunk set"),
            done.unnamed
        ));
    }
    let volume = open(&arguments.volume, true)?;
    let found = volume.check()?;
    if as_json {
        show::json(
            &json!({ "files": found.files, "extents": found.extents, "stripes": found.stripes, "problems": found.problems }),
        )?;
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
