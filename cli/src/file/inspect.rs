//! `weft file inspect`: what one fragment file says about itself.

use super::encode::name_of;
use crate::failure::{Failure, Outcome};
use crate::{interrupt, progress, show};
use clap::Args;
use serde_json::json;
use std::path::PathBuf;
use volume::Shown;
use volume::format::{Header, Timestamp};
use volume::object::{Inspection, inspect};

/// Show what a fragment file says about itself, and check it
#[derive(Args)]
#[command(after_help = "Examples:
  weft file inspect /disk1/film.mkv.000.weft")]
pub struct Arguments {
    /// The fragment file
    fragment: PathBuf,
}

pub fn run(arguments: &Arguments, as_json: bool) -> Outcome {
    let control = interrupt::control(true);
    let found = progress::shown("reading", &control, || inspect(&arguments.fragment, &control))?;
    let header = match &found.header {
        Ok(header) => header,
        Err(why) => {
            return Err(Failure::Other(format!("{} has no sound header: {why}", Shown(&arguments.fragment))));
        }
    };
    if as_json {
        show::json(&document(&found, header))?;
    } else {
        print(&found, header)?;
        found.problems.iter().for_each(show::warning);
    }
    if found.problems.is_empty() { Ok(()) } else { Err(Failure::Found) }
}

fn print(found: &Inspection, header: &Header) -> Outcome {
    let layout = &header.layout;
    let role = super::verify::role(header, header.position);
    show::text(format_args!("name      {}", Shown(name_of(&header.name))))?;
    show::text(format_args!(
        "object    {}, {} ({} bytes)",
        header.object,
        show::bytes(layout.object_bytes()),
        layout.object_bytes()
    ))?;
    show::text(format_args!("code      {}", header.code))?;
    show::text(format_args!("position  {} of {} ({role})", header.position, layout.blocks()))?;
    show::text(format_args!(
        "stripes   {} of {} data bytes; blocks of {} bytes, a checksum for each {}",
        layout.stripes(),
        layout.stripe_bytes(),
        layout.full_block_bytes(),
        layout.granule_bytes()
    ))?;
    show::text(format_args!(
        "file      {} bytes; {} blocks of {} match their checksums",
        found.file_bytes,
        found.sound_blocks,
        layout.stripes()
    ))?;
    show::text(format_args!("mode      {:04o}", header.mode))?;
    show::text(format_args!("modified  {}", date(header.modified)))?;
    show::text(format_args!("encoded   {}", date(header.created)))
}

fn document(found: &Inspection, header: &Header) -> serde_json::Value {
    let layout = &header.layout;
    let time = |time: Timestamp| json!({ "seconds": time.seconds, "nanoseconds": time.nanoseconds });
    json!({
        "name": show::name(&header.name),
        "object": header.object.to_string(),
        "chunk_set": header.chunk_set,
        "code": header.code,
        "position": header.position,
        "k": layout.k(),
        "m": layout.m(),
        "bytes": layout.object_bytes(),
        "stripes": layout.stripes(),
        "unit": layout.unit(),
        "block_bytes": layout.full_block_bytes(),
        "granule_bytes": layout.granule_bytes(),
        "file_bytes": found.file_bytes,
        "sound_blocks": found.sound_blocks,
        "mode": header.mode,
        "modified": time(header.modified),
        "accessed": time(header.accessed),
        "created": time(header.created),
        "problems": found.problems.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}

fn date(time: Timestamp) -> String {
    format!("{}.{:09} UTC", show::date(time.seconds), time.nanoseconds)
}
