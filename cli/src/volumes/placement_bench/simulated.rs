//! `weft bench placement --simulated`: the same comparison in the simulator, with as many servers
//! as the paper has, and more.

use super::arguments::Arguments;
use crate::failure::{Failure, Outcome};
use crate::{interrupt, output, show};
use sim::study::{self, Options};

/// Numbers of servers: the paper has up to 32.
const SERVERS: [u32; 5] = [8, 16, 32, 128, 1024];
const QUICK_SERVERS: [u32; 2] = [8, 32];
const SEEDS: u32 = 4;

pub fn run(arguments: &Arguments, force: bool, as_json: bool) -> Outcome {
    let servers = match (&arguments.servers[..], arguments.quick) {
        ([], true) => &QUICK_SERVERS[..],
        ([], false) => &SERVERS,
        (given, _) => given,
    };
    let options = Options {
        servers: servers.iter().map(|&servers| servers as usize).collect(),
        seeds: arguments.seeds.unwrap_or(if arguments.quick { 1 } else { SEEDS }).into(),
        threads: std::thread::available_parallelism().map_or(1, usize::from),
        ..Options::default()
    };
    // There is nothing to clean up: a signal ends the process.
    let _control = interrupt::control(true);
    let study = study::study(&options).map_err(|why| Failure::Usage(format!("--simulated: {why}")))?;
    let failed = |why: serde_json::Error| Failure::Other(why.to_string());
    let document = serde_json::to_value(&study).map_err(failed)?;
    let files = [
        (&arguments.json_file, format!("{}\n", serde_json::to_string_pretty(&document).map_err(failed)?)),
        (&arguments.csv, study::csv(&study)),
        (&arguments.html, study::html(&study)),
    ];
    for (file, content) in files {
        file.iter().try_for_each(|file| output::write(file, &content, force))?;
    }
    if as_json { show::json(&document) } else { show::text(study::text(&study)) }
}
