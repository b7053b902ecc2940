//! The result as one page that needs no other file.

use super::result::{Measurement, Reached, Scenario};
use super::study::{WORDS, published};
use super::text::{lab, ratio_of, title};
use crate::chart::bars;
use crate::results::{Cell, Outcome, Role, Row};
use archive::report::charts::escape;
use plan::placement::PolicyName;

const STYLE: &str = include_str!("../page.css");

/// The page.
pub fn html(result: &Measurement) -> String {
    let quick = match result.quick {
        true => {
            "<p class=\"warning\">Little was written: the figures show that everything works, and nothing else.</p>"
        }
        false => "",
    };
    let sections: String = result.scenarios.iter().map(|scenario| section(result, scenario)).collect();
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\"><title>Weft: placement</title>\n\
         <style>\n{STYLE}</style></head>\n<body><main><h1>Weft: placement policies</h1>\n{quick}<dl>\
         <dt>Measured</dt><dd>{}, weft {}</dd><dt>Machine</dt><dd>{}; all servers and clients are processes on \
         it</dd><dt>Cluster</dt><dd>{}</dd><dt>Figures</dt><dd>Medians of rounds in which every policy has its turn, \
         in new clusters; the fine line in a bar is their range. {}</dd></dl>\n{sections}</main></body></html>\n",
        escape(&result.date),
        escape(&result.program),
        escape(&result.machine),
        escape(&lab(result)),
        escape(WORDS),
    )
}

fn section(result: &Measurement, scenario: &Scenario) -> String {
    let rows: String = scenario.policies.iter().map(|reached| row(scenario, reached)).collect();
    let paper = published(scenario.load);
    format!(
        "<section><h2>{}</h2>\n<div class=\"charts\">\n{}\n{}\n</div>\n<div class=\"scroll\"><table><tr><th>policy</th>\
         <th>MiB/s</th><th>spread</th><th>against round-robin</th><th>against random</th><th>least store</th>\
         <th>most store</th><th>sets a round</th><th>lack a chunk</th></tr>\n{rows}\
         <tr><th>the paper's adaptive</th><td></td><td></td><td>+{} %</td><td>+{} %</td><td></td><td></td><td></td>\
         <td></td></tr>\n</table></div></section>\n",
        escape(&title(result, scenario)),
        bars(&bandwidth(scenario)),
        bars(&space(scenario)),
        paper.over_round_robin,
        paper.over_random,
    )
}

fn row(scenario: &Scenario, reached: &Reached) -> String {
    let ratio = |other| ratio_of(scenario, reached, other);
    let ((least, most), (sets, lacking)) = (reached.evenness(), reached.sets());
    let own = if reached.policy == PolicyName::Adaptive { " class=\"own\"" } else { "" };
    format!(
        "<tr><th>{}</th><td{own}>{:.1}</td><td>{:.1} %</td><td>{}</td><td>{}</td><td>{:.1} %</td><td>{:.1} %</td>\
         <td>{sets:.0}</td><td>{lacking:.0}</td></tr>\n",
        reached.policy,
        reached.bandwidth().median,
        100.0 * reached.spread(),
        ratio(PolicyName::RoundRobin),
        ratio(PolicyName::Random),
        100.0 * least,
        100.0 * most
    )
}

fn chart(label: &str, cells: Vec<Cell>) -> Row {
    Row { label: label.into(), k: 0, m: 0, lost: vec![], cells, beside: vec![] }
}

fn cell(column: String, role: Role, outcome: Outcome) -> Cell {
    Cell {
        column,
        role,
        code: String::new(),
        block_bytes: 0,
        stripes: 0,
        iterations: 0,
        threads: 0,
        charted: true,
        outcome,
    }
}

/// The bandwidth of each policy.
fn bandwidth(scenario: &Scenario) -> Row {
    let cells = scenario.policies.iter().map(|reached| {
        let role = if reached.policy == PolicyName::Adaptive { Role::Own } else { Role::Peer };
        cell(reached.policy.to_string(), role, Outcome::Figure(reached.bandwidth()))
    });
    chart("MiB/s of all writers", cells.collect())
}

/// What each store got with adaptive placement, or with the first policy.
fn space(scenario: &Scenario) -> Row {
    let shown = scenario.of(PolicyName::Adaptive).or(scenario.policies.first());
    let stores = shown.map(Reached::stores).unwrap_or_default();
    let cells = stores.iter().enumerate().map(|(number, &bytes)| {
        let slowed = if number < scenario.slowed as usize { ", slowed" } else { "" };
        let figure = crate::results::Figure::of(vec![bytes as f64 / f64::from(1 << 20)]);
        cell(format!("store {}{slowed}", number + 1), Role::Own, Outcome::Figure(figure))
    });
    let policy = shown.map_or_else(String::new, |reached| reached.policy.to_string());
    chart(&format!("MiB on each store, {policy}"), cells.collect())
}
