//! The result as one page that needs no other file.

use super::chart::{NAMES, beside, five, percent, time};
use archive::report::charts::escape;
use plan::cost::Way;
use plan::cost::measured::{Measurement, Network, Point};
use plan::words::size;

const STYLES: [&str; 2] = [include_str!("../page.css"), include_str!("page.css")];

/// The page.
pub fn html(result: &Measurement) -> String {
    let legend: String =
        NAMES.iter().map(|(class, name)| format!("<li><i class=\"{class}\"></i>{name}</li>")).collect();
    let networks: Vec<String> = result.networks.iter().map(words).collect();
    let networks = if networks.is_empty() { "loopback".into() } else { networks.join("<br>") };
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\"><title>Weft: what a write costs</title>\n\
         <style>\n{}</style></head>\n<body><main><h1>Weft: what a write costs</h1>\n<dl>\
         <dt>Measured</dt><dd>{}, weft {}</dd><dt>Machine</dt><dd>{}; {} stores, a metadata server and a mount are \
         processes on it</dd><dt>Networks</dt><dd>{networks}</dd>\
         <dt>Figures</dt><dd>Records are written one after the other, each synced. Means of all rounds. CO is what \
         the client's process, the kernel's part of the calls and the metadata take.</dd></dl>\n\
         <ul class=\"legend\">{legend}</ul>\n{}{}{}</main></body></html>\n",
        STYLES.concat(),
        escape(&result.date),
        escape(&result.program),
        escape(&result.machine),
        result.stores,
        sections(result),
        super::streams::section(result),
        study(result)
    )
}

/// What a network is, and whether it could be had.
fn words(network: &Network) -> String {
    let carried = format!("a plain TCP connection carries {:.2} Gbit/s", network.reached_bits_per_second / 1e9);
    let name = escape(&network.name);
    match (network.bits_per_second, network.reachable) {
        (None, _) => format!("<b>{name}</b>: no limit; {carried}"),
        (_, true) => {
            format!("<b>{name}</b>: each link is limited, with bursts of {} B; {carried}", network.burst_bytes)
        }
        (_, false) => format!(
            "<span class=\"warning\"><b>{name}</b>: not reachable on this machine, nothing is measured; \
             {carried}</span>"
        ),
    }
}

/// Points of the same network, code and side that codes.
fn sections(result: &Measurement) -> String {
    let mut groups: Vec<Vec<&Point>> = Vec::new();
    for point in &result.points {
        let same = |group: &Vec<&Point>| group[0].is_beside(point);
        match groups.last_mut().filter(|group| same(group)) {
            Some(group) => group.push(point),
            None => groups.push(vec![point]),
        }
    }
    groups.iter().map(|group| section(result, group)).collect()
}

fn section(result: &Measurement, points: &[&Point]) -> String {
    let first = points[0];
    let net = result.network(first).map_or("loopback", |network| &network.name);
    let title = match first.embedded {
        true => format!("On directories, without servers, {}", first.code),
        false => {
            let stores = first.stores.map_or_else(String::new, |stores| format!(", {stores} stores"));
            format!("Network {net}{stores}, {}, coded by the {}", first.code, first.coding)
        }
    };
    let rows: String = points.iter().map(|point| row(point)).collect();
    format!(
        "<section><h2>{}</h2>\n<div class=\"charts\">\n{}\n{}\n</div>\n\
         <details><summary>Numbers</summary><div class=\"scroll\"><table><tr><th>record</th><th>goes into</th>\
         <th>CT us</th><th>MT us</th><th>DT us</th><th>MP us</th><th>PC us</th><th>DD us</th><th>SP us</th>\
         <th>sum us</th><th>waited us</th><th>spread</th><th>CO %</th><th>MP %</th><th>PC %</th><th>DD %</th>\
         <th>SP %</th></tr>\n{rows}</table></div></details></section>\n",
        escape(&title),
        percent("Percent of a record's time", points),
        time("Microseconds a record", points)
    )
}

fn row(point: &Point) -> String {
    let way = match point.way {
        Way::Inline => "the metadata",
        Way::Stripe => "a stripe",
    };
    let total: f64 = five(point).iter().sum();
    let times = point.steps().as_array().into_iter().chain([total, point.wall()]);
    let times: String = times.map(|time| format!("<td>{:.1}</td>", time * 1e6)).collect();
    let shares: String = point.steps().shares().iter().map(|share| format!("<td>{:.1}</td>", share * 100.0)).collect();
    format!(
        "<tr><th>{}</th><td>{way}</td>{times}<td>{:.1} %</td>{shares}</tr>\n",
        size(point.record_bytes),
        point.spread() * 100.0
    )
}

fn study(result: &Measurement) -> String {
    format!(
        "<section><h2>Beside the study</h2><p class=\"how\">The write-cost analysis of ExSTorus-FS: the shares that \
         its text names; its tables are not in the text. Each is the highest that it names for a network, not \
         always of the same record size, so they need not add up. Ours are the highest of the record sizes up to \
         128 KiB. The study had a machine for each server: compare how the shares change with the network.</p>\n\
         <div class=\"charts one\">\n{}\n</div></section>\n",
        beside(result)
    )
}
