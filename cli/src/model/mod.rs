//! `weft model`: constants of the write-cost model from a measurement, and what a write would cost
//! elsewhere. The arithmetic is in `plan::cost`.

mod predict;
mod saved;
pub mod speed;

use crate::failure::{Failure, Outcome};
use crate::show;
use clap::{Args, Subcommand};
use plan::cost::calibration::{self, Checked, LeftOut, Measured};
use plan::cost::fit::Fit;
use plan::cost::measured::Point;
use plan::cost::{Calibration, Measurement, StepTimes, Way};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use volume::Shown;

/// The names of the seven parts of a write.
const STEP_NAMES: [&str; 7] = ["CT", "MT", "DT", "MP", "PC", "DD", "SP"];

/// Predict what a write costs on another network, with another code or more servers
#[derive(Args)]
#[command(after_help = "Examples:
  # Measure this machine, and fit the constants.
  weft bench write-cost --json-file result.json
  weft model calibrate result.json
  # What would a write cost there?
  weft model predict --net 100G --code rs:16+4 \\
      --record 128k --stores 24
  # How good is that?
  weft model check result.json

docs/cost-model.md has the equations.")]
pub struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Calibrate(CalibrateArguments),
    Predict(predict::Arguments),
    Check(CheckArguments),
}

/// Fit the constants of this machine to what weft bench write-cost measured, and save them
#[derive(Args)]
#[command(after_help = "Examples:
  weft model calibrate result.json
  weft model calibrate result.json --out model.json

The constants are saved for this machine and this user, in $XDG_DATA_HOME/weft/model or ~/.local/share/weft/model.")]
struct CalibrateArguments {
    /// A file of weft bench write-cost --json-file
    result: PathBuf,
    /// Save the constants in this file instead
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Predict points that the constants do not come from, and show the errors
#[derive(Args)]
#[command(after_help = "Examples:
  # Each point, from the others.
  weft model check result.json
  weft model check stores6.json stores12.json
  # All points, from constants that were saved.
  weft model check other.json --model model.json")]
struct CheckArguments {
    /// Files of weft bench write-cost --json-file: several for several numbers of stores
    #[arg(required = true)]
    results: Vec<PathBuf>,
    /// Constants to predict with [default: points are left out in turn, one by one, by their size
    /// of records, code, network and number of stores, and the others predict them]
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,
}

pub fn run(arguments: &Arguments, as_json: bool) -> Outcome {
    match &arguments.what {
        What::Calibrate(arguments) => calibrate(arguments, as_json),
        What::Predict(arguments) => predict::run(arguments, as_json),
        What::Check(arguments) => check(arguments, as_json),
    }
}

fn wrong(path: &Path) -> impl Fn(String) -> Failure {
    move |why| Failure::Other(format!("{}: {why}", Shown(path)))
}

fn measured(path: &Path) -> Result<Measurement, Failure> {
    let text = std::fs::read_to_string(path).map_err(|why| wrong(path)(why.to_string()))?;
    let no = |why: serde_json::Error| wrong(path)(format!("it is no result of weft bench write-cost: {why}"));
    let result: Measurement = serde_json::from_str(&text).map_err(no)?;
    result.check().map_err(wrong(path))?;
    Ok(result)
}

fn way(way: Way) -> &'static str {
    match way {
        Way::Inline => "into the metadata",
        Way::Stripe => "into stripes",
    }
}

fn calibrate(arguments: &CalibrateArguments, as_json: bool) -> Outcome {
    let result = measured(&arguments.result)?;
    let found = calibration::calibrate(&result).map_err(wrong(&arguments.result))?;
    let place = match &arguments.out {
        Some(out) => out.clone(),
        None => saved::place()?,
    };
    saved::save(&found, &place)?;
    if as_json {
        let found = serde_json::to_value(&found).map_err(|why| Failure::Other(why.to_string()))?;
        return show::json(&json!({ "saved": show::path(&place), "model": found }));
    }
    show::text(format_args!("{}, measured {}", found.machine, found.date))?;
    for group in &found.groups {
        let points = group.fits[0].points;
        show::text(format_args!(
            "\nrecords {}, {}, {}: time of a step, within the 95 % interval",
            way(group.way),
            if group.embedded { "on directories".into() } else { format!("coded by the {}", group.coding) },
            show::count(points, "point")
        ))?;
        show::text("  step       us a record             ns a KiB            residual   cold")?;
        for (step, fit) in STEP_NAMES.iter().zip(&group.fits) {
            show::text(line(step, fit))?;
        }
        for (family, fit) in &group.families {
            show::text(format_args!("  PC of {family}"))?;
            show::text(line("PC", fit))?;
        }
    }
    show::text("\nDD: us a message. cold: us more a record where the processors waited long for the wire")?;
    show::text(format_args!("saved in {}", Shown(&place)))
}

fn line(step: &str, fit: &Fit) -> String {
    let with = |value: f64, within: Option<f64>| match within {
        Some(within) => format!("{value:>9.2} +- {within:<8.2}"),
        None => format!("{value:>9.2}            "),
    };
    format!(
        "  {step}    {}  {}  {:>6.1} %  {:>+6.1}",
        with(fit.line.fixed * 1e6, fit.fixed_within.map(|within| within * 1e6)),
        with(fit.line.per_byte * 1e9 * 1024.0, fit.per_byte_within.map(|within| within * 1e9 * 1024.0)),
        fit.residual * 100.0,
        fit.line.cold * 1e6
    )
}

/// Times in seconds, by step.
fn times(steps: &StepTimes) -> Value {
    let each = STEP_NAMES.iter().zip(steps.as_array()).map(|(step, time)| ((*step).to_string(), json!(time)));
    Value::Object(each.collect())
}

fn check(arguments: &CheckArguments, as_json: bool) -> Outcome {
    let results: Vec<Measurement> =
        arguments.results.iter().map(|path| measured(path)).collect::<Result<_, Failure>>()?;
    let points = calibration::points(&results);
    let wrong = wrong(&arguments.results[0]);
    let mut all: Vec<(&str, Vec<Checked>)> = Vec::new();
    match &arguments.model {
        Some(path) => {
            all.push(("nothing", calibration::check(&saved::load(path)?, &points).map_err(&wrong)?));
        }
        None => {
            for by in LeftOut::ALL {
                all.push((by.name(), calibration::check_left_out(&points, by).map_err(&wrong)?));
            }
        }
    }
    all.retain(|(_, checked)| !checked.is_empty());
    let Some((_, first)) = all.first() else {
        return Err(wrong("no point can be predicted: a line needs two others of the same way and coding".into()));
    };
    if as_json {
        let (median, worst) = calibration::errors(first).unwrap_or_default();
        let left_out = all.iter().map(|(what, checked)| {
            let (median, worst) = calibration::errors(checked).unwrap_or_default();
            let points = checked.iter().map(|checked| document(checked, &points));
            json!({
                "left_out": what, "median_error": median, "worst_error": worst,
                "interpolated": of_kind(checked, true), "extrapolated": of_kind(checked, false),
                "points": points.collect::<Vec<_>>(),
            })
        });
        return show::json(&json!({
            "points": first.iter().map(|checked| document(checked, &points)).collect::<Vec<_>>(),
            "median_error": median, "worst_error": worst, "left_out": left_out.collect::<Vec<_>>(),
        }));
    }
    show::text("        code  coding      net    record   measured   predicted    error")?;
    first.iter().try_for_each(|checked| show::text(checked_line(checked, &points)))?;
    show::text("")?;
    for (what, checked) in &all {
        let (median, worst) = calibration::errors(checked).unwrap_or_default();
        let out = if arguments.model.is_some() { String::new() } else { format!("left out {what}: ") };
        show::text(format_args!(
            "{out}{}, median error {:.1} %, worst {:.1} %",
            show::count(checked.len(), "point"),
            median * 100.0,
            worst * 100.0
        ))?;
        let of_worst = checked.iter().max_by(|a, b| a.error().abs().total_cmp(&b.error().abs()));
        if let Some(checked) = of_worst.filter(|_| all.len() > 1) {
            show::text(checked_line(checked, &points))?;
        }
        for (name, interpolated) in [("between others", true), ("beyond the others", false)] {
            let of_kind = checked.iter().filter(|checked| checked.interpolated == Some(interpolated));
            if let Some((median, worst)) = calibration::errors(of_kind.clone()) {
                let (count, median, worst) = (of_kind.count(), median * 100.0, worst * 100.0);
                show::text(format_args!("  {name}: {count}, median error {median:.1} %, worst {worst:.1} %"))?;
            }
        }
    }
    Ok(())
}

/// How many points are between those of the fit, or beyond them, and their errors.
fn of_kind(checked: &[Checked], interpolated: bool) -> Value {
    let of_kind = || checked.iter().filter(|checked| checked.interpolated == Some(interpolated));
    let (median, worst) = calibration::errors(of_kind()).unzip();
    json!({ "points": of_kind().count(), "median_error": median, "worst_error": worst })
}

/// What wrote the point: where, and who coded.
fn by(point: &Point) -> String {
    if point.embedded { "none".into() } else { point.coding.to_string() }
}

fn checked_line(checked: &Checked, points: &[Measured]) -> String {
    let point = points[checked.point].1;
    format!(
        "{:>12}  {:<6} {:>8} {:>9} {:>7.0} us  {:>7.0} us  {:>+6.1} %{}",
        point.code,
        by(point),
        point.net.as_deref().unwrap_or("loopback"),
        show::bytes(point.record_bytes),
        checked.wall * 1e6,
        checked.predicted.total() * 1e6,
        checked.error() * 100.0,
        if checked.interpolated == Some(false) { "  beyond the others" } else { "" }
    ) + &point.stores.map_or_else(String::new, |stores| format!("  {stores} stores"))
}

fn document(checked: &Checked, points: &[Measured]) -> Value {
    let (run, point) = points[checked.point];
    json!({
        "code": point.code, "coding": point.coding, "embedded": point.embedded, "net": point.net,
        "stores": point.stores(run), "record_bytes": point.record_bytes,
        "measured_seconds": checked.wall, "predicted_seconds": checked.predicted.total(),
        "error": checked.error(), "interpolated": checked.interpolated,
        "predicted": times(&checked.predicted), "measured": times(&checked.measured),
    })
}

/// A calibration from a file, or the one of this machine.
fn constants(path: Option<&Path>) -> Result<Calibration, Failure> {
    match path {
        Some(path) => saved::load(path),
        None => saved::load(&saved::place()?),
    }
}
