//! `weft verify VOLUME` and `weft repair VOLUME`.

use super::open_own;
use crate::failure::{Failure, Outcome};
use crate::{interrupt, progress, show};
use fs::Repaired;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use volume::Limit;

/// Checks every block of a volume, or only those that are new.
pub fn verify(directory: &Path, only_new: bool, as_json: bool) -> Outcome {
    let control = interrupt::control(false);
    let begun = Instant::now();
    let volume = open_own(directory, false)?;
    let found = progress::shown("verifying", &control, || {
        if only_new { volume.verify_new(&control) } else { volume.verify(&control) }
    })?;
    let time = begun.elapsed();
    if as_json {
        let problems = found.problems.iter().map(|problem| {
            json!({ "chunk_set": problem.set, "record": problem.record, "position": problem.position, "what": problem.what })
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
                "target {}: {} of {} were not checked: {}",
                id.0,
                show::count(away.blocks as usize, "block"),
                show::count(away.sets as usize, "chunk set"),
                away.why
            ))?;
        }
        let targets = || show::count(found.away.len(), "target");
        let verdict = match (found.lost, found.unreadable, found.problems.is_empty()) {
            (0, 0, true) if found.away.is_empty() => "all sound".into(),
            (0, 0, true) => format!("all sound but for what is on {} away", targets()),
            (0, 0, false) => "nothing is lost; weft repair makes it whole".into(),
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
    }
    volume.finish()?;
    if found.is_sound() { Ok(()) } else { Err(Failure::Found) }
}

/// Makes everything again that is missing or damaged.
pub fn repair(directory: &Path, limit: Option<u64>, as_json: bool) -> Outcome {
    let control = interrupt::control(false);
    limit.into_iter().for_each(|rate| control.limit(Arc::new(Limit::new(rate))));
    let begun = Instant::now();
    let volume = open_own(directory, false)?;
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
        "{} with {} made in {}, {}{witnessed}{unwitnessed}",
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
