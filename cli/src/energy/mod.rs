//! `weft energy`: which instruments there are, what this machine takes, and what storing data
//! costs. Every figure says whether it was measured or modelled.

mod calibrate;
mod cost;
pub mod experiment;

use crate::failure::{Failure, Outcome};
use crate::{interrupt, show};
use archive::energy::{Choice, Model, Sampler, Seen, busy_seconds, look};
use archive::report::words::plain;
use clap::{Args, Subcommand};
use plan::energy::Profile;
use serde_json::json;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Show, measure and project the energy that this machine takes
#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  # Which instruments there are, and what they read now.
  weft energy
  # With the log of a meter at the plug.
  weft energy --meter /var/log/meter.csv
  # Measure this machine, into weft-energy.json.
  weft energy calibrate --code rs:160+80
  weft energy cost --site-tb-per-month 3000 --years 3

Sources in order of trust: meter, IPMI/Redfish, RAPL, perf, NVML, model. docs/energy.md has the format of each file."
)]
pub struct Arguments {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    sources: Sources,
    /// How long to watch the instruments
    #[arg(long, value_name = "S", default_value_t = 2.0, value_parser = seconds)]
    seconds: f64,
}

#[derive(Subcommand)]
enum What {
    Calibrate(calibrate::Arguments),
    Cost(cost::Arguments),
}

/// Instruments that the user names, and constants for the model.
#[derive(Args)]
#[command(next_help_heading = "Energy")]
pub struct Sources {
    /// The log of a meter at the plug: CSV with columns time and watts
    #[arg(long, value_name = "FILE.csv")]
    meter: Option<PathBuf>,
    /// A file that a timer writes with ipmitool dcmi power reading, or with what Redfish answers
    #[arg(long, value_name = "FILE")]
    readings: Option<PathBuf>,
    /// A file that perf stat -a -I 1000 -x, -e power/energy-pkg/ -o FILE is writing
    #[arg(long, value_name = "FILE")]
    perf: Option<PathBuf>,
    /// A file that a timer writes with nvidia-smi --query-gpu=power.draw --format=csv
    #[arg(long, value_name = "FILE")]
    gpu_power: Option<PathBuf>,
    /// The profile of this machine, from `weft energy calibrate`
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// The model's power of an idle machine
    #[arg(long, value_name = "WATTS", value_parser = watts)]
    idle_watts: Option<f64>,
    /// The model's power of a busy core above that
    #[arg(long, value_name = "WATTS", value_parser = watts)]
    core_watts: Option<f64>,
}

impl Sources {
    /// As a choice.
    pub fn choice(&self) -> Result<Choice, Failure> {
        let profile = self.profile.as_deref().map(read_profile).transpose()?;
        let mut model = profile.as_ref().map_or_else(Model::default, Model::of);
        if self.idle_watts.is_some() || self.core_watts.is_some() {
            model.idle_watts = self.idle_watts.unwrap_or(model.idle_watts);
            model.core_watts = self.core_watts.unwrap_or(model.core_watts);
            let both = self.idle_watts.is_some() && self.core_watts.is_some();
            model.from = if both { "given".into() } else { format!("given in part, else {}", model.from) };
        }
        Ok(Choice {
            meter: self.meter.clone(),
            readings: self.readings.clone(),
            perf: self.perf.clone(),
            gpu: self.gpu_power.clone(),
            profile,
            model,
            ..Choice::default()
        })
    }

    /// The options by which another command of this program gets the same.
    pub fn words(&self) -> Vec<OsString> {
        let files = [
            ("--meter", &self.meter),
            ("--readings", &self.readings),
            ("--perf", &self.perf),
            ("--gpu-power", &self.gpu_power),
            ("--profile", &self.profile),
        ];
        let files = files.into_iter().filter_map(|(option, file)| Some([option.into(), file.clone()?.into()]));
        let powers = [("--idle-watts", self.idle_watts), ("--core-watts", self.core_watts)];
        let powers = powers.into_iter().filter_map(|(option, watts)| Some([option.into(), watts?.to_string().into()]));
        files.chain(powers).flatten().collect()
    }

    /// Starts to account for a job, if the user asks for that or names an instrument.
    pub fn watch(&self, wanted: bool) -> Result<Option<Sampler>, Failure> {
        let files = [&self.meter, &self.readings, &self.perf, &self.gpu_power, &self.profile];
        let named = files.iter().any(|file| file.is_some()) || self.idle_watts.is_some() || self.core_watts.is_some();
        if wanted || named { Ok(Some(Sampler::start(&self.choice()?, "job"))) } else { Ok(None) }
    }
}

fn seconds(given: &str) -> Result<f64, String> {
    number(given, 0.1, 86_400.0)
}

fn watts(given: &str) -> Result<f64, String> {
    number(given, 0.0, 1e7)
}

/// A number within limits.
fn number(given: &str, least: f64, most: f64) -> Result<f64, String> {
    let number = given.parse().ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| format!("it is a number from {least} to {most}"))
}

/// A profile from its file.
fn read_profile(path: &Path) -> Result<Profile, Failure> {
    let failed = |why: String| Failure::Other(format!("{}: {why}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => failed("there is no such profile; make one with weft energy calibrate".into()),
        _ => failed(error.to_string()),
    })?;
    let profile: Profile =
        serde_json::from_str(&text).map_err(|error| failed(format!("it is not a profile: {error}")))?;
    profile.check().map_err(failed)?;
    Ok(profile)
}

pub fn run(arguments: &Arguments, as_json: bool) -> Outcome {
    match &arguments.what {
        None => sources(arguments, as_json),
        Some(What::Calibrate(arguments)) => calibrate::run(arguments, as_json),
        Some(What::Cost(arguments)) => cost::run(arguments, as_json),
    }
}

fn sources(arguments: &Arguments, as_json: bool) -> Outcome {
    let choice = arguments.sources.choice()?;
    let control = interrupt::control(true);
    let (began, busy) = (Instant::now(), busy_seconds());
    let seen = look(&choice, arguments.seconds, &|| control.go_on().is_ok());
    let took = began.elapsed().as_secs_f64();
    let cores = busy.zip(busy_seconds()).map_or(0.0, |(before, after)| (after - before).max(0.0) / took);
    let modelled = choice.model.joules(1.0, cores);
    let used = seen.iter().position(|seen| seen.watts.is_ok()).map_or("model", |at| seen[at].name);
    if as_json {
        let each = seen.iter().map(|seen| {
            json!({
                "source": seen.name,
                "basis": "measured",
                "detail": seen.what.as_ref().map(|what| &what.0),
                "scope": seen.what.as_ref().map(|what| what.1),
                "error": seen.error,
                "watts": seen.watts.as_ref().ok(),
                "refused": seen.watts.as_ref().err().map(|why| with_option(seen.name, why)),
            })
        });
        let model = json!({
            "source": "model", "basis": "modelled", "detail": choice.model.describe(), "scope": "node",
            "watts": modelled, "busy_cores": cores,
        });
        return show::json(
            &json!({ "seconds": took, "used": used, "sources": each.chain([model]).collect::<Vec<_>>() }),
        );
    }
    let line = |name: &str, measured: &str, modelled: &str, what: &str| {
        show::text(format_args!("{name:<13} {measured:>10} {modelled:>10}  {what}"))
    };
    line("source", "measured", "modelled", "what")?;
    for Seen { name, what, error, watts } in &seen {
        match (watts, what) {
            (Ok(watts), Some((detail, scope))) => {
                let error = error.map_or_else(String::new, |error| format!(", within {} %", plain(error * 100.0)));
                line(name, &format!("{} W", plain(*watts)), "", &format!("{}: {detail}{error}", scope.word()))?;
            }
            (Err(why), _) => line(name, "-", "", &with_option(name, why))?,
            (Ok(_), None) => {}
        }
    }
    let busy = format!("whole machine: {}; {} busy cores now", choice.model.describe(), plain(cores));
    line("model", "", &format!("{} W", plain(modelled)), &busy)?;
    show::text(format_args!("\nA job would be accounted by: {used}"))
}

/// Why a source measures nothing, with the option that names it to the program.
fn with_option(source: &str, why: &str) -> String {
    match source {
        "meter" if why.starts_with("not given") => format!("{why}; --meter FILE reads it"),
        "IPMI/Redfish" if why.starts_with("not given") => format!("{why}; --readings FILE reads them"),
        _ => why.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_limits() {
        assert_eq!(seconds("2.5"), Ok(2.5));
        for wrong in ["", "0", "-1", "nan", "inf", "1e9", "two"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
