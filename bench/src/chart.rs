//! Charts as SVG, one small one for each row: every bar says what it is, so no legend has to be
//! looked up. Colours are classes of the page's style sheet.

use crate::results::{Cell, Role, Row, Value};
use crate::text::rate;
use std::fmt::Write;

const CHART_WIDTH: f64 = 360.0;
/// Space for names at the left and for values at the right of bars.
const NAME_WIDTH: f64 = 118.0;
const VALUE_WIDTH: f64 = 52.0;
const LINE_HEIGHT: f64 = 17.0;
const HEAD_HEIGHT: f64 = 24.0;

/// Name, class, value and range of a bar.
type Bar<'a> = (&'a str, &'static str, f64, Option<(f64, f64)>);

/// A bar for each figure of the row, with the range of its samples, and for each rate beside it.
pub fn bars(row: &Row) -> String {
    let best = row.best_peer().map(|(cell, _)| cell.column.as_str());
    let mut bars: Vec<Bar> = vec![];
    for cell in row.cells.iter().filter(|cell| cell.charted) {
        let Some(figure) = cell.outcome.figure() else { continue };
        bars.push((&cell.column, class(cell, best), figure.median, Some((figure.min, figure.max))));
    }
    for beside in &row.beside {
        if let Value::Rate(value) = beside.value {
            bars.push((&beside.name, "reference", value, None));
        }
    }
    let most = bars.iter().map(|bar| bar.3.map_or(bar.2, |range| range.1)).fold(0.0, f64::max);
    let scale = (CHART_WIDTH - NAME_WIDTH - VALUE_WIDTH) / most.max(f64::MIN_POSITIVE);
    let mut svg = open(&row.label, HEAD_HEIGHT + LINE_HEIGHT * bars.len() as f64 + 4.0);
    for (at, (name, class, value, range)) in bars.iter().enumerate() {
        let (top, width) = (HEAD_HEIGHT + LINE_HEIGHT * at as f64, value * scale);
        let middle = top + LINE_HEIGHT / 2.0;
        let end = NAME_WIDTH + range.map_or(*value, |range| range.1) * scale;
        put(
            &mut svg,
            format_args!("<g class=\"bar {class}\"><title>{}: {}</title>", escape(name), described(*value, *range)),
        );
        put(
            &mut svg,
            format_args!(
                "<text class=\"name\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                NAME_WIDTH - 6.0,
                middle + 4.0,
                escape(name)
            ),
        );
        put(
            &mut svg,
            format_args!(
                "<rect x=\"{NAME_WIDTH}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{:.1}\" rx=\"2\"/>",
                top + 2.0,
                LINE_HEIGHT - 4.0
            ),
        );
        if let Some((min, max)) = range {
            let (from, to) = (NAME_WIDTH + min * scale, NAME_WIDTH + max * scale);
            put(&mut svg, format_args!("<path class=\"range\" d=\"M{from:.1} {middle:.1}H{to:.1}\"/>"));
        }
        put(
            &mut svg,
            format_args!(
                "<text class=\"value\" x=\"{:.1}\" y=\"{:.1}\">{}</text></g>",
                end + 5.0,
                middle + 4.0,
                rate(*value)
            ),
        );
    }
    svg + "</svg>"
}

/// The row's figures over columns that are sizes; the other columns are levels to compare with.
pub fn curve(row: &Row) -> String {
    const HEIGHT: f64 = 190.0;
    const LEFT: f64 = 48.0;
    const BOTTOM: f64 = HEIGHT - 24.0;
    let is_size = |cell: &&Cell| cell.column.ends_with("iB");
    let points: Vec<&Cell> = row.cells.iter().filter(is_size).collect();
    let levels: Vec<&Cell> = row.cells.iter().filter(|cell| !is_size(cell)).collect();
    let medians = row.cells.iter().filter_map(|cell| Some(cell.outcome.figure()?.median));
    let most = round_up(medians.fold(0.0, f64::max));
    let x = |at: usize| LEFT + 8.0 + (CHART_WIDTH - LEFT - 36.0) * at as f64 / (points.len().max(2) - 1) as f64;
    let y = |value: f64| BOTTOM - (BOTTOM - HEAD_HEIGHT) * value / most;

    let mut svg = open(&row.label, HEIGHT);
    for part in 0..=4 {
        let value = most * f64::from(part) / 4.0;
        put(&mut svg, format_args!("<path class=\"grid\" d=\"M{LEFT} {:.1}H{CHART_WIDTH}\"/>", y(value)));
        put(
            &mut svg,
            format_args!(
                "<text class=\"axis end\" x=\"{:.1}\" y=\"{:.1}\">{value:.0}</text>",
                LEFT - 5.0,
                y(value) + 3.5
            ),
        );
    }
    for (at, cell) in points.iter().enumerate().step_by(2) {
        put(
            &mut svg,
            format_args!(
                "<text class=\"axis middle\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                x(at),
                HEIGHT - 8.0,
                escape(&cell.column)
            ),
        );
    }
    for cell in levels {
        let Some(figure) = cell.outcome.figure() else { continue };
        let class = if cell.column == "default" { "level own" } else { "level" };
        let above = y(figure.median) + if cell.column == "default" { 13.0 } else { -5.0 };
        put(&mut svg, format_args!("<path class=\"{class}\" d=\"M{LEFT} {:.1}H{CHART_WIDTH}\"/>", y(figure.median)));
        put(
            &mut svg,
            format_args!(
                "<text class=\"axis end\" x=\"{:.1}\" y=\"{above:.1}\">{} {}</text>",
                CHART_WIDTH - 4.0,
                escape(&cell.column),
                rate(figure.median)
            ),
        );
    }
    let measured: Vec<(f64, f64, &Cell)> = (points.iter().enumerate())
        .filter_map(|(at, cell)| Some((x(at), y(cell.outcome.figure()?.median), *cell)))
        .collect();
    let line: Vec<String> = measured.iter().map(|(x, y, _)| format!("{x:.1},{y:.1}")).collect();
    put(&mut svg, format_args!("<polyline class=\"curve\" points=\"{}\"/>", line.join(" ")));
    for (x, y, cell) in measured {
        let Some(figure) = cell.outcome.figure() else { continue };
        let about = described(figure.median, Some((figure.min, figure.max)));
        put(
            &mut svg,
            format_args!(
                "<circle class=\"point\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"><title>{}: {about}</title></circle>",
                escape(&cell.column)
            ),
        );
    }
    svg + "</svg>"
}

fn class(cell: &Cell, best: Option<&str>) -> &'static str {
    match cell.role {
        Role::Own => "own",
        Role::Limit => "limit",
        Role::Peer if best == Some(&cell.column) => "peer best",
        Role::Peer => "peer",
    }
}

fn described(value: f64, range: Option<(f64, f64)>) -> String {
    let range = range.map_or_else(String::new, |(min, max)| format!(" ({} to {})", rate(min), rate(max)));
    format!("{} MiB/s{range}", rate(value))
}

fn open(title: &str, height: f64) -> String {
    let title = escape(title);
    format!(
        "<svg viewBox=\"0 0 {CHART_WIDTH} {height}\" width=\"{CHART_WIDTH}\" height=\"{height}\" role=\"img\" \
         aria-label=\"{title}\">\
         <text class=\"title\" x=\"2\" y=\"15\">{title}</text>"
    )
}

/// The next number that begins with 1, 2, 4 or 8, so that quarters of the axis are round.
fn round_up(value: f64) -> f64 {
    let power = 10f64.powf(value.max(1.0).log10().floor());
    [1.0, 2.0, 4.0, 6.0, 8.0, 10.0].map(|step| step * power).into_iter().find(|&top| top >= value).unwrap_or(value)
}

fn put(svg: &mut String, what: std::fmt::Arguments) {
    svg.write_fmt(what).expect("a string takes everything");
}

/// Text as HTML and SVG take it.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_at_round_numbers() {
        assert_eq!([1.0, 17.0, 65_000.0, 80_000.0, 80_001.0].map(round_up), [1.0, 20.0, 80_000.0, 80_000.0, 100_000.0]);
    }
}
