//! Threads that write without waiting: a line for each code and number of threads, and the part of
//! the page.

use super::chart::overlap;
use super::csv::quoted;
use super::study::published_loss;
use archive::report::charts::escape;
use plan::cost::measured::Measurement;
use plan::cost::streams::{PROCESSES, Stream};
use std::iter::once;

const STEPS: [&str; 7] = ["ct", "mt", "dt", "mp", "pc", "dd", "sp"];

/// All figures.
pub fn csv(result: &Measurement) -> String {
    let steps = STEPS.map(|step| format!("{step}_at_once")).join(",");
    let cores = PROCESSES.map(|process| format!("{process}_cores")).join(",");
    let head = format!(
        "net,code,kernel,coding,threads,record_bytes,bytes,rounds,bytes_per_second,spread_percent,loss_percent,\
         study_loss_percent,{cores},{steps},all_steps_at_once"
    );
    once(head).chain(result.streams.iter().map(|stream| line(result, stream))).map(|line| line + "\n").collect()
}

fn line(result: &Measurement, stream: &Stream) -> String {
    let own = stream.baseline(&result.streams).map_or_else(String::new, |none| format!("{:.2}", loss(stream, none)));
    let study = published_loss(stream).map_or_else(String::new, |loss| loss.to_string());
    let at_once = stream.at_once();
    format!(
        "{},{},{},{},{},{},{},{},{:.0},{:.1},{own},{study},{},{},{:.3}",
        stream.net.as_deref().unwrap_or("loopback"),
        quoted(&stream.code),
        stream.kernel.as_deref().unwrap_or_default(),
        stream.coding,
        stream.threads,
        stream.record_bytes,
        stream.bytes,
        stream.rounds.len(),
        stream.speed(),
        100.0 * stream.spread(),
        stream.cores().map(|cores| format!("{cores:.3}")).join(","),
        at_once.as_array().map(|mean| format!("{mean:.3}")).join(","),
        at_once.total()
    )
}

/// In percent.
fn loss(stream: &Stream, none: &Stream) -> f64 {
    100.0 * stream.loss(none)
}

/// The part of the page; nothing without any.
pub fn section(result: &Measurement) -> String {
    let mut groups: Vec<Vec<&Stream>> = Vec::new();
    for stream in &result.streams {
        match groups.iter_mut().find(|group| group[0].compares(stream)) {
            Some(group) => group.push(stream),
            None => groups.push(vec![stream]),
        }
    }
    if groups.is_empty() {
        return String::new();
    }
    let groups: String = groups.iter().map(|group| charts(result, group)).collect();
    format!(
        "<section><h2>Without waiting</h2><p class=\"how\">Threads write files of their own, in calls of 128 KiB, \
         and sync them at the end. Steps of different records overlap: a number is how many stripes, calls and \
         waits are in a step at once, on average, the time that was counted for the step in the time that passed. \
         Steps that overlap nothing add up to 1 or less. What a code loses is against none:K+M, which stores and \
         sends zeroes in the place of parity and codes nothing. The study says what one thread loses; of ten it \
         names the least and the most.</p>{groups}</section>\n"
    )
}

/// Streams that differ in their codes.
fn charts(result: &Measurement, streams: &[&Stream]) -> String {
    let first = streams[0];
    let threads = if first.threads == 1 { "one thread".into() } else { format!("{} threads", first.threads) };
    let net = first.net.as_deref().unwrap_or("loopback");
    let title = format!("Network {net}, coded by the {}, {threads}", first.coding);
    let rows: String = streams.iter().map(|stream| row(result, stream)).collect();
    format!(
        "<h3>{}</h3>\n<div class=\"charts one\">\n{}\n</div><div class=\"scroll\"><table><tr><th>code</th>\
         <th>MB/s</th><th>spread</th><th>loss here</th><th>loss in the study</th><th>program cores</th>\
         <th>client cores</th><th>metadata cores</th><th>store cores</th><th>CT</th><th>MT</th><th>DT</th><th>MP</th>\
         <th>PC</th><th>DD</th><th>SP</th><th>at once</th></tr>\n{rows}</table></div>\n",
        escape(&title),
        overlap("In each step at once", streams)
    )
}

fn row(result: &Measurement, stream: &Stream) -> String {
    let percent = |loss: f64| format!("{loss:.1} %");
    let own = stream.baseline(&result.streams).map_or_else(|| "-".into(), |none| percent(loss(stream, none)));
    let study = published_loss(stream).map_or_else(|| "-".into(), |loss| format!("{loss} %"));
    let at_once = stream.at_once();
    let numbers = stream.cores().into_iter().chain(at_once.as_array()).chain([at_once.total()]);
    let numbers: String = numbers.map(|number| format!("<td>{number:.2}</td>")).collect();
    format!(
        "<tr><th>{}</th><td>{:.1}</td><td>{:.1} %</td><td>{own}</td><td>{study}</td>{numbers}</tr>\n",
        escape(&stream.name()),
        stream.speed() / 1e6,
        100.0 * stream.spread()
    )
}
