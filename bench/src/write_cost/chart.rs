//! Bars of stacked steps as SVG: a bar for each size of records. Colours are classes of the page's
//! style sheet.

use super::study::{PUBLISHED, Published, STEPS};
use archive::report::charts::escape;
use plan::cost::measured::{Measurement, Point};
use plan::cost::streams::Stream;
use plan::words::size;
use std::fmt::Write;

/// The five steps: a class and a name.
pub const NAMES: [(&str, &str); 5] = [
    ("co", "CO client overhead"),
    ("mp", "MP master process"),
    ("pc", "PC parity calculation"),
    ("dd", "DD data distribution"),
    ("sp", "SP slave process"),
];

const WIDTH: f64 = 560.0;
/// Space for sizes at the left and for sums at the right.
const LEFT: f64 = 66.0;
const RIGHT: f64 = 74.0;
/// A letter of a name.
const LETTER: f64 = 6.0;
const LINE: f64 = 26.0;
const HEAD: f64 = 26.0;
/// Between two steps of a bar.
const GAP: f64 = 1.5;
/// A step that is narrower has no number in it.
const LEGIBLE: f64 = 34.0;

/// Percent of the steps.
pub fn percent(title: &str, points: &[&Point]) -> String {
    let bars = points.iter().map(|point| {
        let shares = point.steps().shares().map(|share| share * 100.0);
        Bar { name: size(point.record_bytes), parts: shares, end: String::new() }
    });
    stacked(title, 100.0, &bars.collect::<Vec<_>>(), "%", 0)
}

/// Microseconds a record.
pub fn time(title: &str, points: &[&Point]) -> String {
    let bars: Vec<Bar> = (points.iter())
        .map(|point| {
            let times = five(point).map(|time| time * 1e6);
            Bar { name: size(point.record_bytes), parts: times, end: format!("{:.0} us", times.iter().sum::<f64>()) }
        })
        .collect();
    let most = bars.iter().map(|bar| bar.parts.iter().sum::<f64>()).fold(f64::MIN_POSITIVE, f64::max);
    stacked(title, most, &bars, "us", 0)
}

/// CO, MP, PC, DD, SP in seconds.
pub fn five(point: &Point) -> [f64; 5] {
    let steps = point.steps();
    [steps.client_overhead(), steps.master, steps.parity, steps.distribution, steps.slave]
}

struct Bar {
    name: String,
    parts: [f64; 5],
    end: String,
}

/// Bars of five parts, with so many decimals in their numbers.
fn stacked(title: &str, most: f64, bars: &[Bar], unit: &str, decimals: usize) -> String {
    let longest = bars.iter().map(|bar| bar.name.len()).max().unwrap_or(0);
    let left = LEFT.max(LETTER * longest as f64 + 12.0);
    let scale = (WIDTH - left - RIGHT) / most;
    let mut svg = open(title, HEAD + LINE * bars.len() as f64 + 4.0);
    for (at, bar) in bars.iter().enumerate() {
        let top = HEAD + LINE * at as f64;
        let name = &bar.name;
        text(&mut svg, "name", left - 8.0, top + 16.0, name);
        let mut x = left;
        for ((class, step), part) in NAMES.iter().zip(bar.parts) {
            let width = part * scale;
            let tip = escape(&format!("{name}, {step}: {part:.*} {unit}", decimals.max(1)));
            put(
                &mut svg,
                format_args!(
                    "<g class=\"{class}\"><title>{tip}</title><rect x=\"{x:.1}\" y=\"{:.1}\" width=\"{:.1}\" \
                     height=\"{:.1}\"/></g>",
                    top + 3.0,
                    (width - GAP).max(0.0),
                    LINE - 7.0
                ),
            );
            if width >= LEGIBLE {
                text(&mut svg, &format!("in {class}"), x + width / 2.0, top + 16.0, &format!("{part:.decimals$}"));
            }
            x += width;
        }
        text(&mut svg, "value", x + 6.0, top + 16.0, &bar.end);
    }
    svg + "</svg>"
}

/// The study's shares of CO, PC and DD on each network, and ours: the highest of all sizes.
pub fn beside(result: &Measurement) -> String {
    const BAR: f64 = 15.0;
    const GROUP: f64 = 2.0 * BAR + 9.0;
    let height = HEAD + PUBLISHED.len() as f64 * (3.0 * GROUP + 26.0);
    let mut svg = open("Percent of a write: the study, and here", height);
    let scale = (WIDTH - 220.0 - 60.0) / 100.0;
    let mut top = HEAD + 4.0;
    for published in &PUBLISHED {
        let kind = if published.measured { "" } else { ", predicted by the study" };
        text(&mut svg, "group", 2.0, top + 12.0, &format!("{}{kind}", published.net));
        top += 18.0;
        for (&step, share) in STEPS.iter().zip(published.shares) {
            let (class, name) = NAMES[step];
            text(&mut svg, "name", 164.0, top + 18.0, name);
            let here = highest(result, published, step);
            let own = here.map_or_else(|| absent(result, published), |share| format!("{share:.1}"));
            let lines = [("study", share, format!("{share:.1}")), ("here", here.unwrap_or(0.0), own)];
            for (number, (who, share, words)) in lines.into_iter().enumerate() {
                let y = top + BAR * number as f64;
                text(&mut svg, "who", 172.0, y + 11.0, who);
                put(
                    &mut svg,
                    format_args!(
                        "<g class=\"{class} {who}\"><rect x=\"206\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\"/></g>",
                        y + 1.0,
                        share * scale,
                        BAR - 3.0
                    ),
                );
                text(&mut svg, "value", 212.0 + share * scale, y + 11.0, &words);
            }
            top += GROUP;
        }
        top += 6.0;
    }
    svg + "</svg>"
}

/// The highest share of a step on a network, with records as long as the study's.
fn highest(result: &Measurement, published: &Published, step: usize) -> Option<f64> {
    let network = result.networks.iter().find(|net| net.bits_per_second == Some(published.bits_per_second))?;
    let points = result.points.iter().filter(|point| point.net.as_ref() == Some(&network.name));
    let points = points.filter(|point| point.record_bytes <= 128 << 10);
    points.map(|point| point.steps().shares()[step] * 100.0).reduce(f64::max)
}

fn absent(result: &Measurement, published: &Published) -> String {
    let network = result.networks.iter().find(|net| net.bits_per_second == Some(published.bits_per_second));
    let tried = network.is_some_and(|network| !network.reachable);
    if tried { "not reachable".into() } else { "not measured".into() }
}

/// Steps at once, on average: a bar for each of the threads' measurements.
pub fn overlap(title: &str, streams: &[&Stream]) -> String {
    let bars: Vec<Bar> = (streams.iter())
        .map(|stream| {
            let steps = stream.at_once();
            let parts = [steps.client_overhead(), steps.master, steps.parity, steps.distribution, steps.slave];
            Bar { name: stream.name(), parts, end: format!("{:.2}", parts.iter().sum::<f64>()) }
        })
        .collect();
    let most = bars.iter().map(|bar| bar.parts.iter().sum::<f64>()).fold(f64::MIN_POSITIVE, f64::max);
    stacked(title, most, &bars, "at once", 2)
}

fn open(title: &str, height: f64) -> String {
    let title = escape(title);
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" role=\"img\" \
         aria-label=\"{title}\"><text class=\"title\" x=\"2\" y=\"15\">{title}</text>"
    )
}

fn text(svg: &mut String, class: &str, x: f64, y: f64, words: &str) {
    put(svg, format_args!("<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", escape(words)));
}

fn put(svg: &mut String, what: std::fmt::Arguments) {
    svg.write_fmt(what).expect("a string takes everything");
}
