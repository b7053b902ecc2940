//! `weft model predict`.

use super::speed::{Speed, parse};
use super::{constants, times, way};
use crate::failure::{Failure, Outcome};
use crate::{output, show, unprotected};
use bench::paper::table::{CSV_HEAD, Table, page};
use bench::write_cost::published;
use clap::Args;
use fs::INLINE_BYTES;
use plan::coding::{Coder, Coding};
use plan::cost::pipelined::{first_full, loads};
use plan::cost::{Calibration, Link, Load, Pipelined, Setting, StepTimes, Way, pipelined, serial};
use plan::sizes;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Predict the five steps of a write, its speed, and what is busy first
#[derive(Args)]
#[command(after_help = "Examples:
  weft model predict --net 10G
  weft model predict --net 100G --code rs:16+4 \\
      --record 128k --stores 24
  weft model predict --net 10G --coding server --paper
  weft model predict --store-net 200M --stores 12 \\
      --open-sets 2

Two answers: records that are synced one after the other, and a stream. With --paper, the first is equation (6) as the \
study has it: one round trip for each step, and a link of its own for each slave. docs/cost-model.md has the \
equations, and says what they leave out.")]
pub struct Arguments {
    /// The link of each machine, in bits a second: 1G, 10G, none
    #[arg(long, value_name = "SPEED", default_value = "none", value_parser = parse)]
    net: Speed,
    /// The link of each store, if it is another one
    #[arg(long, value_name = "SPEED", value_parser = parse)]
    store_net: Option<Speed>,
    /// A round trip of the network, in microseconds
    #[arg(long, value_name = "US", default_value_t = 0.0, value_parser = microseconds)]
    round_trip_us: f64,
    /// The code
    #[arg(long, value_name = "CODE", default_value = "rs:4+2")]
    code: String,
    /// The size of a record
    #[arg(long, value_name = "SIZE", default_value = "128k", value_parser = sizes::bytes)]
    record: u64,
    /// Stores [default: as many as the code has blocks]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    stores: Option<u32>,
    /// Who codes: client or server
    #[arg(long, value_name = "WHO", default_value_t)]
    coding: Coding,
    /// Chunk sets that a client fills at once
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    open_sets: u32,
    /// Processor cores of a client
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    client_cores: u32,
    /// Processor cores of a store
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    store_cores: u32,
    /// What the disks of a store write in a second [default: they do not limit]
    #[arg(long, value_name = "SIZE", value_parser = sizes::bytes)]
    disk: Option<u64>,
    /// Strictly as the study's equation (6)
    #[arg(long)]
    paper: bool,
    /// Constants to predict with [default: those of this machine]
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,
    /// Also write the result to a file
    #[arg(long, value_name = "FILE")]
    json_file: Option<PathBuf>,
    /// Also write the steps to a file, a line for each
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Also write a self-contained page with a chart
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Replace these files if there are any
    #[arg(long)]
    force: bool,
}

fn microseconds(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (0.0..=1e9).contains(number));
    number.ok_or_else(|| "it is a number from 0 to 1e9".into())
}

/// What is predicted.
struct Prediction {
    serial: StepTimes,
    /// How busy a client makes everything that writes like this.
    serial_loads: [Load; 5],
    /// None where no constants of stripes were measured.
    stream: Option<Pipelined>,
}

pub fn run(arguments: &Arguments, as_json: bool) -> Outcome {
    let files = [&arguments.json_file, &arguments.csv, &arguments.html];
    files.into_iter().flatten().try_for_each(|file| output::check(file, arguments.force))?;
    let setting = setting(arguments)?;
    let calibration = constants(arguments.model.as_deref())?;
    let prediction = predict(arguments, &setting, &calibration)?;
    let document = document(arguments, &setting, &calibration, &prediction);
    let steps = steps(arguments, &prediction.serial);
    if let Some(file) = &arguments.json_file {
        output::write(file, &format!("{document:#}\n"), arguments.force)?;
    }
    if let Some(file) = &arguments.csv {
        output::write(file, &(CSV_HEAD.to_owned() + &steps.csv()), arguments.force)?;
    }
    if let Some(file) = &arguments.html {
        let about = heading(arguments, &setting, &calibration).replace('\n', "; ");
        output::write(file, &page("Weft: a predicted write", &about, std::slice::from_ref(&steps)), arguments.force)?;
    }
    if as_json {
        return show::json(&document);
    }
    print(arguments, &setting, &calibration, &prediction)
}

fn setting(arguments: &Arguments) -> Result<Setting, Failure> {
    let coder = match arguments.coding {
        Coding::Client => Coder::Here,
        Coding::Server => Coder::Master,
        Coding::Auto => return Err(Failure::Usage("--coding is client or server: auto depends on the load".into())),
    };
    let shape = unprotected::parse(&arguments.code)?.shape();
    let round_trip_seconds = arguments.round_trip_us / 1e6;
    let link =
        |speed: Speed| Link { bytes_per_second: speed.0.map(|bits| bits / 8.0), round_trip_seconds, burst_bytes: 0.0 };
    let setting = Setting {
        k: shape.k as u32,
        m: shape.m as u32,
        record_bytes: arguments.record,
        way: if arguments.record <= INLINE_BYTES { Way::Inline } else { Way::Stripe },
        coder,
        stores: arguments.stores.unwrap_or(shape.blocks() as u32),
        open_sets: arguments.open_sets,
        client_link: link(arguments.net),
        store_link: link(arguments.store_net.unwrap_or(arguments.net)),
        client_cores: f64::from(arguments.client_cores),
        store_cores: f64::from(arguments.store_cores),
        disk_bytes_per_second: arguments.disk.map(|bytes| bytes as f64),
    };
    setting.check().map_err(Failure::Usage)?;
    Ok(setting)
}

fn predict(arguments: &Arguments, setting: &Setting, calibration: &Calibration) -> Result<Prediction, Failure> {
    let lacking = || {
        let more = if arguments.coding == Coding::Server { " --coding server" } else { "" };
        let what = format!("records {} coded by the {}", way(setting.way), arguments.coding);
        Failure::Other(format!("the model has no {what}: measure them with weft bench write-cost{more}"))
    };
    let own = calibration.constants(setting.way, arguments.coding, false, &arguments.code).ok_or_else(lacking)?;
    let serial = if arguments.paper { serial::paper(&own, setting) } else { serial::steps(&own, setting) };
    let serial_loads = loads(&own, setting, serial.total());
    // A stream fills stripes, however short its records are.
    let long = Setting { way: Way::Stripe, ..*setting };
    let stream = calibration.constants(Way::Stripe, arguments.coding, false, &arguments.code);
    let stream = stream.map(|constants| pipelined::predict(&constants.of_stream(), &long));
    Ok(Prediction { serial, serial_loads, stream })
}

fn print(arguments: &Arguments, setting: &Setting, calibration: &Calibration, prediction: &Prediction) -> Outcome {
    show::text(heading(arguments, setting, calibration) + "\n")?;
    let Prediction { serial, serial_loads, stream } = prediction;
    let how = if arguments.paper { "equation (6) of the study" } else { "one after the other, each synced" };
    show::text(format_args!("records {}, {how}:", way(setting.way)))?;
    for (cells, _) in &steps(arguments, serial).rows {
        let [name, time, share, published] = &cells[..] else { continue };
        let published = if published == "-" { String::new() } else { format!("  the study's is {published}") };
        show::text(format_args!("  {name:<24} {time:>9} us {share:>7}{published}"))?;
    }
    let [ct, mt, dt] = [serial.client, serial.metadata, serial.transfer].map(|time| time * 1e6);
    show::text(format_args!("  CO is CT {ct:.1}, MT {mt:.1} and DT {dt:.1} us"))?;
    let total = serial.total();
    show::text(format_args!("  WT {:.1} us a record, {}", total * 1e6, rate(setting.record() / total)))?;
    if let Some((resource, clients)) = first_full(serial_loads) {
        show::text(format_args!("  with {clients:.1} such clients the {} is busy all the time", resource.name()))?;
    }
    let Some(stream) = stream else {
        return show::text("\na stream: not predicted, as no records into stripes were measured");
    };
    let limit = stream.limit.map_or("nothing", |resource| resource.name());
    show::text(format_args!("\na stream: {}, limited by the {limit}", rate(stream.bytes_per_second)))?;
    show::text("  resource     us a record   busy   all the time with")?;
    for load in &stream.loads {
        let clients = load.clients.map_or_else(|| "-".into(), |clients| format!("{clients:.1} clients"));
        show::text(format_args!(
            "  {:<10} {:>13.1} {:>5.1} %   {clients}",
            load.resource.name(),
            load.seconds * 1e6,
            load.busy * 100.0
        ))?;
    }
    Ok(())
}

/// What is predicted, and where the constants are from.
fn heading(arguments: &Arguments, setting: &Setting, calibration: &Calibration) -> String {
    format!(
        "{}, records of {}, coded by the {}, {}, network {}\nconstants: {}, measured {}",
        arguments.code,
        show::bytes(setting.record_bytes),
        arguments.coding,
        show::count(setting.stores as usize, "store"),
        arguments.net.words(),
        calibration.machine,
        calibration.date
    )
}

/// The five steps in microseconds and percent, beside the study's shares of such a network.
fn steps(arguments: &Arguments, serial: &StepTimes) -> Table {
    let names = [
        "CO  client overhead",
        "MP  master process",
        "PC  parity calculation",
        "DD  data distribution",
        "SP  slave process",
    ];
    let paper = arguments.net.0.and_then(published).map(|paper| paper.shares);
    // It names no shares of MP and SP.
    let published = [Some(0), None, Some(1), Some(2), None].map(|step: Option<usize>| Some(paper?[step?]));
    let five = [serial.client_overhead(), serial.master, serial.parity, serial.distribution, serial.slave];
    let rows = names.iter().zip(five).zip(serial.shares()).zip(published).map(|(((name, time), share), published)| {
        let published = published.map_or_else(|| "-".into(), |share| format!("{share:.1} %"));
        let cells =
            vec![(*name).to_owned(), format!("{:.1}", time * 1e6), format!("{:.1} %", share * 100.0), published];
        (cells, vec![("own", share)])
    });
    Table {
        title: "The five steps of a record".into(),
        how: "The study's shares are the highest that its text names for such a network, of CO, PC and DD.".into(),
        head: vec!["step", "microseconds", "share", "in the study"],
        rows: rows.collect(),
    }
}

fn rate(bytes_per_second: f64) -> String {
    if bytes_per_second.is_finite() { format!("{:.1} MB/s", bytes_per_second / 1e6) } else { "no limit".into() }
}

fn document(arguments: &Arguments, setting: &Setting, calibration: &Calibration, prediction: &Prediction) -> Value {
    let load = |load: &Load| {
        let resource = load.resource.name();
        json!({ "resource": resource, "seconds": load.seconds, "busy": load.busy, "clients": load.clients })
    };
    let loads = |all: &[Load; 5]| all.iter().map(load).collect::<Vec<_>>();
    let full = |all: &[Load; 5]| {
        first_full(all).map(|(resource, clients)| json!({ "resource": resource.name(), "clients": clients }))
    };
    let Prediction { serial, serial_loads, stream } = prediction;
    let stream = stream.as_ref().map(|stream| {
        json!({
            "seconds": stream.seconds, "bytes_per_second": stream.bytes_per_second,
            "limit": stream.limit.map(|resource| resource.name()),
            "loads": loads(&stream.loads), "first_full": full(&stream.loads),
        })
    });
    json!({
        "code": arguments.code, "coding": arguments.coding, "record_bytes": setting.record_bytes,
        "way": setting.way, "stores": setting.stores, "paper": arguments.paper,
        "constants": { "machine": calibration.machine, "date": calibration.date },
        "serial": {
            "steps": times(serial), "client_overhead_seconds": serial.client_overhead(), "seconds": serial.total(),
            "bytes_per_second": setting.record() / serial.total(),
            "loads": loads(serial_loads), "first_full": full(serial_loads),
        },
        "stream": stream,
    })
}
