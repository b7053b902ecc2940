//! `weft verify`: is every byte of the fragments right, and what can still be lost?

use crate::encode::name_of;
use crate::failure::{Failure, Outcome};
use crate::{interrupt, progress, show};
use clap::Args;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Instant;
use volume::Shown;
use volume::format::Header;
use volume::object::{FragmentState, Report, find, verify};

/// Check every byte of a volume or of an encoded file; exit status 1 if anything is wrong
#[derive(Args)]
#[command(after_help = "Examples:
  weft verify /srv/films
  weft verify /srv/films --new
  weft verify --manifest /srv/films:/runs/7
  weft verify --manifest /srv/films:/runs/7 /data/run7
  weft verify film.mkv --from /disk*
  weft verify --from /disk* --json")]
pub struct Arguments {
    /// A volume; with --from, the name that a file was encoded by, not needed where there is only one; with --manifest, the source of an archive
    name: Option<OsString>,
    /// Where the fragments of an encoded file are
    #[arg(long, required_unless_present_any = ["name", "manifest"], num_args = 1.., value_name = "DIR")]
    from: Vec<PathBuf>,
    /// Of a volume, only what was written since the last verification, and what had damage then
    #[arg(long, conflicts_with_all = ["from", "manifest"])]
    new: bool,
    /// Read the files of an archive, VOLUME:/path, or those of its source, and compare them with what was archived
    #[arg(long, value_name = "VOLUME:/path", conflicts_with = "from")]
    manifest: Option<OsString>,
    /// Threads; all cores without this
    #[arg(long, value_name = "N", value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1024))]
    threads: Option<usize>,
}

impl Arguments {
    /// The volume that it works on, if it is not a file that was encoded.
    pub fn volume(&self) -> Option<&Path> {
        if self.manifest.is_some() {
            return None;
        }
        if self.from.is_empty() { self.name.as_deref().map(Path::new) } else { None }
    }
}

pub fn run(arguments: &Arguments, as_json: bool) -> Outcome {
    if let Some(archive) = &arguments.manifest {
        return crate::volumes::archive::verify(archive, arguments.name.as_deref(), as_json);
    }
    if let Some(volume) = arguments.volume() {
        return crate::volumes::verify::verify(volume, arguments.new, as_json);
    }
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
pub fn role(header: &Header, position: usize) -> &'static str {
    match ec::parse(&header.code) {
        Ok(code) if code.systematic() && position < header.layout.k() => "data",
        Ok(code) if code.systematic() => "parity",
        _ => "coded",
    }
}

fn print(report: &Report, begun: Instant) -> Outcome {
    let (header, time) = (&report.header, begun.elapsed());
    for (position, state) in report.fragments.iter().enumerate() {
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
        "name": String::from_utf8_lossy(&header.name),
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
