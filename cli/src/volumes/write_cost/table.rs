//! The result as tables for a terminal.

use super::stream_table;
use crate::failure::Outcome;
use crate::show;
use bench::write_cost::published;
use plan::cost::Measurement;
use plan::cost::measured::{Network, Point};

/// Microseconds of a record and percent of the steps, a line for each size.
pub fn print(result: &Measurement) -> Outcome {
    let over = if result.networks.is_empty() { "over loopback" } else { "each in a network namespace" };
    show::text(format_args!("{}; {} stores on this machine, {over}", result.machine, result.stores))?;
    result.networks.iter().try_for_each(|network| show::text(words(network)))?;
    if result.points.is_empty() && result.streams.is_empty() {
        return show::text("nothing was measured");
    }
    if result.points.is_empty() {
        return stream_table::print(result);
    }
    show::text("")?;
    let mut last: Option<&Point> = None;
    for point in &result.points {
        if !last.is_some_and(|last| last.is_beside(point)) {
            show::text(format_args!("{}: microseconds a record", setting(point)))?;
            show::text("   record     CT     MT     DT     MP     PC     DD     SP     sum    wall  sum/wall  spread")?;
            last = Some(point);
        }
        show::text(times(point))?;
    }
    show::text("\npercent of the steps")?;
    show::text("   record    CO    MP    PC    DD    SP  goes into")?;
    for point in &result.points {
        show::text(shares(point))?;
    }
    study(result)?;
    show::text(sums(&result.points))?;
    show::text("CT has the kernel's part of the calls; docs/cost-model.md says what the steps are.")?;
    stream_table::print(result)
}

/// The code, the number of stores, who codes, and the network.
fn setting(point: &Point) -> String {
    let stores = point.stores.map_or_else(String::new, |stores| format!(", {stores} stores"));
    let who = if point.embedded { "on directories".into() } else { format!("coded by the {}", point.coding) };
    let net = point.net.as_ref().map_or_else(String::new, |net| format!(", network {net}"));
    format!("{}{stores}, {who}{net}", point.code)
}

/// What the study published of these networks, beside the same of each setting here: the highest
/// shares of CO, PC and DD, and how many times longer the longest record takes than the shortest.
fn study(result: &Measurement) -> Outcome {
    const LONGEST: u64 = 128 << 10;
    let mut groups: Vec<Vec<&Point>> = Vec::new();
    for point in result.points.iter().filter(|point| point.record_bytes <= LONGEST) {
        match groups.last_mut().filter(|group| group[0].is_beside(point)) {
            Some(group) => group.push(point),
            None => groups.push(vec![point]),
        }
    }
    for group in groups {
        let bits = result.network(group[0]).and_then(|network| network.bits_per_second);
        let Some(paper) = bits.and_then(published) else { continue };
        let highest = |step: usize| 100.0 * group.iter().map(|point| point.steps().shares()[step]).fold(0.0, f64::max);
        let [co, pc, dd] = paper.shares;
        show::text(format_args!(
            "\nbeside the study, {}: at most CO {:.1} % (published {co}), PC {:.1} % ({pc}), DD {:.1} % ({dd})",
            setting(group[0]),
            highest(0),
            highest(2),
            highest(3)
        ))?;
        if let (Some(first), Some(last)) = (group.first(), group.last())
            && first.record_bytes < last.record_bytes
            && !paper.growth.is_empty()
        {
            let times = |step: usize| {
                let seconds = |point: &Point| point.steps().shares()[step] * point.steps().total();
                let times = seconds(last) / seconds(first);
                if times.is_finite() && times < 1000.0 { format!("{times:.1}") } else { "-".into() }
            };
            show::text(format_args!(
                "  from {} to {} times longer: CO {}, MP {}, PC {}, DD {}, SP {} (published from 4 to 128 KiB: {})",
                show::bytes(first.record_bytes),
                show::bytes(last.record_bytes),
                times(0),
                times(1),
                times(2),
                times(3),
                times(4),
                paper.growth
            ))?;
        }
    }
    Ok(())
}

/// How far the sum of the steps may be from what the program waited.
const MISSED: f64 = 0.03;

/// Where the sum of the steps is not what the program waited.
fn sums(points: &[Point]) -> String {
    let off = |point: &&Point| (point.steps().total() / point.wall().max(1e-9) - 1.0).abs() > MISSED;
    let missed: Vec<&Point> = points.iter().filter(off).collect();
    let worst = points.iter().map(|point| (point.steps().total() / point.wall().max(1e-9) - 1.0).abs());
    let worst = 100.0 * worst.fold(0.0, f64::max);
    let within = points.len() - missed.len();
    let mut text = format!(
        "\nthe sum of the steps is within 3 % of the time that passed at {within} of {}, {worst:.1} % off at worst",
        show::count(points.len(), "point")
    );
    for point in missed {
        let sum = 100.0 * point.steps().total() / point.wall().max(1e-9);
        text += &format!("\n  {}, {}: {sum:.1} %", show::bytes(point.record_bytes), setting(point));
    }
    text
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
    format!("{:>9} {}  {way}; {}", show::bytes(point.record_bytes), each.join(" "), setting(point))
}
