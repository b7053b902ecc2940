//! `weft file verify`: is every byte of the fragments right, and what can still be lost?

use super::encode::name_of;
use crate::failure::{Failure, Outcome};
use crate::{interrupt, progress, show};
use clap::Args;
use plan::Position;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Instant;
use volume::Shown;
use volume::format::Header;
use volume::object::{FragmentState, Report, find, verify};

/// Check every byte of the fragments of a file; exit status 1 if anything is wrong
#[derive(Args)]
#[command(after_help = "Examples:
  weft file verify film.mkv --from /disk*
  weft file verify --from /disk* --json")]
pub struct Arguments {
    /// The name it was encoded by; not needed where there is only one
    name: Option<OsString>,
    /// Where the fragments are
    #[arg(long, required = true, num_args = 1.., value_name = "DIR")]
    from: Vec<PathBuf>,
    /// Threads [default: one for each core]
    #[arg(long, value_name = "N", value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1024))]
    threads: Option<usize>,
}

pub fn run(arguments: &Arguments, as_json: bool) -> Outcome {
    let control = interrupt::control(false);
    let begun = Instant::now();
    let object = find(arguments.name.as_deref(), &arguments.from)?;
    let report = progress::shown("verifying", &control, || verify(object, arguments.threads, &control))?;
    if as_json {
        let document = document(&report, begun);
        show::json(&document)?;
    } else {
        show::warn_of(&report.problems);
        print(&report, begun)?;
    }
    if report.is_healthy() { Ok(()) } else { Err(Failure::Found) }
}

/// What an object survives, in words.
pub fn survival(survives: Option<usize>) -> String {
    match survives {
        None => "can no longer be decoded".into(),
        Some(0) => "can be decoded, but survives no more losses; repair it".into(),
        Some(1) => "survives the loss of any 1 more fragment".into(),
        Some(count) => format!("survives the loss of any {count} more fragments"),
    }
}

/// What the blocks of a position are.
pub fn role(header: &Header, position: Position) -> &'static str {
    match ec::parse(&header.code) {
        Ok(code) if code.systematic() && position.index() < header.layout.k() => "data",
        Ok(code) if code.systematic() => "parity",
        _ => "coded",
    }
}

fn print(report: &Report, begun: Instant) -> Outcome {
    let (header, time) = (&report.header, begun.elapsed());
    for (position, state) in Position::all(report.fragments.len()).zip(&report.fragments) {
        let parity = role(header, position);
        match state {
            FragmentState::Sound(path) => show::text(format_args!("{position:4} {parity:6} sound    {}", Shown(path)))?,
            FragmentState::Damaged(path) => {
                show::text(format_args!("{position:4} {parity:6} damaged  {}", Shown(path)))?
            }
            FragmentState::Missing => show::text(format_args!("{position:4} {parity:6} missing"))?,
        }
    }
    let sound = report.fragments.iter().filter(|state| matches!(state, FragmentState::Sound(_))).count();
    show::text(format_args!(
        "{}: {sound} of {} fragments are sound; it {}. {} of {} in {}, {}",
        Shown(name_of(&header.name)),
        report.fragments.len(),
        survival(report.survives),
        show::bytes(header.layout.object_bytes()),
        header.code,
        show::time(time),
        show::rate(header.layout.object_bytes(), time)
    ))
}

fn document(report: &Report, begun: Instant) -> Value {
    let header = &report.header;
    let fragments = report.fragments.iter().enumerate().map(|(position, state)| match state {
        FragmentState::Sound(path) => json!({ "position": position, "state": "sound", "path": show::path(path) }),
        FragmentState::Damaged(path) => json!({ "position": position, "state": "damaged", "path": show::path(path) }),
        FragmentState::Missing => json!({ "position": position, "state": "missing" }),
    });
    json!({
        "object": header.object.to_string(),
        "name": show::name(&header.name),
        "code": header.code,
        "bytes": header.layout.object_bytes(),
        "healthy": report.is_healthy(),
        "decodable": report.survives.is_some(),
        "survives": report.survives,
        "inconsistent_stripes": report.inconsistent_stripes,
        "fragments": fragments.collect::<Vec<_>>(),
        "problems": show::problems(&report.problems),
        "seconds": begun.elapsed().as_secs_f64(),
    })
}
