//! Repairs that go on, in words and for JSON.

use crate::failure::Outcome;
use crate::show;
use fs::{RepairProgress, Status};
use serde_json::{Value, json};

/// A line for each repair that goes on.
pub fn print(status: &Status) -> Outcome {
    let limit = status.repair_limit.map_or_else(String::new, |limit| format!(", limited to {}/s", show::bytes(limit)));
    for repair in &status.repairs {
        let left = repair.left.map_or_else(|| "end unknown".into(), |left| format!("about {} left", show::about(left)));
        let failed = if repair.sets_failed == 0 { String::new() } else { format!(", {} FAILED", repair.sets_failed) };
        show::text(format_args!(
            "  repairing chunk set {}: {} of {} done{failed}, {} of {} made, {}/s{limit}, {left}",
            repair.set,
            repair.sets_done,
            show::count(repair.sets, "chunk set"),
            show::bytes(repair.bytes_done),
            show::bytes(repair.bytes),
            show::bytes(repair.bytes_per_second()),
        ))?;
    }
    Ok(())
}

/// The same for JSON.
pub fn document(repairs: &[RepairProgress]) -> Value {
    let each = repairs.iter().map(|repair| {
        json!({
            "chunk_set": repair.set,
            "chunk_sets": repair.sets,
            "chunk_sets_done": repair.sets_done,
            "chunk_sets_failed": repair.sets_failed,
            "bytes": repair.bytes,
            "bytes_done": repair.bytes_done,
            "bytes_per_second": repair.bytes_per_second(),
            "seconds": repair.elapsed.as_secs_f64(),
            "seconds_left": repair.left.map(|left| left.as_secs_f64()),
        })
    });
    each.collect()
}
