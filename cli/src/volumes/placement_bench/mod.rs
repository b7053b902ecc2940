//! `weft bench placement`: what the policies of placement are worth, on a cluster of processes on
//! this machine: the experiments of paper 003 (ECFS), section VI.B, also with stores that are slow.
//!
//! Everything takes its turn in each round, in a new cluster: a policy learns nothing from what
//! another one did. With `--simulated`, the simulator does the paper's experiment instead.

mod arguments;
mod hold;
mod round;
mod simulated;
mod writer;

pub use arguments::Arguments;

use crate::failure::{Failure, Outcome};
use crate::volumes::bench_lab;
use crate::{interrupt, output, show};
use arguments::Sizes;
use bench::placement::{KIND, Measurement, Reached, Scenario, VERSION};
use hold::Hold;
use std::io::IsTerminal;
use volume::Control;

pub fn run(arguments: &Arguments, force: bool, as_json: bool) -> Outcome {
    if let Some(volume) = &arguments.writer {
        return writer::run(volume, arguments);
    }
    for file in arguments.files() {
        output::check(file, force)?;
    }
    if arguments.simulated {
        return simulated::run(arguments, force, as_json);
    }
    arguments.check()?;
    let control = interrupt::control(false);
    let watched = std::io::stderr().is_terminal() && !as_json;
    let result = measure(arguments, &control, watched)?;
    let text = serde_json::to_string_pretty(&result).map_err(|error| Failure::Other(error.to_string()))?;
    let files = [
        (&arguments.json_file, format!("{text}\n")),
        (&arguments.csv, bench::placement::csv(&result)),
        (&arguments.html, bench::placement::html(&result)),
    ];
    for (file, content) in files {
        file.iter().try_for_each(|file| output::write(file, &content, force))?;
    }
    if as_json {
        return show::json(&serde_json::to_value(&result).map_err(|error| Failure::Other(error.to_string()))?);
    }
    show::text(bench::placement::text(&result).trim_end())
}

/// Measures with processes.
fn measure(arguments: &Arguments, control: &Control, watched: bool) -> Result<Measurement, Failure> {
    let sizes = arguments.sizes()?;
    let Sizes { seconds, rounds, chunk_bytes, stripe_bytes } = sizes;
    let parent = arguments.dir.clone().unwrap_or_else(std::env::temp_dir);
    std::fs::create_dir_all(&parent).map_err(|why| Failure::Other(format!("{}: {why}", volume::Shown(&parent))))?;
    let hold = Hold::begin(arguments, &parent)?;
    let slowed = hold.slowed(arguments)?;
    let scenario = |load, slowed| {
        let reached = |&policy| Reached { policy, rounds: Vec::new() };
        Scenario { load, slowed, policies: arguments.policies.iter().map(reached).collect() }
    };
    let loads = arguments.load.iter();
    let mut scenarios: Vec<Scenario> =
        loads.flat_map(|&load| slowed.iter().map(move |&slowed| scenario(load, slowed))).collect();
    let mut stages = 0;
    for number in 1..=rounds {
        for scenario in &mut scenarios {
            for reached in &mut scenario.policies {
                control.go_on().map_err(Failure::Work)?;
                if watched {
                    let (load, slowed) = (scenario.load, scenario.slowed);
                    eprintln!("round {number} of {rounds}, {load}, {slowed} slowed, {}", reached.policy);
                }
                let (policy, load, slowed) = (reached.policy, scenario.load, scenario.slowed);
                let setup = round::Setup { policy, load, slowed, sizes: &sizes, number: stages };
                reached.rounds.push(round::run(arguments, &setup, &hold, control)?);
                stages += 1;
            }
        }
    }
    Ok(Measurement {
        kind: KIND.into(),
        version: VERSION,
        date: bench_lab::now(),
        machine: bench_lab::machine(),
        program: env!("CARGO_PKG_VERSION").into(),
        quick: arguments.quick,
        stores: arguments.stores,
        disks: arguments.disks,
        code: arguments.code.clone(),
        clients: arguments.clients,
        seconds,
        chunk_bytes: chunk_bytes.into(),
        stripe_bytes: stripe_bytes as u64,
        held: hold.held(),
        slow_to: arguments.slow_to,
        scenarios,
    })
}
