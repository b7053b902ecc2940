//! What the stores of a served volume tell of themselves, in words and for JSON.

use crate::failure::Outcome;
use crate::show;
use cluster::store::Seen;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A line for each store.
pub fn print(stores: &BTreeMap<String, Seen>) -> Outcome {
    for (store, seen) in stores {
        let load = match (&seen.silent, &seen.load) {
            (Some(why), _) => format!("SILENT for {}: {why}", show::time(seen.when.elapsed())),
            (None, None) => "was started a moment ago".into(),
            (None, Some(load)) => format!(
                "{:3.0} % idle, {}/s, {} reads and writes in the last report, {} waiting, {}",
                100.0 * load.processor_idle,
                show::bytes(load.network_bytes_per_second as u64),
                load.all_accesses(),
                seen.report.targets.iter().map(|target| u64::from(target.queued)).sum::<u64>(),
                show::count(seen.report.connections as usize, "connection"),
            ),
        };
        show::text(format_args!("  store {store}  {load}"))?;
    }
    Ok(())
}

/// The same for JSON.
pub fn document(stores: &BTreeMap<String, Seen>) -> Value {
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
            })
        });
        json!({
            "store": store,
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
