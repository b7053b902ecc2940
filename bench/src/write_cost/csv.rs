//! A line for each network, code and size of records.

use plan::cost::Way;
use plan::cost::measured::{Measurement, Point};
use std::iter::once;

const HEAD: &str = "net,limit_bits_per_second,tcp_bits_per_second,reachable,code,coding,stores,record_bytes,goes_into,\
                    records,rounds,wall_us,spread_percent,sum_us,ct_us,mt_us,dt_us,mp_us,pc_us,dd_us,sp_us,\
                    co_percent,mp_percent,pc_percent,dd_percent,sp_percent";
/// Columns that a network which could not be had has no figures for.
const WITHOUT: usize = 22;

/// All figures. A network that could not be had is a line without any.
pub fn csv(result: &Measurement) -> String {
    let lines = result.points.iter().map(|point| line(result, point));
    let lacking = result.networks.iter().filter(|network| !network.reachable).map(|network| {
        let limit = bits(network.bits_per_second);
        format!("{},{limit},{:.0},no{}", network.name, network.reached_bits_per_second, ",".repeat(WITHOUT))
    });
    once(HEAD.to_owned()).chain(lines).chain(lacking).map(|line| line + "\n").collect()
}

fn bits(limit: Option<f64>) -> String {
    limit.map_or_else(String::new, |bits| format!("{bits:.0}"))
}

fn line(result: &Measurement, point: &Point) -> String {
    let network = result.network(point);
    let (limit, reached) = network.map_or_else(Default::default, |network| {
        (bits(network.bits_per_second), format!("{:.0}", network.reached_bits_per_second))
    });
    let steps = point.steps();
    let way = match point.way {
        Way::Inline => "metadata",
        Way::Stripe => "stripe",
    };
    let begin = format!(
        "{},{limit},{reached},yes,{},{},{},{},{way},{},{},{:.1},{:.1},{:.1}",
        point.net.as_deref().unwrap_or("loopback"),
        quoted(&point.code),
        if point.embedded { "directories".into() } else { point.coding.to_string() },
        point.stores(result),
        point.record_bytes,
        point.count,
        point.rounds.len(),
        point.wall() * 1e6,
        point.spread() * 100.0,
        steps.total() * 1e6,
    );
    let times = steps.as_array().map(|time| format!(",{:.1}", time * 1e6));
    let shares = steps.shares().map(|share| format!(",{:.2}", share * 100.0));
    once(begin).chain(times).chain(shares).collect()
}

/// Text that may have commas.
pub fn quoted(text: &str) -> String {
    if text.contains([',', '"']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}
