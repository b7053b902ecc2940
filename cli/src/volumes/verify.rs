//! `weft volume verify` and `weft volume repair`.

use super::open_own;
use crate::failure::{Failure, Outcome};
use crate::{interrupt, progress, show, unprotected};
use clap::Args;
use fs::Repaired;
use plan::sizes;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;
use volume::Limit;

/// Read every block of a volume and check it; exit status 1 if anything is wrong
#[derive(Args)]
#[command(
    override_usage = "weft volume verify [OPTIONS] VOLUME\n       weft volume verify --manifest VOLUME:/path [SOURCE]",
    after_help = "Examples:
  weft volume verify /srv/films
  # Only what is new since the last verification.
  weft volume verify /srv/films --new
  # The files of an archive against what was archived.
  weft volume verify --manifest /srv/films:/runs/7
  # The source of an archive against what was archived.
  weft volume verify --manifest /srv/films:/runs/7 \\
      /data/run7

With --json and --manifest it prints JSON lines, as `weft archive` does."
)]
pub struct VerifyArguments {
    /// The volume; with --manifest, the source of the archive
    #[arg(required_unless_present = "manifest")]
    volume: Option<OsString>,
    /// Only what was written since the last verification, and what was damaged then
    #[arg(long, conflicts_with = "manifest")]
    new: bool,
    /// Compare the files of an archive, or those of its source, with what was archived
    #[arg(long, value_name = "VOLUME:/path")]
    manifest: Option<OsString>,
}

impl VerifyArguments {
    /// Whether it reads the files of an archive and not the volume.
    pub fn is_of_archive(&self) -> bool {
        self.manifest.is_some()
    }
}

pub fn verify(arguments: &VerifyArguments, as_json: bool) -> Outcome {
    if let Some(archive) = &arguments.manifest {
        return super::archive::verify(archive, arguments.volume.as_deref(), as_json);
    }
    let directory = PathBuf::from(arguments.volume.clone().unwrap_or_default());
    let control = interrupt::control(false);
    let begun = Instant::now();
    let volume = open_own(&directory, false)?;
    let found = progress::shown("verifying", &control, || {
        if arguments.new { volume.verify_new(&control) } else { volume.verify(&control) }
    })?;
    let time = begun.elapsed();
    if as_json {
        let problems = found.problems.iter().map(|problem| {
            json!({
                "chunk_set": problem.set,
                "record": problem.record,
                "position": problem.position,
                "what": problem.what,
            })
        });
        let away = found.away.iter().map(
            |(id, away)| json!({ "target": id.0, "why": away.why, "blocks": away.blocks, "chunk_sets": away.sets }),
        );
        show::json(&json!({
            "sound": found.is_sound(),
            "stripes": found.stripes,
            "bytes": found.bytes,
            "lost_stripes": found.lost,
            "unreadable_stripes": found.unreadable,
            "targets_away": away.collect::<Vec<_>>(),
            "problems": problems.collect::<Vec<_>>(),
            "unlisted_problems": found.unlisted,
            "seconds": time.as_secs_f64(),
        }))?;
    } else {
        for problem in &found.problems {
            let position = problem.position.map_or_else(String::new, |position| format!(", position {position}"));
            show::text(format_args!(
                "chunk set {}, stripe at {}{position}: {}",
                problem.set, problem.record, problem.what
            ))?;
        }
        if found.unlisted > 0 {
            show::text(format_args!("and {} more", show::count(found.unlisted as usize, "problem")))?;
        }
        for (id, away) in &found.away {
            show::text(format_args!(
                "{}: {} of {} were not checked: {}",
                volume.with_paths(&format!("target {}", id.0)),
                show::count(away.blocks as usize, "block"),
                show::count(away.sets as usize, "chunk set"),
                away.why
            ))?;
        }
        let targets = || show::count(found.away.len(), "target");
        let verdict = match (found.lost, found.unreadable, found.problems.is_empty()) {
            (0, 0, true) if found.away.is_empty() => "all sound".into(),
            (0, 0, true) => format!("all sound but for what is on {} away", targets()),
            (0, 0, false) => "nothing is lost; weft volume repair rebuilds it".into(),
            (0, unreadable, _) => {
                format!("{} CANNOT BE READ while {} are away", show::count(unreadable as usize, "stripe"), targets())
            }
            (lost, ..) => format!("{} LOST", show::count(lost as usize, "stripe")),
        };
        show::text(format_args!(
            "{} with {} read in {}, {}: {verdict}",
            show::count(found.stripes as usize, "stripe"),
            show::bytes(found.bytes),
            show::time(time),
            show::rate(found.bytes, time)
        ))?;
        if unprotected::spec(&volume.code().0).is_some() {
            show::text(unprotected::WORDS)?;
        }
    }
    volume.finish()?;
    if found.is_sound() { Ok(()) } else { Err(Failure::Found) }
}

/// Rebuild the missing and damaged blocks of a volume
#[derive(Args)]
#[command(after_help = "Examples:
  weft volume repair /srv/films
  weft volume repair weft://127.0.0.1:7600/films \\
      --limit 100M")]
pub struct RepairArguments {
    /// The volume
    volume: PathBuf,
    /// Rebuild no more bytes than this in a second; for each of them, k are read
    #[arg(long, value_name = "SIZE", value_parser = sizes::bytes)]
    limit: Option<u64>,
}

pub fn repair(arguments: &RepairArguments, as_json: bool) -> Outcome {
    let control = interrupt::control(false);
    arguments.limit.into_iter().for_each(|rate| control.limit(Arc::new(Limit::new(rate))));
    let begun = Instant::now();
    let volume = open_own(&arguments.volume, false)?;
    let done = progress::shown("repairing", &control, || volume.repair(&control))?;
    print(&done, begun, as_json)?;
    volume.finish()?;
    if done.failed.is_empty() { Ok(()) } else { Err(Failure::Found) }
}

/// What a repair did.
pub fn print(done: &Repaired, begun: Instant, as_json: bool) -> Outcome {
    let time = begun.elapsed();
    if as_json {
        return show::json(&document(done, time.as_secs_f64()));
    }
    for (set, why) in &done.failed {
        show::text(format_args!("chunk set {set} was not repaired: {why}"))?;
    }
    if done.chunks == 0 && done.failed.is_empty() {
        return show::text("nothing to repair");
    }
    // What was only moved was checked against its checksums.
    let witnessed = match done.witnessed {
        0 => String::new(),
        count => format!("; {} checked against a survivor", show::count(count as usize, "block")),
    };
    let unwitnessed = match done.unwitnessed {
        0 => String::new(),
        count => format!("; {} without a survivor to check against", show::count(count as usize, "block")),
    };
    show::text(format_args!(
        "{} with {} rebuilt in {}, {}{witnessed}{unwitnessed}",
        show::count(done.chunks, "chunk"),
        show::bytes(done.bytes),
        show::time(time),
        show::rate(done.bytes, time)
    ))
}

fn document(done: &Repaired, seconds: f64) -> Value {
    json!({
        "chunks": done.chunks,
        "bytes": done.bytes,
        "bytes_made_by_stores": done.by_stores,
        "witnessed_blocks": done.witnessed,
        "unwitnessed_blocks": done.unwitnessed,
        "failed": done.failed.iter().map(|(set, why)| json!({ "chunk_set": set, "why": why })).collect::<Vec<_>>(),
        "seconds": seconds,
    })
}
