//! `weft bench write-cost`: where the time of a write goes, on a cluster of processes on this
//! machine. The experiments are those of the write-cost analysis (E9): one program writes records
//! of one size, one after the other, each synced, and the mount counts the five steps; and threads
//! write files of their own without waiting, with one code after the other.
//!
//! Without `--net` all is on loopback.

mod arguments;
mod experiment;
mod stream_table;
mod streams;
mod table;

pub use arguments::Arguments;

use crate::failure::{Failure, Outcome};
use crate::volumes::bench_lab::{self, Lab, Setup, Stage, WRITE_COST};
use crate::{interrupt, output, show};
use arguments::{QUICK_SIZES, QUICK_STREAM_BYTES};
use plan::cost::Link;
use plan::cost::measured::{KIND, Measurement, VERSION};
use std::io::IsTerminal;
use std::path::Path;
use std::time::Duration;
use volume::Control;

/// What is measured, and where.
struct Run<'a> {
    arguments: &'a Arguments,
    parent: &'a Path,
    /// How many stages there were.
    stages: u32,
    control: &'a Control,
    watched: bool,
}

impl Run<'_> {
    /// A new stage.
    fn stage<'a>(&mut self, setup: &Setup, lab: Option<&'a Lab>) -> Result<Stage<'a>, Failure> {
        let place = self.parent.join(format!("{WRITE_COST}{}-{}", std::process::id(), self.stages));
        self.stages += 1;
        Stage::set(&place, setup, lab)
    }

    fn say(&self, net: Option<&str>, setup: &Setup, what: &str) {
        if self.watched {
            let net = net.map_or_else(String::new, |net| format!(", network {net}"));
            let kernel = setup.kernel.map_or_else(String::new, |kernel| format!("@{kernel}"));
            let stores =
                if self.arguments.stores.len() > 1 { format!(", {} stores", setup.stores) } else { String::new() };
            eprintln!("{}{kernel}{net}{stores}, {}, {what}", setup.code, who(setup));
        }
    }

    /// A round of everything on one network.
    fn measure(&mut self, result: &mut Measurement, lab: Option<&Lab>, net: Option<&str>, round: u64) -> Outcome {
        let arguments = self.arguments;
        if !arguments.only_streams {
            let (mut records, mut count) = (arguments.records.clone(), arguments.count);
            if arguments.quick {
                (records, count) = (QUICK_SIZES.0.into(), QUICK_SIZES.1);
            }
            // A volume that has just begun is not always as fast: each size is the first one once.
            let first = round as usize % records.len();
            records.rotate_left(first);
            for setup in arguments.setups() {
                let stage = self.stage(&setup, lab)?;
                for &record in &records {
                    self.say(net, &setup, &format!("records of {}", show::bytes(record)));
                    let plan =
                        experiment::Plan { net, setup, record, count, several_stores: arguments.stores.len() > 1 };
                    let (round, way) = experiment::measure(&stage, &plan, self.control)?;
                    let point = entry(&mut result.points, plan.point()?, |a, b| {
                        a.is_beside(b) && a.record_bytes == b.record_bytes
                    });
                    // The last round says it.
                    point.way = way;
                    point.rounds.push(round);
                }
                stage.clear()?;
            }
        }
        if !arguments.threads.is_empty() {
            let bytes = if arguments.quick { QUICK_STREAM_BYTES } else { arguments.stream_bytes };
            streams::measure(self, result, lab, net, bytes)?;
        }
        Ok(())
    }
}

/// Returns the entry of `all` that is the same as a new one. Adds the new one if there is no such
/// entry.
fn entry<T>(all: &mut Vec<T>, new: T, same: impl Fn(&T, &T) -> bool) -> &mut T {
    let place = all.iter().position(|old| same(old, &new)).unwrap_or(all.len());
    if place == all.len() {
        all.push(new);
    }
    &mut all[place]
}

/// Who codes, in words.
fn who(setup: &Setup) -> String {
    if setup.embedded { "on directories".into() } else { format!("coded by the {}", setup.coding) }
}

pub fn run(arguments: &Arguments, force: bool, as_json: bool) -> Outcome {
    for file in arguments.files() {
        output::check(file, force)?;
    }
    arguments.check()?;
    let control = interrupt::control(false);
    let parent = arguments.dir.clone().unwrap_or_else(std::env::temp_dir);
    std::fs::create_dir_all(&parent).map_err(|why| experiment::cannot(&parent, &why))?;
    let mut result = Measurement {
        kind: KIND.into(),
        version: VERSION,
        date: bench_lab::now(),
        machine: bench_lab::machine(),
        program: env!("CARGO_PKG_VERSION").into(),
        stores: arguments.stores[0],
        link: Link::default(),
        networks: Vec::new(),
        points: Vec::new(),
        streams: Vec::new(),
    };
    let watched = std::io::stderr().is_terminal() && !as_json;
    let mut run = Run { arguments, parent: &parent, stages: 0, control: &control, watched };
    // Everything takes its turn in each round, as this machine is not always as fast.
    let rounds = if arguments.quick { 1 } else { arguments.rounds };
    if arguments.net.is_empty() {
        (0..rounds).try_for_each(|round| run.measure(&mut result, None, None, round))?;
    } else {
        let latency = Duration::from_micros(arguments.latency.unwrap_or(0).into());
        let lab = Lab::build(&parent, arguments.most_stores(), latency, "--net")?;
        for round in 0..rounds {
            for (number, &speed) in arguments.net.iter().enumerate() {
                control.go_on().map_err(Failure::Work)?;
                if round == 0 {
                    result.networks.push(lab.limit(speed)?);
                } else if result.networks[number].reachable {
                    lab.limit_again(&result.networks[number])?;
                }
                let network = &result.networks[number];
                if network.reachable {
                    let name = network.name.clone();
                    run.measure(&mut result, Some(&lab), Some(&name), round)?;
                }
            }
        }
    }
    write(arguments, &result, force, as_json)
}

/// Writes the files, and prints the result.
fn write(arguments: &Arguments, result: &Measurement, force: bool, as_json: bool) -> Outcome {
    let text = serde_json::to_string_pretty(result).map_err(|error| Failure::Other(error.to_string()))?;
    if let Some(file) = &arguments.json_file {
        output::write(file, &format!("{text}\n"), force)?;
    }
    if let Some(file) = &arguments.json_lines {
        output::write(file, &lines(result)?, force)?;
    }
    if let Some(file) = &arguments.csv {
        output::write(file, &bench::write_cost::csv(result), force)?;
    }
    if let Some(file) = &arguments.stream_csv {
        output::write(file, &bench::write_cost::stream_csv(result), force)?;
    }
    if let Some(file) = &arguments.html {
        output::write(file, &bench::write_cost::html(result), force)?;
    }
    if as_json {
        show::json(&serde_json::to_value(result).map_err(|error| Failure::Other(error.to_string()))?)?;
    } else {
        table::print(result)?;
    }
    if result.points.is_empty() && result.streams.is_empty() {
        return Err(Failure::Other("none of these networks can be had on this machine".into()));
    }
    Ok(())
}

/// An object on a line for each network, point and stream; `what` says which it is.
fn lines(result: &Measurement) -> Result<String, Failure> {
    let failed = |why: serde_json::Error| Failure::Other(why.to_string());
    let mut all = Vec::new();
    for network in &result.networks {
        all.push(("network", serde_json::to_value(network).map_err(failed)?));
    }
    for point in &result.points {
        all.push(("point", serde_json::to_value(point).map_err(failed)?));
    }
    for stream in &result.streams {
        all.push(("stream", serde_json::to_value(stream).map_err(failed)?));
    }
    let line = |(what, mut value): (&str, serde_json::Value)| {
        value["what"] = what.into();
        value["date"] = result.date.clone().into();
        value["machine"] = result.machine.clone().into();
        format!("{value}\n")
    };
    Ok(all.into_iter().map(line).collect())
}
