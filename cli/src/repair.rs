//! `weft repair`: makes missing and damaged fragments again.

use crate::encode::name_of;
use crate::failure::Outcome;
use crate::verify::survival;
use crate::{interrupt, progress, show};
use clap::Args;
use serde_json::json;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Instant;
use volume::Shown;
use volume::object::{Repaired, find, repair};

/// Make again what is missing or damaged of a volume or of an encoded file
#[derive(Args)]
#[command(after_help = "Examples:
  weft repair /srv/films
  weft repair weft://127.0.0.1:7600/films --limit 100M
  weft repair film.mkv --from /disk*
  weft repair film.mkv --from /disk1 /disk2 /disk3 /disk4 --to /newdisk

A damaged fragment is replaced where it lies, a missing one is put where encode would have put it; with --to,
all new ones go there.")]
pub struct Arguments {
    /// A volume; with --from, the name that a file was encoded by, not needed where there is only one
    name: Option<OsString>,
    /// Where the fragments of an encoded file are
    #[arg(long, required_unless_present = "name", num_args = 1.., value_name = "DIR")]
    from: Vec<PathBuf>,
    /// Where new fragments go
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
    /// Threads; all cores without this
    #[arg(long, value_name = "N", value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1024))]
    threads: Option<usize>,
    /// Of a volume: make no more bytes of lost blocks again in a second, as 200M; for each of them, k are read
    #[arg(long, conflicts_with = "from", value_name = "BYTES", value_parser = limit)]
    limit: Option<u64>,
}

/// Bytes a second; `off` is no limit of a repair that has none.
fn limit(text: &str) -> Result<u64, String> {
    crate::volumes::metrics::rate(text)?.ok_or_else(|| "without a limit, leave --limit out".into())
}

impl Arguments {
    /// The volume that it works on, if it is not a file that was encoded.
    pub fn volume(&self) -> Option<&Path> {
        if self.from.is_empty() { self.name.as_deref().map(Path::new) } else { None }
    }
}

pub fn run(arguments: &Arguments, as_json: bool) -> Outcome {
    if let Some(volume) = arguments.volume() {
        return crate::volumes::verify::repair(volume, arguments.limit, as_json);
    }
    let control = interrupt::control(false);
    let begun = Instant::now();
    let object = find(arguments.name.as_deref(), &arguments.from)?;
    let work = || repair(object, arguments.to.as_deref(), arguments.threads, &control);
    let repaired = match progress::shown("repairing", &control, work) {
        Ok(repaired) => repaired,
        Err((error, problems)) => {
            show::warn_of(&problems);
            return Err(error.into());
        }
    };
    if as_json {
        return show::json(&json!({
            "object": repaired.header.object.to_string(),
            "name": String::from_utf8_lossy(&repaired.header.name),
            "code": repaired.header.code,
            "made": repaired.made.iter().map(|(position, path)| json!({ "position": position, "path": show::path(path) })).collect::<Vec<_>>(),
            "witnessed_blocks": repaired.witnessed_blocks,
            "unwitnessed_blocks": repaired.unwitnessed_blocks,
            "left": repaired.left.iter().map(|path| show::path(path)).collect::<Vec<_>>(),
            "survives": repaired.survives,
            "problems": show::problems(&repaired.problems),
            "seconds": begun.elapsed().as_secs_f64(),
        }));
    }
    show::warn_of(&repaired.problems);
    print(&repaired, begun)
}

fn print(repaired: &Repaired, begun: Instant) -> Outcome {
    let name = Shown(name_of(&repaired.header.name));
    if repaired.made.is_empty() {
        return show::text(format_args!("{name}: every fragment is there and sound; nothing was written"));
    }
    for (position, path) in &repaired.made {
        show::text(format_args!("{position:4} made  {}", Shown(path)))?;
    }
    for path in &repaired.left {
        show::text(format_args!("     left  {}: not needed any more; remove it", Shown(path)))?;
    }
    let checked = match (repaired.witnessed_blocks, repaired.unwitnessed_blocks) {
        (_, 0) => "each block agrees with a survivor that was not used to make it".to_owned(),
        (0, _) => "no survivor was left to check the blocks against".to_owned(),
        (some, others) => {
            let agree = if some == 1 { "agrees" } else { "agree" };
            format!("{} {agree} with a survivor, for {others} none was left", show::count(some as usize, "block"))
        }
    };
    show::text(format_args!(
        "{name}: {} made in {}; {checked}; it {}",
        show::count(repaired.made.len(), "fragment"),
        show::time(begun.elapsed()),
        survival(repaired.survives)
    ))
}
