//! What the stores of a served volume tell of themselves, in words and for JSON.

use crate::failure::Outcome;
use crate::show;
use cluster::StoreAddress;
use cluster::store::Seen;
use fs::{Status, TargetStatus};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A line of what is on a target and how busy it is.
pub fn print_load(target: &TargetStatus) -> Outcome {
    let score = target.score.map_or_else(String::new, |score| format!(", score {score:.3}"));
    let load = target.load.map_or_else(
        || "load not known".into(),
        |load| {
            let access = match load.service > 0.0 {
                true => format!(", {:.1} ms a write", 1e3 * load.service),
                false => String::new(),
            };
            format!(
                "{:.0} reads and writes/s{access}, {:.1} waiting, {:.0} % idle, temperature {:.0}",
                load.accesses_per_second,
                load.queue,
                100.0 * load.idle,
                load.temperature
            )
        },
    );
    show::text(format_args!("              {}, {load}{score}", show::bytes(target.bytes)))
}

/// A line for each store.
pub fn print(status: &Status, stores: &BTreeMap<String, Seen>) -> Outcome {
    for (store, seen) in stores {
        let load = match (&seen.silent, &seen.load) {
            (Some(why), _) => format!("SILENT for {}: {why}", show::time(seen.when.elapsed())),
            (None, None) => "was started a moment ago".into(),
            (None, Some(load)) => format!(
                "{:3.0} % idle, {}/s, {:.0} reads and writes/s, {:.1} waiting, {}",
                100.0 * load.processor_idle,
                show::bytes(load.network_bytes_per_second as u64),
                load.all_accesses() as f64 / load.seconds,
                seen.queues.iter().sum::<f64>(),
                show::count(seen.report.connections as usize, "connection"),
            ),
        };
        let coded = match seen.work.coded_stripes {
            0 => String::new(),
            stripes => {
                let stripes = show::count(stripes as usize, "stripe");
                format!(", coded {stripes} with {} as Master", show::bytes(seen.work.coded_bytes))
            }
        };
        show::text(format_args!("  store {store}  {} in chunks, {load}{coded}", show::bytes(bytes_on(status, store))))?;
    }
    Ok(())
}

/// The bytes of chunks on a store.
fn bytes_on(status: &Status, store: &str) -> u64 {
    let is_there = |target: &&TargetStatus| {
        StoreAddress::of(&target.path).is_some_and(|address| address.is_ok_and(|address| address.server == store))
    };
    status.targets.iter().filter(is_there).map(|target| target.bytes).sum()
}

/// The same for JSON.
pub fn document(status: &Status, stores: &BTreeMap<String, Seen>) -> Value {
    let each = stores.iter().map(|(store, seen)| {
        let report = &seen.report;
        let accesses = |number: usize| seen.load.as_ref().and_then(|load| load.accesses.get(number).copied());
        let targets = report.targets.iter().enumerate().map(|(number, target)| {
            json!({
                "name": target.name,
                "total": target.space.map(|space| space.0),
                "free": target.space.map(|space| space.1),
                "accesses": accesses(number),
                "queued": target.queued,
                "queue": seen.queues.get(number),
            })
        });
        json!({
            "store": store,
            "bytes": bytes_on(status, store),
            "coded_stripes": seen.work.coded_stripes,
            "coded_bytes": seen.work.coded_bytes,
            "seconds": seen.load.as_ref().map(|load| load.seconds),
            "silent": seen.silent,
            "seconds_ago": seen.when.elapsed().as_secs_f64(),
            "uptime_seconds": report.uptime.as_secs_f64(),
            "processor_idle": seen.load.as_ref().map(|load| load.processor_idle),
            "network_bytes_per_second": seen.load.as_ref().map(|load| load.network_bytes_per_second),
            "connections": report.connections,
            "request_bytes": report.request_bytes,
            "targets": targets.collect::<Vec<_>>(),
        })
    });
    each.collect()
}
