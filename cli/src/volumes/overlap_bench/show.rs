//! The table, and the files.

use super::engine::Way;
use super::model::{self, CodingRates, PUBLISHED_GAIN, PUBLISHED_NODES, PUBLISHED_RATE};
use super::{Arguments, Reached};
use crate::failure::Outcome;
use crate::show;
use crate::volumes::bench_lab;
use crate::volumes::bench_lab::{median, spread};
use bench::paper::table::{Table, page};
use serde_json::json;

/// Numbers of nodes that are modelled.
const MODELLED: [usize; 3] = [24, 32, 64];

fn measured(all: &[Reached], gain: &dyn Fn(&Reached) -> Option<f64>) -> Table {
    let most = all.iter().map(|it| median(&it.rates)).fold(f64::MIN_POSITIVE, f64::max);
    let row = |it: &Reached| {
        let cells = vec![
            format!("{} nodes, {}", it.nodes, it.way.name()),
            format!("{:.1}", median(&it.rates)),
            format!("{:.0} %", spread(&it.rates)),
            gain(it).map_or_else(|| "-".into(), |gain| format!("{gain:+.1} %")),
        ];
        (cells, vec![(if it.way == Way::InFlight { "own" } else { "second" }, median(&it.rates) / most)])
    };
    Table {
        title: "Write bandwidth by nodes".into(),
        how: format!(
            "In the paper, sending while parity is made gains {:+.1} % at {PUBLISHED_NODES} nodes.",
            100.0 * PUBLISHED_GAIN
        ),
        head: vec!["nodes, way", "MB/s", "spread", "beside conventional"],
        rows: all.iter().map(row).collect(),
    }
}

fn beyond(modelled: &[(usize, (f64, f64))], sends: f64, coding: f64) -> Table {
    let most = modelled.iter().map(|it| it.1.1).fold(f64::MIN_POSITIVE, f64::max);
    let row = |&(nodes, (conventional, overlapped)): &(usize, (f64, f64))| {
        let cells = vec![
            nodes.to_string(),
            format!("{conventional:.1}"),
            format!("{overlapped:.1}"),
            format!("{:+.1} %", 100.0 * (overlapped / conventional - 1.0)),
        ];
        (cells, vec![("second", overlapped / most)])
    };
    Table {
        title: "More nodes, modelled".into(),
        how: format!("Nodes with processors of their own that send {sends:.1} MB/s each and code {coding:.0} MB/s."),
        head: vec!["nodes", "conventional MB/s", "overlapped MB/s", "gain"],
        rows: modelled.iter().map(row).collect(),
    }
}

pub fn report(arguments: &Arguments, all: &[Reached], rates: CodingRates, force: bool, as_json: bool) -> Outcome {
    let conventional = |nodes: usize| {
        let same = all.iter().find(|it| it.nodes == nodes && it.way == Way::Conventional);
        same.map(|it| median(&it.rates)).filter(|rate| *rate > 0.0)
    };
    let gain = |it: &Reached| {
        (conventional(it.nodes).filter(|_| it.way != Way::Conventional))
            .map(|base| 100.0 * (median(&it.rates) / base - 1.0))
    };
    let CodingRates { whole: coding, by_region } = rates;
    let sends = PUBLISHED_RATE / PUBLISHED_NODES as f64;
    let modelled = MODELLED.map(|nodes| (nodes, model::nodes(nodes, sends, coding)));
    let network = arguments.net.map_or_else(|| "loopback".into(), |speed| speed.words());
    let document = json!({
        "kind": "weft-overlap", "version": 1, "date": bench_lab::now(), "machine": bench_lab::machine(),
        "program": env!("CARGO_PKG_VERSION"), "quick": arguments.common.quick, "code": arguments.code,
        "block_bytes": arguments.block_bytes, "stripes_in_flight": arguments.in_flight, "network": network,
        "coding_mb_per_second_of_a_core": coding, "coding_by_region_mb_per_second_of_a_core": by_region,
        "published": {
            "nodes": PUBLISHED_NODES, "mb_per_second": PUBLISHED_RATE, "gain_percent": 100.0 * PUBLISHED_GAIN,
            "coding_mb_per_second_of_a_node_computed": model::published_coding(),
        },
        "results": all.iter().map(|it| json!({
            "nodes": it.nodes, "way": it.way.name(), "mb_per_second": median(&it.rates), "rounds": it.rates,
            "spread_percent": spread(&it.rates), "gain_percent": gain(it),
        })).collect::<Vec<_>>(),
        "modelled": modelled.map(|(nodes, (conventional, overlapped))| json!({
            "nodes": nodes, "conventional_mb_per_second": conventional, "overlapped_mb_per_second": overlapped,
            "gain_percent": 100.0 * (overlapped / conventional - 1.0),
        })),
    });
    let line = |it: &Reached| {
        let gain = gain(it).map_or_else(String::new, |gain| format!("{gain:.1}"));
        format!("{},{},{:.1},{:.1},{gain}", it.nodes, it.way.name(), median(&it.rates), spread(&it.rates))
    };
    let head = "nodes,way,mb_per_second,spread_percent,gain_percent";
    let page = || {
        let about = format!(
            "{}, blocks of {}, {} stripes in flight, {network}; {}; all nodes share its processors",
            arguments.code,
            show::bytes(arguments.block_bytes as u64),
            arguments.in_flight,
            bench_lab::machine()
        );
        page("Weft: coding beside sending", &about, &[measured(all, &gain), beyond(&modelled, sends, coding)])
    };
    arguments.common.write(&document, head, all, line, page, force)?;
    if as_json {
        return show::json(&document);
    }
    show::text(format_args!(
        "{}, blocks of {}, {} stripes in flight, {network}; {}, {}",
        arguments.code,
        show::bytes(arguments.block_bytes as u64),
        arguments.in_flight,
        bench_lab::machine(),
        show::count(all.first().map_or(0, |it| it.rates.len()), "round")
    ))?;
    show::text("nodes  way              MB/s   spread   beside conventional   published (32 nodes)")?;
    for it in all {
        let gain = gain(it).map_or_else(|| "-".into(), |gain| format!("{gain:+.1} %"));
        let published = match it.way {
            Way::Conventional => "-".into(),
            Way::Partition => format!("{:+.1} %", 100.0 * PUBLISHED_GAIN),
            Way::InFlight => "not in the paper".into(),
        };
        show::text(format_args!(
            "{:5}  {:12} {:9.1}  {:4.0} %   {gain:>19}   {published}",
            it.nodes,
            it.way.name(),
            median(&it.rates),
            spread(&it.rates),
        ))?;
    }
    show::text(format_args!(
        "\nMODELLED, not measured: nodes with processors of their own that send {sends:.1} MB/s each, as the paper's \
         did, and code {coding:.0} MB/s, as one core here does"
    ))?;
    show::text("nodes  conventional MB/s  overlapped MB/s   gain")?;
    for (nodes, (conventional, overlapped)) in modelled {
        let gain = 100.0 * (overlapped / conventional - 1.0);
        show::text(format_args!("{nodes:5}  {conventional:17.1}  {overlapped:15.1}  {gain:+.1} %"))?;
    }
    show::text(format_args!(
        "\nWhy it differs: overlap hides at most the time of coding. The published +{:.1} % means that coding a byte \
         took {:.2} of the time of sending it: {:.0} MB/s a node, if a node sent {sends:.1} MB/s. A core here codes \
         {coding:.0} MB/s in whole stripes, which is {:.3} of that time, and {by_region:.0} MB/s region by region. All \
         nodes share this machine's processors, which sending takes, too.",
        100.0 * PUBLISHED_GAIN,
        PUBLISHED_GAIN,
        model::published_coding(),
        sends / coding,
    ))?;
    arguments.common.end()
}
