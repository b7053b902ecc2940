//! A line for each measurement.

use super::result::{Measurement, Took};
use std::iter::once;

const HEAD: &str = "what,from,to,method,code,kernel,objects,user_bytes,seconds,user_seconds,system_seconds,joules,\
                    basis,idle_joules,io_joules,coding_joules";

/// All of them.
pub fn csv(result: &Measurement) -> String {
    let copies = result.copies.iter().map(|copied| {
        let bytes = copied.objects * copied.object_bytes;
        (copied.pair, format!("copy|,,,{},{bytes}", copied.objects), copied.took)
    });
    let jobs = result.jobs.iter().flat_map(|job| {
        let how = format!("{},{},{},1,{}", job.method, job.code, job.kernel, result.bytes);
        let decode = job.decode.map(|took| (job.pair, format!("decode|{how}"), took));
        once((job.pair, format!("encode|{how}"), job.encode)).chain(decode)
    });
    let lines = copies.chain(jobs).map(|(pair, words, took)| {
        let (what, how) = words.split_once('|').unwrap_or_default();
        let pair = &result.pairs[pair];
        format!("{what},{},{},{how},{}\n", quoted(&pair.from), quoted(&pair.to), figures(&took))
    });
    once(format!("{HEAD}\n")).chain(lines).collect()
}

fn figures(took: &Took) -> String {
    let split = took
        .split
        .map_or_else(|| ",,".into(), |it| format!("{:.3},{:.3},{:.3}", it.idle_joules, it.io_joules, it.coding_joules));
    format!(
        "{:.4},{:.2},{:.2},{:.3},{},{split}",
        took.seconds,
        took.user_seconds,
        took.system_seconds,
        took.joules,
        took.basis.word()
    )
}

/// A path, whatever is in it.
fn quoted(path: &str) -> String {
    if path.contains([',', '"', '\n']) { format!("\"{}\"", path.replace('"', "\"\"")) } else { path.to_owned() }
}
