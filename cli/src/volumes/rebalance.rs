//! `weft rebalance`: evens out the targets of a volume.

use super::open_own;
use crate::failure::{Failure, Outcome};
use crate::{interrupt, show};
use clap::{Args, ValueEnum};
use fs::{Doing, Forecast, REBALANCE_LIMIT, RebalanceStatus, Rebalanced};
use plan::sizes;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use volume::Shown;

/// Move chunks so that all targets are equally full and no domain has too many of a set
#[derive(Args)]
#[command(after_help = "Examples:
  # What would move, and how full the targets are then.
  weft rebalance /srv/films --dry-run
  weft rebalance /srv/films
  weft rebalance weft://10.0.0.1:7600/films --limit 50M
  weft rebalance weft://10.0.0.1:7600/films status
  weft rebalance weft://10.0.0.1:7600/films pause
  weft rebalance weft://10.0.0.1:7600/films resume
  # Only when it is asked for.
  weft rebalance /srv/films --auto off

Where a mount or a metadata server has the volume, that does it in the background, and goes on after a \
restart. It begins by itself when a target is 5 % of its size fuller or emptier than it should be, or a set breaks \
the rule about domains. Otherwise this command does it; Ctrl-C stops it, and another call goes on.")]
pub struct Arguments {
    /// The volume
    volume: PathBuf,
    /// What to do instead of beginning
    action: Option<Action>,
    /// Say what would move, and change nothing
    #[arg(long, conflicts_with_all = ["action", "limit", "auto"])]
    dry_run: bool,
    /// Move no more bytes than this in a second, now and later [default: 32M]
    #[arg(long, value_name = "SIZE", value_parser = sizes::bytes)]
    limit: Option<u64>,
    /// Whether it begins by itself; nothing is moved now
    #[arg(long, value_name = "WHEN", conflicts_with = "action")]
    auto: Option<Auto>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Action {
    /// How far it is
    Status,
    /// Move nothing until it is resumed, also after a restart
    Pause,
    /// Go on with what was paused
    Resume,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Auto {
    /// When targets are uneven (the default)
    On,
    /// Only when it is asked for
    Off,
}

pub fn run(arguments: &Arguments, as_json: bool) -> Outcome {
    let volume = open_own(&arguments.volume, false)?;
    let shown = Shown(&arguments.volume);
    let limit = |setting: &mut fs::RebalanceSetting| setting.limit = arguments.limit.or(setting.limit);
    match (arguments.action, arguments.auto) {
        _ if arguments.dry_run => forecast(&volume.forecast_rebalance()?, as_json)?,
        (Some(Action::Status), _) => status(&volume.rebalance_status()?, as_json)?,
        (Some(Action::Pause), _) => {
            volume.set_rebalance(|setting| {
                setting.paused = true;
                limit(setting);
            })?;
            said(
                &volume.rebalance_status()?,
                as_json,
                format_args!("nothing is moved until weft rebalance {shown} resume"),
            )?;
        }
        (Some(Action::Resume), _) => {
            volume.set_rebalance(|setting| {
                setting.paused = false;
                limit(setting);
            })?;
            let now = volume.rebalance_status()?;
            let goes_on = if now.setting.begun { "it goes on" } else { "it begins when it is asked for or due" };
            said(&now, as_json, format_args!("resumed; {goes_on}"))?;
        }
        (None, Some(auto)) => {
            volume.set_rebalance(|setting| {
                setting.by_hand = auto == Auto::Off;
                limit(setting);
            })?;
            let when = if auto == Auto::On { "by itself" } else { "only when it is asked for" };
            said(&volume.rebalance_status()?, as_json, format_args!("rebalancing begins {when}"))?;
        }
        (None, None) => {
            volume.set_rebalance(limit)?;
            if volume.rebalances_by_itself() {
                begin(&volume, as_json, &arguments.volume)?;
            } else {
                let (control, begun) = (interrupt::control(false), Instant::now());
                let done = crate::progress::shown("rebalancing", &control, || volume.rebalance(&control))?;
                finished(&done, begun.elapsed(), as_json)?;
                volume.finish()?;
                return if done.failed.0 == 0 { Ok(()) } else { Err(Failure::Found) };
            }
        }
    }
    volume.finish()
}

/// Lets the process that has the volume begin.
fn begin(volume: &fs::FileSystem, as_json: bool, path: &std::path::Path) -> Outcome {
    if volume.rebalance_setting()?.paused {
        let what = format!("the rebalancing of this volume is paused: weft rebalance {} resume", Shown(path));
        return Err(Failure::Other(what));
    }
    volume.set_rebalance(|setting| setting.begun = true)?;
    let now = volume.rebalance_status()?;
    said(&now, as_json, format_args!("it is done in the background; see weft rebalance {} status", Shown(path)))
}

fn said(now: &RebalanceStatus, as_json: bool, text: impl std::fmt::Display) -> Outcome {
    if as_json { show::json(&document(now)) } else { show::text(text) }
}

fn word(now: &RebalanceStatus) -> &'static str {
    match now.doing {
        _ if now.setting.paused => "paused",
        Doing::Moving => "moving",
        Doing::Waiting(_) => "waiting",
        Doing::Nothing if now.setting.begun => "interrupted",
        Doing::Nothing => "idle",
    }
}

/// How far one is that runs.
pub fn progress(now: &RebalanceStatus) -> Option<String> {
    let left = now.left.map_or_else(|| "end unknown".into(), |left| format!("about {} left", show::about(left)));
    let (done, all) = (show::bytes(now.bytes.0), show::bytes(now.bytes.1));
    let progress = format!("{done} of {all} moved, {}/s, {left}", show::bytes(now.bytes_per_second()));
    (now.doing != Doing::Nothing).then_some(progress)
}

/// The same for JSON, with what is set.
pub fn document(now: &RebalanceStatus) -> Value {
    let last = now.last.as_ref().map(|(when, how)| {
        let mut last = match how {
            Ok(done) => result(done),
            Err(why) => json!({ "error": why }),
        };
        last["seconds_ago"] = json!(when.as_secs_f64());
        last
    });
    json!({
        "state": word(now),
        "waits": if let Doing::Waiting(why) = now.doing { Some(why) } else { None },
        "begun": now.setting.begun,
        "auto": !now.setting.by_hand,
        "limit": now.setting.limit.unwrap_or(REBALANCE_LIMIT),
        "bytes_done": now.bytes.0,
        "bytes": now.bytes.1,
        "bytes_per_second": now.bytes_per_second(),
        "seconds": now.elapsed.as_secs_f64(),
        "seconds_left": now.left.map(|left| left.as_secs_f64()),
        "last": last,
    })
}

fn status(now: &RebalanceStatus, as_json: bool) -> Outcome {
    if as_json {
        return show::json(&document(now));
    }
    let when = if now.setting.by_hand { "only when it is asked for" } else { "by itself, too" };
    let limit = show::bytes(now.setting.limit.unwrap_or(REBALANCE_LIMIT));
    let doing = match now.doing {
        Doing::Waiting(why) => format!("waiting {why}"),
        _ => word(now).into(),
    };
    show::text(format_args!("{doing}; begins {when}; limited to {limit}/s"))?;
    if let Some(line) = progress(now) {
        show::text(line)?;
    }
    match &now.last {
        Some((when, Ok(done))) => {
            show::text(format_args!("the last one ended {} ago: {}", show::time(*when), words(done)))
        }
        Some((when, Err(why))) => show::text(format_args!("the last one ended {} ago: {why}", show::time(*when))),
        None => Ok(()),
    }
}

fn result(done: &Rebalanced) -> Value {
    json!({
        "chunks": done.chunks,
        "bytes": done.bytes,
        "failed": done.failed.0,
        "why": done.failed.1,
        "against_rule": done.stuck,
    })
}

fn words(done: &Rebalanced) -> String {
    let mut words = format!("{} with {} moved", show::count(done.chunks as usize, "chunk"), show::bytes(done.bytes));
    if let Some(why) = &done.failed.1 {
        words += &format!("; {} FAILED: {why}", show::count(done.failed.0 as usize, "chunk set"));
    }
    if done.stuck > 0 {
        words += &format!(
            "; {} BREAK the rule about domains and fit nowhere else",
            show::count(done.stuck as usize, "chunk")
        );
    }
    words
}

fn finished(done: &Rebalanced, time: Duration, as_json: bool) -> Outcome {
    if as_json {
        let mut document = result(done);
        document["seconds"] = json!(time.as_secs_f64());
        return show::json(&document);
    }
    if *done == Rebalanced::default() {
        return show::text("nothing to move: the targets are equally full");
    }
    show::text(format_args!("{} in {}, {}", words(done), show::time(time), show::rate(done.bytes, time)))
}

fn forecast(forecast: &Forecast, as_json: bool) -> Outcome {
    if as_json {
        let target = |(path, total, before, after): &(PathBuf, u64, u64, u64)| {
            let path = show::path(path);
            json!({ "path": path, "total": total, "used": before, "used_then": after })
        };
        return show::json(&json!({
            "chunks": forecast.chunks,
            "bytes": forecast.bytes,
            "against_rule": forecast.against_rule,
            "stuck": forecast.stuck,
            "targets": forecast.targets.iter().map(target).collect::<Vec<_>>(),
        }));
    }
    for (path, total, before, after) in &forecast.targets {
        let part = |used: u64| 100.0 * used as f64 / (*total).max(1) as f64;
        show::text(format_args!(
            "  {:5.1} % -> {:5.1} % of {}  {}",
            part(*before),
            part(*after),
            show::bytes(*total),
            Shown(path)
        ))?;
    }
    let rule = match forecast.against_rule {
        0 => String::new(),
        count => format!("; {} of them break the rule about domains", count),
    };
    show::text(format_args!(
        "{} with up to {} would move{rule}",
        show::count(forecast.chunks as usize, "chunk"),
        show::bytes(forecast.bytes)
    ))
}
