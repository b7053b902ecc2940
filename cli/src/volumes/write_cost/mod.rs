//! `weft bench write-cost`: where the time of a synced write goes, on a cluster of processes on
//! this machine. The experiment is that of the write-cost analysis (E9): one program writes records
//! of one size, one after the other, each synced, and the mount counts the five steps.
//!
//! Without `--net` all is on loopback. Not here yet: ten threads.

mod experiment;
mod net;
mod stage;
mod table;

use crate::failure::{Failure, Outcome};
use crate::model::speed::{self, Speed};
use crate::{interrupt, output, show};
use clap::Args;
use net::{DIRECTORY, Lab};
use plan::coding::Coding;
use plan::cost::Link;
use plan::cost::measured::{KIND, Measurement, VERSION};
use plan::sizes;
use stage::Stage;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::SystemTime;

/// The largest record: what a mount takes in one call.
const MAX_RECORD_BYTES: u64 = 1 << 20;
/// Sizes of records that `--quick` takes, three for each way, and how many of each.
const QUICK_SIZES: ([u64; 6], u64) = ([4 << 10, 8 << 10, 32 << 10, 64 << 10, 128 << 10, 1 << 20], 8);

/// Where the time of a synced write goes: the five steps of the write-cost model
#[derive(Args)]
#[command(after_help = "Examples:
  weft bench write-cost
  # As many as the study, for weft model calibrate.
  weft bench write-cost --count 50000 --rounds 10 \\
      --json-file result.json
  weft bench write-cost --code rs:4+2 --code rs:8+3 \\
      --stores 11 --coding server --dir /srv/try
  # As root: behind links as fast as the study's.
  weft bench write-cost --net 1G,10G,40G,none \\
      --html steps.html --csv steps.csv
  weft bench write-cost --quick

Six stores, a metadata server and a mount run as processes on this machine. Records are written one after the other \
with O_DSYNC. docs/cost-model.md says what the steps are; weft model calibrate takes the file of --json-file.")]
pub struct Arguments {
    /// Sizes of the records
    #[arg(
        long, value_name = "SIZE", value_delimiter = ',', value_parser = sizes::bytes,
        default_value = "4k,8k,16k,32k,64k,128k,1M"
    )]
    records: Vec<u64>,
    /// Records of each size; the study takes 50000
    #[arg(
        long, value_name = "N", default_value_t = 1000,
        value_parser = clap::value_parser!(u64).range(1..=10_000_000)
    )]
    count: u64,
    /// Rounds; the table has their mean
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,
    /// A code; can be given several times
    #[arg(long, value_name = "CODE", default_value = "rs:4+2")]
    code: Vec<String>,
    /// Who codes: client or server (the storage servers)
    #[arg(long, value_name = "WHO", default_value_t)]
    coding: Coding,
    /// Storage servers; at least as many as a code has blocks
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=1000))]
    stores: u32,
    /// Links of all machines in bits a second: 1G,10G,none; takes root, ip, tc [default: loopback]
    #[arg(long, value_name = "SPEED", value_delimiter = ',', value_parser = speed::parse)]
    net: Vec<Speed>,
    /// Where to create the temporary directory with everything [default: that of the system]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Few records of few sizes: whether it works, not how fast
    #[arg(long)]
    quick: bool,
    /// Also write the result to a file, for weft model calibrate
    #[arg(long, value_name = "FILE")]
    json_file: Option<PathBuf>,
    /// Also write the figures to a file, a line for each network and size of records
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Also write a page with charts, beside the study's figures
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

pub fn run(arguments: &Arguments, force: bool, as_json: bool) -> Outcome {
    for file in [&arguments.json_file, &arguments.csv, &arguments.html].into_iter().flatten() {
        output::check(file, force)?;
    }
    if arguments.coding == Coding::Auto {
        return Err(Failure::Usage("--coding is client or server: with auto it is not known who coded".into()));
    }
    if let Some(record) = arguments.records.iter().find(|&&record| record > MAX_RECORD_BYTES) {
        return Err(Failure::Usage(format!("--records {record}: at most {}", show::bytes(MAX_RECORD_BYTES))));
    }
    for code in &arguments.code {
        let blocks = ec::parse(code)?.shape().blocks();
        if blocks > arguments.stores as usize {
            return Err(Failure::Usage(format!("{code} needs --stores {blocks}")));
        }
    }
    let control = interrupt::control(false);
    let (mut records, mut count, mut rounds) = (arguments.records.clone(), arguments.count, arguments.rounds);
    if arguments.quick {
        (records, count, rounds) = (QUICK_SIZES.0.to_vec(), QUICK_SIZES.1, 1);
    }
    let parent = arguments.dir.clone().unwrap_or_else(std::env::temp_dir);
    let mut result = Measurement {
        kind: KIND.into(),
        version: VERSION,
        date: now(),
        machine: machine(),
        program: env!("CARGO_PKG_VERSION").into(),
        stores: arguments.stores,
        link: Link::default(),
        networks: Vec::new(),
        points: Vec::new(),
    };
    let watched = std::io::stderr().is_terminal() && !as_json;
    let mut directories = (0..).map(|number| parent.join(format!("{DIRECTORY}{}-{number}", std::process::id())));
    let mut write = |result: &mut Measurement, lab: Option<&Lab>, net: Option<&str>| -> Outcome {
        for (code, place) in arguments.code.iter().zip(&mut directories) {
            let stage = Stage::set(&place, code, arguments.stores, arguments.coding, lab)?;
            for &record in &records {
                if watched {
                    let net = net.map_or_else(String::new, |net| format!(", network {net}"));
                    eprintln!("{code}{net}, records of {}", show::bytes(record));
                }
                let plan = experiment::Plan { net, code, coding: arguments.coding, record, count, rounds };
                result.points.push(experiment::measure(&stage, &plan, &control)?);
            }
            stage.clear()?;
        }
        Ok(())
    };
    if arguments.net.is_empty() {
        write(&mut result, None, None)?;
    } else {
        let mut lab = Lab::build(&parent, arguments.stores)?;
        for &speed in &arguments.net {
            control.go_on().map_err(Failure::Work)?;
            let network = lab.limit(speed)?;
            let (name, reachable) = (network.name.clone(), network.reachable);
            result.networks.push(network);
            if reachable {
                write(&mut result, Some(&lab), Some(&name))?;
            }
        }
    }
    let text = serde_json::to_string_pretty(&result).map_err(|error| Failure::Other(error.to_string()))?;
    if let Some(file) = &arguments.json_file {
        output::write(file, &format!("{text}\n"), force)?;
    }
    if let Some(file) = &arguments.csv {
        output::write(file, &bench::write_cost::csv(&result), force)?;
    }
    if let Some(file) = &arguments.html {
        output::write(file, &bench::write_cost::html(&result), force)?;
    }
    if as_json {
        show::json(&serde_json::to_value(&result).map_err(|error| Failure::Other(error.to_string()))?)?;
    } else {
        table::print(&result)?;
    }
    if result.points.is_empty() {
        return Err(Failure::Other("none of these networks can be had on this machine".into()));
    }
    Ok(())
}

fn now() -> String {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    format!("{} UTC", show::date(since.as_secs() as i64))
}

fn machine() -> String {
    let name = volume::machine::processor().unwrap_or_else(|| std::env::consts::ARCH.into());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{name}, {}", show::count(cores, "core"))
}
