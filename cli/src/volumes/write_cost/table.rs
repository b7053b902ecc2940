//! The result as tables for a terminal.

use crate::failure::Outcome;
use crate::show;
use plan::cost::Measurement;
use plan::cost::measured::Point;

/// Microseconds of a record and percent of the steps, a line for each size.
pub fn print(result: &Measurement) -> Outcome {
    show::text(format_args!("{}; {} stores on this machine, over loopback\n", result.machine, result.stores))?;
    let mut last = None;
    for point in &result.points {
        let head = (&point.code, point.coding);
        if last != Some(head) {
            show::text(format_args!("{}, coded by the {}: microseconds a record", point.code, point.coding))?;
            show::text("   record     CT     MT     DT     MP     PC     DD     SP     sum    wall  sum/wall  spread")?;
            last = Some(head);
        }
        show::text(times(point))?;
    }
    show::text("\npercent of the steps")?;
    show::text("   record        code    CO    MP    PC    DD    SP  goes into")?;
    for point in &result.points {
        show::text(shares(point))?;
    }
    show::text("\nCT has the kernel's part of the calls; docs/cost-model.md says what the steps are.")
}

fn times(point: &Point) -> String {
    let steps = point.steps();
    let each: Vec<String> = steps.as_array().iter().map(|time| format!("{:>6.0}", time * 1e6)).collect();
    let (sum, wall) = (steps.total(), point.wall());
    format!(
        "{:>9} {} {:>7.0} {:>7.0} {:>7.1} % {:>5.1} %",
        show::bytes(point.record_bytes),
        each.join(" "),
        sum * 1e6,
        wall * 1e6,
        100.0 * sum / wall.max(1e-9),
        100.0 * point.spread()
    )
}

fn shares(point: &Point) -> String {
    let each: Vec<String> = point.steps().shares().iter().map(|share| format!("{:>5.1}", share * 100.0)).collect();
    let way = match point.way {
        plan::cost::Way::Inline => "the metadata",
        plan::cost::Way::Stripe => "a stripe",
    };
    format!("{:>9} {:>11} {}  {way}", show::bytes(point.record_bytes), point.code, each.join(" "))
}
