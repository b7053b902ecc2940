//! Charts as SVG without text. They stretch to the width of the page, and their labels are HTML
//! around them, so that both a telephone and a desktop show them in readable size. Colours are
//! classes of the page's style sheet.

use super::scale::{self, Tick};
use super::words::{bytes, count, percent, time};
use super::{Facts, Figures, Worker};
use std::fmt::Write;

/// The height of all lanes together in pixels, unless there are few.
const LANES_HEIGHT: f64 = 600.0;
/// The least distance between two names, in pixels.
const NAME_HEIGHT: f64 = 13.0;
/// The most rectangles of a timeline. It limits the number of columns, so that lanes times columns
/// stays below.
const MAX_CELLS: usize = 60_000;

/// Escapes text for HTML and SVG.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // These characters are not allowed, or they would let a name change how the rest of the
            // page reads.
            c if c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}') => {
                out.extend(c.escape_unicode());
            }
            c => out.push(c),
        }
    }
    out
}

/// A lane for each worker, darker where it was busier, with marks at the mean and the last finish.
pub fn timeline(facts: &Facts, figures: &Figures) -> Option<String> {
    let finish = figures.finish?;
    let end = facts.wall_seconds.max(finish.last_seconds);
    let lanes = facts.workers.len();
    let lane_height = (LANES_HEIGHT / lanes as f64).clamp(2.0, 18.0);
    let columns = (MAX_CELLS / lanes).clamp(100, 600);
    let height = lane_height * lanes as f64;
    let margin = if lane_height > 6.0 { 0.12 } else { 0.0 };
    let mut drawing = String::new();
    for (at, worker) in facts.workers.iter().enumerate() {
        let top = at as f64 + margin;
        let _ = write!(drawing, "<g><title>{}</title>", escape(&describe(worker)));
        if margin > 0.0 {
            let _ = write!(drawing, "<path class=\"lane\" d=\"M0 {top:.2}h{columns}v.76h-{columns}z\"/>");
        }
        drawing += &lane(worker, end, columns, top, 1.0 - 2.0 * margin);
        drawing += "</g>";
    }
    for (class, at) in [("mark", finish.mean_seconds), ("mark last", finish.last_seconds)] {
        let _ = write!(drawing, "<path class=\"{class}\" d=\"M{:.2} 0v{lanes}\"/>", at / end * columns as f64);
    }
    let step = (NAME_HEIGHT / lane_height).ceil() as usize;
    let named = (0..lanes).step_by(step.max(1));
    let names = named.map(|at| (brief(&facts.workers[at].name), (at as f64 + 0.5) * lane_height));
    let svg = Drawing { width: columns as f64, rows: lanes as f64, height, inside: drawing };
    let about = format!(
        "Timeline of {lanes} workers over {}: the first was done at {}, the last at {}",
        time(end),
        time(finish.first_seconds),
        time(finish.last_seconds)
    );
    Some(svg.framed(&about, "names", &names.collect::<Vec<_>>(), &scale::times(end)))
}

fn describe(worker: &Worker) -> String {
    let line = &worker.timeline;
    let done = line.last_finish.map_or_else(|| "no task".into(), |last| format!("done at {}", time(last)));
    let (tasks, length) = (count(worker.tasks), bytes(worker.bytes as f64));
    format!("{}: {tasks} tasks, {length}, at work {}, {done}", worker.name, time(line.busy_seconds))
}

/// A name cut to 20 characters.
fn brief(name: &str) -> String {
    if name.chars().count() <= 20 { name.to_owned() } else { name.chars().take(19).chain(['…']).collect() }
}

/// How busy the worker was in each column. Equal neighbours become one rectangle.
fn lane(worker: &Worker, end: f64, columns: usize, top: f64, height: f64) -> String {
    let width = end / columns as f64;
    let mut busy = vec![0.0; columns];
    for span in &worker.timeline.spans {
        let density = span.busy / (span.end - span.start).max(f64::MIN_POSITIVE);
        let first = ((span.start / width) as usize).min(columns - 1);
        let last = ((span.end / width) as usize).min(columns - 1);
        for (column, busy) in busy.iter_mut().enumerate().take(last + 1).skip(first) {
            let (from, to) = (column as f64 * width, (column + 1) as f64 * width);
            *busy += density.min(1.0) * (span.end.min(to) - span.start.max(from)).max(0.0) / width;
        }
    }
    // Even the least busy column is visible.
    let levels: Vec<u8> = busy.iter().map(|busy| (busy * 4.0).ceil().clamp(0.0, 4.0) as u8).collect();
    let mut out = String::new();
    for level in 1..=4u8 {
        let mut path = String::new();
        let mut column = 0;
        for run in levels.chunk_by(|a, b| a == b) {
            if run[0] == level {
                let _ = write!(path, "M{column} {top:.2}h{0}v{height:.2}h-{0}z", run.len());
            }
            column += run.len();
        }
        if !path.is_empty() {
            let opacity = f64::from(level) / 4.0;
            let _ = write!(out, "<path class=\"busy\" fill-opacity=\"{opacity}\" d=\"{path}\"/>");
        }
    }
    out
}

/// Bytes a second over time.
pub fn throughput(facts: &Facts) -> Option<String> {
    let series = &facts.throughput;
    let end = facts.wall_seconds.max(series.interval_seconds * series.amounts.len().saturating_sub(1) as f64);
    if series.total() == 0 || end <= 0.0 {
        return None;
    }
    let start = |at: usize| at as f64 * series.interval_seconds;
    // The last interval ends with the job.
    let length = |at: usize| (end - start(at)).clamp(end * 1e-3, series.interval_seconds);
    let rates: Vec<f64> = series.amounts.iter().enumerate().map(|(at, amount)| *amount as f64 / length(at)).collect();
    let most = rates.iter().copied().fold(0.0, f64::max);
    let (top, levels) = scale::rates(most);
    let mut line = String::new();
    for (at, rate) in rates.iter().enumerate() {
        let (x, y) = (start(at) / end * 1000.0, 100.0 - rate / top * 100.0);
        let _ = write!(
            line,
            "{}{x:.1} {y:.2}H{:.1}",
            if at == 0 { 'M' } else { 'L' },
            ((start(at) + length(at)) / end).min(1.0) * 1000.0
        );
    }
    let grid: String = levels
        .iter()
        .map(|tick| format!("<path class=\"grid\" d=\"M0 {:.1}H1000\"/>", 100.0 - tick.at * 100.0))
        .collect();
    let inside = format!("{grid}<path class=\"area\" d=\"{line}V100H0Z\"/><path class=\"line\" d=\"{line}\"/>");
    let height = 180.0;
    let names: Vec<_> = levels.into_iter().map(|tick| (tick.label, (1.0 - tick.at) * height)).collect();
    let about = format!("Throughput over {}, at most {} a second", time(end), bytes(most));
    let svg = Drawing { width: 1000.0, rows: 100.0, height, inside };
    Some(svg.framed(&about, "levels", &names, &scale::times(end)))
}

/// A drawing in its own units, with a height in pixels and the full width.
struct Drawing {
    width: f64,
    rows: f64,
    height: f64,
    inside: String,
}

impl Drawing {
    /// Adds names at the left, at heights in pixels, and ticks below.
    fn framed(&self, about: &str, class: &str, names: &[(String, f64)], ticks: &[Tick]) -> String {
        let Self { width, rows, height, inside } = self;
        let at = |(name, top): &(String, f64)| format!("<span style=\"top:{top:.1}px\">{}</span>", escape(name));
        let widest = names.iter().map(|(name, _)| name.as_str()).max_by_key(|name| name.chars().count()).unwrap_or("");
        let labels: String = names.iter().map(at).collect();
        let tick = |(n, tick): (usize, &Tick)| {
            let minor = if n % 2 == 1 { "minor" } else { "" };
            let edge = if n == 0 {
                "first"
            } else if tick.at > 0.96 {
                "end"
            } else {
                ""
            };
            format!("<span class=\"{minor} {edge}\" style=\"left:{:.2}%\">{}</span>", tick.at * 100.0, tick.label)
        };
        let below: String = ticks.iter().enumerate().map(tick).collect();
        format!(
            "<div class=\"chart\"><div class=\"{class}\" aria-hidden=\"true\"><span \
             class=\"widest\">{}</span>{labels}</div>\
             <svg role=\"img\" aria-label=\"{}\" viewBox=\"0 0 {width} {rows}\" preserveAspectRatio=\"none\" \
             style=\"height:{height:.0}px\">{inside}</svg><div class=\"ticks\" \
             aria-hidden=\"true\">{below}</div></div>\n",
            escape(widest),
            escape(about),
        )
    }
}

/// A bar of the parts of a whole: class and share of each.
pub fn bar(parts: &[(&str, f64)], about: &str) -> String {
    let mut left = 0.0;
    let mut drawing = String::new();
    for (class, part) in parts {
        let width = part.clamp(0.0, 1.0) * 100.0;
        let _ = write!(drawing, "<path class=\"{class}\" d=\"M{left:.2} 0h{width:.2}v1h-{width:.2}z\"/>");
        left += width;
    }
    format!(
        "<svg role=\"img\" aria-label=\"{}\" viewBox=\"0 0 100 1\" preserveAspectRatio=\"none\">{drawing}</svg>",
        escape(about)
    )
}

/// A bar for a value, relative to the greatest.
pub fn single(part: f64) -> String {
    bar(&[("own", part)], &percent(part))
}
