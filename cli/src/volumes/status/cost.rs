//! Where the time of writes went, in words and for JSON.

use crate::failure::Outcome;
use crate::show;
use serde_json::{Value, json};
use std::time::Duration;
use volume::steps::{StepTotals, WriteStep};

/// A line for each of the five steps.
pub fn print(cost: &StepTotals) -> Outcome {
    if cost.writes == 0 && cost.of(WriteStep::Parity).count == 0 {
        return show::text("  nothing was written since it was opened");
    }
    let time = |step| show::time(cost.of(step).time);
    show::text(format_args!(
        "  {} of {} since it was opened; where their time went:",
        show::count(cost.writes as usize, "write"),
        show::bytes(cost.bytes)
    ))?;
    let share = |time: Duration| 100.0 * time.as_secs_f64() / cost.total().as_secs_f64().max(1e-9);
    let line = |code: &str, what: &str, time: Duration, more: &str| {
        show::text(format_args!("    {code}  {what:18} {:>9} {:5.1} %{more}", show::time(time), share(time)))
    };
    let parts = format!(
        "   client {}, metadata {}, transfer {}",
        time(WriteStep::Client),
        time(WriteStep::Metadata),
        time(WriteStep::Transfer)
    );
    line("CO", "client overhead", cost.client_overhead(), &parts)?;
    line("MP", "master process", cost.of(WriteStep::Master).time, "")?;
    line("PC", "parity calculation", cost.of(WriteStep::Parity).time, "")?;
    line("DD", "data distribution", cost.of(WriteStep::Distribution).time, "")?;
    line("SP", "slave process", cost.of(WriteStep::Slave).time, "")
}

/// The same for JSON.
pub fn document(cost: &StepTotals) -> Value {
    let step = |&step: &WriteStep| {
        let taken = cost.of(step);
        json!({ "step": step.name(), "code": step.code(), "count": taken.count, "seconds": taken.time.as_secs_f64() })
    };
    json!({
        "writes": cost.writes,
        "bytes": cost.bytes,
        "client_overhead_seconds": cost.client_overhead().as_secs_f64(),
        "steps": WriteStep::ALL.iter().map(step).collect::<Vec<_>>(),
    })
}
