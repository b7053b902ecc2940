//! `weft bench energy`: the energy study's experiment on this machine.

use super::Sources;
use crate::failure::{Failure, Outcome};
use crate::{output, show};
use bench::paper::energy;

/// Time and energy of the energy study's seven methods at 160+80, 160+40 and 160+32, whole jobs
#[derive(clap::Args)]
#[command(after_help = "Examples:
  # Whether it works, in a minute.
  weft bench energy --quick
  # A disk and flash, all pairs, with a meter at the plug.
  weft bench energy --from /disk /flash \\
      --meter /var/log/meter.csv \\
      --profile weft-energy.json --html energy.html
  # The study's size and its class of SIMD; it takes hours.
  weft bench energy --from /disk --bytes 40GB \\
      --simd ssse3 --csv energy.csv

All methods run where source and destination have the same place in their lists, EC2-A on all pairs. Give the disk \
first and flash second to have the study's figures beside the right rows. Without an instrument energy is modelled, \
and says so; docs/energy.md lists the instruments.")]
pub struct Arguments {
    #[command(flatten)]
    study: energy::Args,
    #[command(flatten)]
    sources: Sources,
}

/// Runs it. With `force`, files are replaced.
pub fn run(arguments: &Arguments, force: bool, as_json: bool) -> Outcome {
    let study = &arguments.study;
    for file in [&study.json_file, &study.csv, &study.html].into_iter().flatten() {
        output::check(file, force)?;
    }
    let result = energy::run(study, &arguments.sources.choice()?).map_err(Failure::Other)?;
    let failed = |why: serde_json::Error| Failure::Other(why.to_string());
    let text = serde_json::to_string_pretty(&result).map_err(failed)?;
    let files = [
        (&study.json_file, format!("{text}\n")),
        (&study.csv, energy::csv(&result)),
        (&study.html, energy::html(&result)),
    ];
    for (file, content) in files {
        file.iter().try_for_each(|file| output::write(file, &content, force))?;
    }
    if as_json {
        return show::json(&serde_json::to_value(&result).map_err(failed)?);
    }
    show::text(energy::text(&result).trim_end())
}
