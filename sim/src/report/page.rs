//! The report as one page that needs no other file.

use super::Report;
use super::chart::{bars, escape, lines};
use super::terminal::{duration, part, rate, text};
use plan::words::bytes;

/// The style of all pages of the simulator.
pub const STYLE: &str = include_str!("page.css");

/// The page.
pub fn html(report: &Report) -> String {
    let mut charts = vec![used(report)];
    if let Some(seen) = &report.torus {
        let of = |hops: fn(&crate::hops::PolicyHops) -> f64| {
            let bar = |it: &crate::hops::PolicyHops| (it.name(), hops(it), format!("{:.2}", hops(it)));
            seen.policies.iter().map(bar).collect::<Vec<_>>()
        };
        charts.push(bars("Mean hops of a write, from the Master to a store", &of(|it| it.writes)));
        charts.push(bars("Mean hops of a repair, from a source to the new store", &of(|it| it.repairs)));
    }
    if !report.growth.is_empty() {
        let moved = report.growth.iter().flat_map(|step| {
            [
                (step.what.clone(), step.bytes as f64, bytes(step.bytes)),
                ("least possible".into(), step.least_bytes as f64, bytes(step.least_bytes)),
            ]
        });
        charts.push(bars("Moved by rebalancing", &moved.collect::<Vec<_>>()));
    }
    if let Some(seen) = &report.writes {
        let span = report.config.workload.as_ref().map_or_else(String::new, |work| duration(work.seconds));
        let series = ("written and read".to_owned(), seen.bandwidth.clone());
        charts.push(lines("Bandwidth of all clients", &[series], &span, rate));
    }
    if let Some(seen) = &report.years {
        let span = report.config.failures.as_ref().map_or(0, |failures| failures.years);
        let level = |level: &crate::years::Level| {
            (format!("{} lost", level.lost), level.most.iter().map(|&most| most as f64).collect())
        };
        let series: Vec<(String, Vec<f64>)> = seen.exposure.iter().map(level).collect();
        let title = "Most sets at once that lack chunks, of all runs";
        charts.push(lines(title, &series, &plan::words::count(span as usize, "year"), |value| format!("{value:.0}")));
        let loss = &seen.loss_per_year;
        let chances = [
            ("simulated".to_owned(), loss.part, part(loss.part)),
            ("not above (95 %)".into(), loss.high, part(loss.high)),
            ("Markov chain".into(), seen.markov.loss_per_year, part(seen.markov.loss_per_year)),
        ];
        charts.push(bars("Chance of a loss in a year", &chances));
    }
    let config = escape(&format!("{:#}", serde_json::to_value(&report.config).unwrap_or_default()));
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\"><title>Weft: simulation</title>\n\
         <style>\n{STYLE}</style></head>\n\
         <body><main><h1>Weft: a simulated cluster</h1>\n<p class=\"how\">Placement, order and \
         destinations of repairs and rebalancing are decided by the program itself. Speeds, failures \
         and clients are modelled: nothing here was measured.</p>\n<pre>{}</pre>\n<div class=\"charts\">\n{}\n</div>\n\
         <details><summary>What was simulated</summary><pre>{config}</pre></details></main></body></html>\n",
        escape(&text(report)),
        charts.join("\n")
    )
}

fn used(report: &Report) -> String {
    let most = report.grown.as_ref().unwrap_or(&report.filled).used[2];
    let parts = report.used_parts.len().max(1) as f64;
    let bar = |(at, &stores): (usize, &u64)| {
        let from = [at, at + 1].map(|at| 100.0 * most * at as f64 / parts);
        (format!("{:.1} to {:.1} %", from[0], from[1]), stores as f64, stores.to_string())
    };
    bars("Stores by how full they are", &report.used_parts.iter().enumerate().map(bar).collect::<Vec<_>>())
}
