//! `weft file repair`: rebuilds missing and damaged fragments.

use super::encode::name_of;
use super::verify::survival;
use crate::failure::Outcome;
use crate::{interrupt, progress, show};
use clap::Args;
use serde_json::json;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Instant;
use volume::Shown;
use volume::object::{Repaired, find, repair};

/// Rebuild the missing and damaged fragments of a file
#[derive(Args)]
#[command(after_help = "Examples:
  weft file repair film.mkv --from /disk*
  weft file repair film.mkv --from /disk[1-4] --to /newdisk

A rebuilt fragment takes the place of the damaged one, or goes where encode would have put the missing one. With \
--to, all rebuilt fragments go there.")]
pub struct Arguments {
    /// The name it was encoded by; not needed where there is only one
    name: Option<OsString>,
    /// Where the fragments are
    #[arg(long, required = true, num_args = 1.., value_name = "DIR")]
    from: Vec<PathBuf>,
    /// Where rebuilt fragments go
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
    /// Threads [default: one for each core]
    #[arg(long, value_name = "N", value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1024))]
    threads: Option<usize>,
}

pub fn run(arguments: &Arguments, as_json: bool) -> Outcome {
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
            "name": show::name(&repaired.header.name),
            "code": repaired.header.code,
            "made": repaired
                .made
                .iter()
                .map(|(position, path)| json!({ "position": position, "path": show::path(path) }))
                .collect::<Vec<_>>(),
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
        return show::text(format_args!("{name}: every fragment is there and sound; nothing to repair"));
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
