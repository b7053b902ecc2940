//! `weft bench channels`: how the number of connections to each store changes what threads write.
//! The ExSTorus study has ten and says nothing of others.

use crate::failure::{Failure, Outcome};
use crate::model::speed::{self, Speed};
use crate::volumes::bench_lab::{self, Common, Front, Lab, Setup, Stage, WRITE_COST, median, spread, write_streams};
use crate::{interrupt, show, unprotected};
use bench::paper::table::{Table, page};
use clap::Args;
use plan::coding::Coding;
use plan::sizes;
use serde_json::{Value, json};
use std::time::Duration;

/// What is written before anything is measured, in bytes.
const WARM_UP_BYTES: u64 = 32 << 20;
const QUICK_BYTES: u64 = 16 << 20;
/// What the study used.
const PUBLISHED: usize = 10;

/// Connections of a mount to each store: what threads write with 1 to 20 of them
#[derive(Args)]
#[command(after_help = "Examples:
  weft bench channels
  weft bench channels --channels 1,4,10 --threads 1 \\
      --coding server
  # As root: behind links of 1 Gbit/s.
  weft bench channels --net 1G
  weft bench channels --quick --json

Stores, a metadata server and a mount run as processes on this machine, new ones for each number of channels in each \
round. Threads write a file each in records of 128 KiB and sync it. The ExSTorus study has ten channels and no figure \
for others. -o channels=N of a mount sets the number.")]
pub struct Arguments {
    /// Numbers of channels
    #[arg(
        long, value_name = "N", value_delimiter = ',', default_value = "1,2,5,10,20",
        value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=64)
    )]
    channels: Vec<usize>,
    /// Threads that write
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: u32,
    /// What they write together in a round; the study takes 50G
    #[arg(long, value_name = "SIZE", default_value = "512M", value_parser = sizes::bytes)]
    stream_bytes: u64,
    /// Rounds, in which all numbers take their turn; medians count
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// The code
    #[arg(long, value_name = "CODE", default_value = "rs:4+2")]
    code: String,
    /// Who codes: client or server
    #[arg(long, value_name = "WHO", default_value = "client")]
    coding: Coding,
    /// Storage servers
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=200))]
    stores: u32,
    /// Links of all machines in bits a second, such as 1G; takes root, ip, tc [default: loopback]
    #[arg(long, value_name = "SPEED", value_parser = speed::parse)]
    net: Option<Speed>,
    #[command(flatten)]
    common: Common,
}

/// What was reached with a number of channels: MB/s of each round, and processor seconds a GB.
struct Reached {
    channels: usize,
    rates: Vec<f64>,
    processors: Vec<f64>,
}

pub fn run(arguments: &Arguments, force: bool, as_json: bool) -> Outcome {
    arguments.common.check(force)?;
    if arguments.coding == Coding::Auto {
        return Err(Failure::Usage("--coding is client or server: with auto it is not known who coded".into()));
    }
    let blocks = unprotected::parse(&arguments.code)?.shape().blocks();
    if blocks > arguments.stores as usize {
        return Err(Failure::Usage(format!("{} needs --stores {blocks}", arguments.code)));
    }
    let control = interrupt::control(false);
    let parent = arguments.common.parent();
    let lab = match arguments.net {
        Some(speed) => {
            let lab = Lab::build(&parent, arguments.stores, Duration::ZERO, "--net")?;
            if !lab.limit(speed)?.reachable {
                return Err(Failure::Other(format!("--net {} cannot be had on this machine", speed.words())));
            }
            Some(lab)
        }
        None => None,
    };
    let (rounds, bytes) =
        if arguments.common.quick { (1, QUICK_BYTES) } else { (arguments.rounds, arguments.stream_bytes) };
    let each = (bytes / u64::from(arguments.threads)).max(128 << 10);
    let mut all: Vec<Reached> = (arguments.channels.iter())
        .map(|&channels| Reached { channels, rates: Vec::new(), processors: Vec::new() })
        .collect();
    for round in 0..rounds as usize {
        let count = all.len();
        // Each round begins with another one, so that a machine that slows down favours none.
        for number in (0..count).map(|number| (number + round) % count) {
            control.go_on().map_err(Failure::Work)?;
            let reached = &mut all[number];
            let setup = Setup {
                front: Front::Mount("channels"),
                code: &arguments.code,
                create: &[],
                kernel: None,
                coding: arguments.coding,
                stores: arguments.stores,
                disks: 1,
                own_disks: false,
                embedded: false,
                stripe_bytes: None,
                channels: Some(reached.channels),
                master: None,
            };
            let place = parent.join(format!("{WRITE_COST}{}-{round}-{number}", std::process::id()));
            let stage = Stage::set(&place, &setup, lab.as_ref())?;
            write_streams(&stage, 1, WARM_UP_BYTES.min(bytes))?;
            let before: f64 = stage.processors().iter().sum();
            let seconds = write_streams(&stage, arguments.threads, each)?;
            let spent = stage.processors().iter().sum::<f64>() - before;
            let written = (each * u64::from(arguments.threads)) as f64;
            reached.rates.push(written / seconds / 1e6);
            reached.processors.push(spent / written * 1e9);
            stage.clear()?;
        }
    }
    let network = arguments.net.map_or_else(|| "loopback".into(), |speed| speed.words());
    report(arguments, &all, &network, force, as_json)
}

fn table(all: &[Reached], base: usize, beside: &dyn Fn(&Reached) -> f64) -> Table {
    let most = all.iter().map(|it| median(&it.rates)).fold(f64::MIN_POSITIVE, f64::max);
    let row = |it: &Reached| {
        let cells = vec![
            it.channels.to_string(),
            format!("{:.1}", median(&it.rates)),
            format!("{:.0} %", spread(&it.rates)),
            format!("{:+.1} %", beside(it)),
            format!("{:.2}", median(&it.processors)),
        ];
        (cells, vec![("own", median(&it.rates) / most)])
    };
    Table {
        title: "What threads write, by the number of channels".into(),
        how: format!(
            "Beside {base} channels. The study has {PUBLISHED} in all its measurements, and no figure for another \
             number."
        ),
        head: vec!["channels", "MB/s", "spread", "beside", "processor s/GB"],
        rows: all.iter().map(row).collect(),
    }
}

fn report(arguments: &Arguments, all: &[Reached], network: &str, force: bool, as_json: bool) -> Outcome {
    let base = all.iter().find(|it| it.channels == PUBLISHED).or(all.last()).map_or(0.0, |it| median(&it.rates));
    let beside = |reached: &Reached| 100.0 * (median(&reached.rates) / base.max(f64::MIN_POSITIVE) - 1.0);
    let base_name =
        if all.iter().any(|it| it.channels == PUBLISHED) { PUBLISHED } else { all.last().map_or(0, |it| it.channels) };
    let rows: Vec<Value> = all
        .iter()
        .map(|reached| {
            json!({
                "channels": reached.channels,
                "mb_per_second": median(&reached.rates),
                "rounds": reached.rates,
                "spread_percent": spread(&reached.rates),
                "percent_beside_base": beside(reached),
                "processor_seconds_per_gb": median(&reached.processors),
            })
        })
        .collect();
    let document = json!({
        "kind": "weft-channels", "version": 1, "date": bench_lab::now(), "machine": bench_lab::machine(),
        "program": env!("CARGO_PKG_VERSION"), "quick": arguments.common.quick, "code": arguments.code,
        "coding": arguments.coding.to_string(), "stores": arguments.stores, "threads": arguments.threads,
        "network": network, "base_channels": base_name, "published_channels": PUBLISHED, "results": rows,
    });
    let line = |it: &Reached| {
        format!("{},{:.1},{:.1},{:.2}", it.channels, median(&it.rates), spread(&it.rates), median(&it.processors))
    };
    let head = "channels,mb_per_second,spread_percent,processor_seconds_per_gb";
    let about = format!(
        "{}, coded by the {}, {} stores, {}, {network}; {}; all processes share its processors",
        arguments.code,
        arguments.coding,
        arguments.stores,
        show::count(arguments.threads as usize, "thread"),
        bench_lab::machine()
    );
    let page = || page("Weft: connections to each store", &about, &[table(all, base_name, &beside)]);
    arguments.common.write(&document, head, all, line, page, force)?;
    if as_json {
        return show::json(&document);
    }
    show::text(format_args!(
        "{}, coded by the {}, {} stores, {}, {network}; {}, {}",
        arguments.code,
        arguments.coding,
        arguments.stores,
        show::count(arguments.threads as usize, "thread"),
        bench_lab::machine(),
        show::count(all.first().map_or(0, |it| it.rates.len()), "round"),
    ))?;
    show::text(format_args!("channels      MB/s   spread   beside {base_name:<3}  processor s/GB"))?;
    for it in all {
        show::text(format_args!(
            "{:8}  {:8.1}  {:5.0} %    {:+7.1} %  {:14.2}",
            it.channels,
            median(&it.rates),
            spread(&it.rates),
            beside(it),
            median(&it.processors)
        ))?;
    }
    show::text(format_args!(
        "Published: {PUBLISHED} channels in all measurements of ExSTorus, and no figure for another number. Here all \
         processes share this machine's processors, and loopback has no limit for each connection: what more of them \
         gain where a network has one is not shown."
    ))?;
    arguments.common.end()
}
