//! `weft model`: constants of the write-cost model from a measurement, and what a write would cost
//! elsewhere. The arithmetic is in `plan::cost`.

mod predict;
mod saved;
pub mod speed;

use crate::failure::{Failure, Outcome};
use crate::show;
use clap::{Args, Subcommand};
use plan::cost::calibration::{self, Checked};
use plan::cost::fit::Fit;
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
  # Each point, from the others of the same result.
  weft model check result.json
  # All points, from constants that were saved.
  weft model check other.json --model model.json")]
struct CheckArguments {
    /// A file of weft bench write-cost --json-file
    result: PathBuf,
    /// Constants to predict with [default: each point is left out in turn, and the others predict
    /// it]
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
            "\nrecords {}, coded by the {}, {}: time of a step, within the 95 % interval",
            way(group.way),
            group.coding,
            show::count(points, "point")
        ))?;
        show::text("  step       us a record             ns a KiB            residual")?;
        for (step, fit) in STEP_NAMES.iter().zip(&group.fits) {
            show::text(line(step, fit))?;
        }
    }
    show::text(format_args!("\nsaved in {}", Shown(&place)))
}

fn line(step: &str, fit: &Fit) -> String {
    let with = |value: f64, within: Option<f64>| match within {
        Some(within) => format!("{value:>9.2} +- {within:<8.2}"),
        None => format!("{value:>9.2}            "),
    };
    format!(
        "  {step}    {}  {}  {:>6.1} %",
        with(fit.line.fixed * 1e6, fit.fixed_within.map(|within| within * 1e6)),
        with(fit.line.per_byte * 1e9 * 1024.0, fit.per_byte_within.map(|within| within * 1e9 * 1024.0)),
        fit.residual * 100.0
    )
}

/// Times in seconds, by step.
fn times(steps: &StepTimes) -> Value {
    let each = STEP_NAMES.iter().zip(steps.as_array()).map(|(step, time)| ((*step).to_string(), json!(time)));
    Value::Object(each.collect())
}

fn check(arguments: &CheckArguments, as_json: bool) -> Outcome {
    let result = measured(&arguments.result)?;
    let all = match &arguments.model {
        Some(path) => calibration::check(&saved::load(path)?, &result),
        None => calibration::check_left_out(&result),
    };
    let all = all.map_err(wrong(&arguments.result))?;
    let Some((median, worst)) = calibration::errors(&all) else {
        let why = "no point can be predicted: a line needs two others of the same way and coding";
        return Err(wrong(&arguments.result)(why.into()));
    };
    if as_json {
        let point = |checked: &Checked| {
            let point = &result.points[checked.point];
            json!({
                "code": point.code, "coding": point.coding, "record_bytes": point.record_bytes,
                "measured_seconds": checked.wall, "predicted_seconds": checked.predicted.total(),
                "error": checked.error(), "predicted": times(&checked.predicted), "measured": times(&checked.measured),
            })
        };
        return show::json(&json!({
            "points": all.iter().map(point).collect::<Vec<_>>(), "median_error": median, "worst_error": worst,
        }));
    }
    show::text("        code  coding    record   measured   predicted    error")?;
    for checked in &all {
        let point = &result.points[checked.point];
        show::text(format_args!(
            "{:>12}  {:<6} {:>9} {:>7.0} us  {:>7.0} us  {:>+6.1} %",
            point.code,
            point.coding.to_string(),
            show::bytes(point.record_bytes),
            checked.wall * 1e6,
            checked.predicted.total() * 1e6,
            checked.error() * 100.0
        ))?;
    }
    show::text(format_args!("\nmedian error {:.1} %, worst {:.1} %", median * 100.0, worst * 100.0))
}

/// A calibration from a file, or the one of this machine.
fn constants(path: Option<&Path>) -> Result<Calibration, Failure> {
    match path {
        Some(path) => saved::load(path),
        None => saved::load(&saved::place()?),
    }
}
