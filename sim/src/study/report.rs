//! The comparison as text and as a page.

use super::setting::Policy;
use super::{Comparison, Outcome, Study};
use crate::report::{STYLE, bars, escape, lines};

fn load(unbalanced: bool) -> &'static str {
    if unbalanced { "unbalanced" } else { "balanced" }
}

/// For a terminal.
pub fn text(study: &Study) -> String {
    let mut all = vec![format!(
        "modelled: {} runs each; disks {:.0} MB/s, speeds spread by {} for {} s, a writer takes {}",
        study.seeds,
        study.setting.disk_per_second / 1e6,
        study.setting.speed_spread,
        study.setting.speed_seconds,
        study.setting.writer_takes
    )];
    for comparison in &study.comparisons {
        all.push(format!(
            "\n{} servers, {}{:<12}MB/s   over round-robin   over random   uneven",
            comparison.servers,
            load(comparison.unbalanced),
            ""
        ));
        all.extend(comparison.outcomes.iter().map(line));
        if comparison.servers == 32 {
            let [turns, chance] = study.paper[usize::from(comparison.unbalanced)];
            all.push(format!("  the paper's adaptive{:>31}{:>14}", percent(turns), percent(chance)));
        }
    }
    all.join("\n")
}

fn percent(part: f64) -> String {
    format!("{:+.1} %", 100.0 * part)
}

fn line(outcome: &Outcome) -> String {
    format!(
        "  {:<16}{:>17.0}{:>18}{:>14}{:>8.1} %",
        outcome.policy.name(),
        outcome.bytes_per_second / 1e6,
        percent(outcome.over_round_robin),
        percent(outcome.over_random),
        100.0 * outcome.uneven
    )
}

/// A line for each number of servers, load and policy.
pub fn csv(study: &Study) -> String {
    let mut text = "servers,load,policy,bytes_per_second,least,most,over_round_robin,over_random,uneven\n".to_owned();
    for comparison in &study.comparisons {
        for outcome in &comparison.outcomes {
            let Outcome { policy, bytes_per_second, range: [least, most], .. } = outcome;
            let Outcome { over_round_robin, over_random, uneven, .. } = outcome;
            let (servers, load, policy) = (comparison.servers, load(comparison.unbalanced), policy.name());
            text.push_str(&format!("{servers},{load},{policy},{bytes_per_second:.0},{least:.0},{most:.0},"));
            text.push_str(&format!("{over_round_robin:.4},{over_random:.4},{uneven:.4}\n"));
        }
    }
    text
}

/// As one page that needs no other file.
pub fn html(study: &Study) -> String {
    let mut charts = Vec::new();
    for unbalanced in [false, true] {
        let these: Vec<&Comparison> = study.comparisons.iter().filter(|it| it.unbalanced == unbalanced).collect();
        for comparison in &these {
            let title = format!("{} servers, {}: MB/s", comparison.servers, load(unbalanced));
            let bar = |outcome: &Outcome| {
                let rate = outcome.bytes_per_second / 1e6;
                let over = percent(outcome.over_round_robin);
                (outcome.policy.name().to_owned(), rate, format!("{rate:.0} ({over})"))
            };
            charts.push(bars(&title, &comparison.outcomes.iter().map(bar).collect::<Vec<_>>()));
        }
        if let Some(comparison) = these.iter().find(|it| it.servers == 32) {
            let shown = [Policy::Random, Policy::RoundRobin, Policy::Adaptive];
            let blocks = |outcome: &Outcome| {
                let values = outcome.space.iter().map(|space| *space as f64 / study.setting.block_bytes as f64);
                (outcome.policy.name().to_owned(), values.collect())
            };
            let series: Vec<(String, Vec<f64>)> =
                comparison.outcomes.iter().filter(|it| shown.contains(&it.policy)).map(blocks).collect();
            let title = format!("32 servers, {}: blocks on each server", load(unbalanced));
            charts.push(lines(&title, &series, "server 31", |value| format!("{value:.0}")));
        }
    }
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"color-scheme\" content=\"light dark\"><title>Weft: placement, simulated</title>\n\
         <style>\n{STYLE}</style></head>\n<body><main><h1>Weft: placement policies, simulated</h1>\n\
         <p class=\"how\">A model of the experiment of the ECFS paper (figures 8 to 11), not a measurement. What it \
         assumes decides by how much policies differ.</p>\n<pre>{}</pre>\n<div class=\"charts\">\n{}\n</div>\n\
         </main></body></html>\n",
        escape(&text(study)),
        charts.join("\n")
    )
}
