//! `weft energy calibrate`: measures what this machine takes idle, reading and writing, and coding,
//! and writes that into a file.

use super::Sources;
use crate::failure::{Failure, Outcome};
use crate::{interrupt, output, show};
use archive::energy::CalibrationPlan;
use archive::report::words::{plain, rate};
use clap::Args;
use plan::sizes;
use std::io::IsTerminal;
use std::path::PathBuf;

/// Measure this machine idle, reading and writing, and coding, and write a profile
#[derive(Args)]
#[command(after_help = "Examples:
  # Ten seconds for each, with rs:4+2.
  weft energy calibrate
  weft energy calibrate --seconds 60 --code rs:160+80 \\
      --code rs:4+2 --meter /var/log/meter.csv
  # Read and write there.
  weft energy calibrate --scratch /archive \\
      --scratch-bytes 8GiB

Nothing else should run at the same time. Without an instrument the rates are measured and the powers are the model's; \
the profile says so. Ctrl-C ends it at once; then nothing is written.")]
pub struct Arguments {
    #[command(flatten)]
    sources: Sources,
    /// How long to measure each: idle, reading and writing, each code
    #[arg(long, value_name = "S", default_value_t = 10.0, value_parser = super::seconds)]
    seconds: f64,
    /// A code to measure; can be given several times
    #[arg(long, value_name = "CODE", default_value = "rs:4+2")]
    code: Vec<String>,
    /// The directory to read and write in; the file there is removed again
    #[arg(long, value_name = "DIR", default_value = ".")]
    scratch: PathBuf,
    /// The length of the file that is read and written; longer than memory to be sure that the disk
    /// is measured
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = sizes::bytes)]
    scratch_bytes: u64,
    /// The profile to write
    #[arg(long, value_name = "FILE", default_value = "weft-energy.json")]
    out: PathBuf,
    /// Replace the profile if there is one
    #[arg(long)]
    force: bool,
}

pub fn run(arguments: &Arguments, as_json: bool) -> Outcome {
    output::check(&arguments.out, arguments.force)?;
    let choice = arguments.sources.choice()?;
    let control = interrupt::control(false);
    let plan = CalibrationPlan {
        seconds: arguments.seconds,
        folder: arguments.scratch.clone(),
        file_bytes: arguments.scratch_bytes,
        codes: arguments.code.clone(),
    };
    for code in &plan.codes {
        ec::parse(code)?;
    }
    let watched = std::io::stderr().is_terminal() && !as_json;
    let tell = |step: &archive::energy::CalibrationStep| {
        if watched {
            eprintln!("{}, {} s", step.word(), arguments.seconds);
        }
    };
    let calibration = plan.run(&choice, &|| control.go_on().is_ok(), tell).map_err(|why| match control.go_on() {
        Err(interrupted) => Failure::Work(interrupted),
        Ok(()) if why.ends_with("do not code") => Failure::Other(format!("{why}: give --idle-watts and --core-watts")),
        Ok(()) if why.ends_with("scratch file") => Failure::Other(format!("{why} (--scratch, --scratch-bytes)")),
        Ok(()) => Failure::Other(why),
    })?;
    let profile = &calibration.profile;
    let text = serde_json::to_string_pretty(profile).map_err(|error| Failure::Other(error.to_string()))?;
    output::write(&arguments.out, &format!("{text}\n"), arguments.force)?;
    calibration.warnings.iter().for_each(show::warning);
    if as_json {
        return show::json(&serde_json::json!({ "profile": profile, "warnings": calibration.warnings }));
    }
    let powers = &profile.constants;
    show::text(format_args!("{}\n", profile.machine))?;
    show::text(format_args!("powers of the {}, {} ({}):", profile.scope.word(), profile.basis.word(), profile.source))?;
    show::text(format_args!("  idle              {:>8} W", plain(powers.idle_watts)))?;
    show::text(format_args!("  read, then write  {:>8} W above idle", plain(powers.read_write_watts)))?;
    show::text(format_args!("  coding            {:>8} W above idle for a core", plain(powers.coding_watts)))?;
    show::text("rates, measured:")?;
    show::text(format_args!("  read, then write  {}", rate(profile.read_write_bytes_per_second)))?;
    for coding in &profile.coding {
        show::text(format_args!("  {:<16}  {} of user data on one core", coding.code, rate(coding.bytes_per_second)))?;
    }
    show::text(format_args!("\nwritten to {}", arguments.out.display()))
}
