//! The result as tables for a terminal.

use crate::failure::Outcome;
use crate::show;
use plan::cost::Measurement;
use plan::cost::measured::{Network, Point};

/// Microseconds of a record and percent of the steps, a line for each size.
pub fn print(result: &Measurement) -> Outcome {
    let over = if result.networks.is_empty() { "over loopback" } else { "each in a network namespace" };
    show::text(format_args!("{}; {} stores on this machine, {over}", result.machine, result.stores))?;
    result.networks.iter().try_for_each(|network| show::text(words(network)))?;
    show::text("")?;
    let mut last = None;
    for point in &result.points {
        let head = (&point.net, &point.code, point.coding);
        if last != Some(head) {
            let net = point.net.as_ref().map_or_else(String::new, |net| format!("network {net}, "));
            show::text(format_args!("{net}{}, coded by the {}: microseconds a record", point.code, point.coding))?;
            show::text("   record     CT     MT     DT     MP     PC     DD     SP     sum    wall  sum/wall  spread")?;
            last = Some(head);
        }
        show::text(times(point))?;
    }
    show::text("\npercent of the steps")?;
    show::text("   record        code    CO    MP    PC    DD    SP  goes into")?;
    if result.points.is_empty() {
        return show::text("   nothing was measured");
    }
    for point in &result.points {
        show::text(shares(point))?;
    }
    show::text("\nCT has the kernel's part of the calls; docs/cost-model.md says what the steps are.")
}

/// What a network is, and whether it could be had.
fn words(network: &Network) -> String {
    let speed = |bits: f64| format!("{:.2} Gbit/s", bits / 1e9);
    let (plain, reached) = (speed(network.plain_bits_per_second), speed(network.reached_bits_per_second));
    match (network.bits_per_second, network.reachable) {
        (None, _) => format!("network {}: a plain TCP connection carries {plain}", network.name),
        (_, true) => format!(
            "network {}: each link is limited (tbf, bursts of {} bytes); a plain TCP connection carries {reached}",
            network.name, network.burst_bytes
        ),
        (_, false) => format!(
            "network {}: not reachable on this machine, nothing is measured: a plain TCP connection carries {reached}",
            network.name
        ),
    }
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
    let net = point.net.as_ref().map_or_else(String::new, |net| format!(", network {net}"));
    format!("{:>9} {:>11} {}  {way}{net}", show::bytes(point.record_bytes), point.code, each.join(" "))
}
