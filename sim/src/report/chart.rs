//! Charts as SVG. Colours are classes of the page's style sheet.

use std::fmt::Write;

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 218.0;
/// Space for values beside lines.
const LEFT: f64 = 84.0;
const TOP: f64 = 26.0;
/// Where lines are, below their names.
const PLOT: f64 = TOP + 18.0;
const BOTTOM: f64 = HEIGHT - 26.0;
const RIGHT: f64 = WIDTH - 12.0;
/// Space for names at the left of bars, and for values at the right.
const NAMES: f64 = 150.0;
const VALUES: f64 = 130.0;
const LINE: f64 = 18.0;

/// Text that stands in a page.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Lines over time, each with its name. `shown` is what a value is called, `span` what the whole
/// width is.
pub fn lines(title: &str, all: &[(String, Vec<f64>)], span: &str, shown: impl Fn(f64) -> String) -> String {
    let most = all.iter().flat_map(|(_, values)| values).copied().fold(0.0, f64::max).max(f64::MIN_POSITIVE);
    let mut svg = open(title, HEIGHT);
    let y = |value: f64| BOTTOM - (BOTTOM - PLOT) * (value / most).clamp(0.0, 1.0);
    for part in 0..=2 {
        let value = most * f64::from(part) / 2.0;
        put(&mut svg, format_args!("<path class=\"grid\" d=\"M{LEFT} {:.1}H{RIGHT}\"/>", y(value)));
        let label = escape(&shown(value));
        put(
            &mut svg,
            format_args!("<text class=\"axis end\" x=\"{}\" y=\"{:.1}\">{label}</text>", LEFT - 5.0, y(value) + 3.5),
        );
    }
    for (number, (name, values)) in all.iter().enumerate() {
        let step = (RIGHT - LEFT) / (values.len().max(2) - 1) as f64;
        let point = |(at, value): (usize, &f64)| format!("{:.1},{:.1}", LEFT + step * at as f64, y(*value));
        let points: Vec<String> = values.iter().enumerate().map(point).collect();
        let class = number % 5;
        put(&mut svg, format_args!("<polyline class=\"line c{class}\" points=\"{}\"/>", points.join(" ")));
        let x = LEFT + 110.0 * number as f64;
        put(
            &mut svg,
            format_args!("<text class=\"name c{class}\" x=\"{x}\" y=\"{}\">{}</text>", TOP + 6.0, escape(name)),
        );
    }
    put(
        &mut svg,
        format_args!("<text class=\"axis end\" x=\"{RIGHT}\" y=\"{}\">{}</text></svg>", HEIGHT - 8.0, escape(span)),
    );
    svg
}

/// A bar for each name, with what stands at its end.
pub fn bars(title: &str, all: &[(String, f64, String)]) -> String {
    let most = all.iter().map(|(_, value, _)| *value).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
    let mut svg = open(title, TOP + LINE * all.len() as f64 + 6.0);
    for (at, (name, value, text)) in all.iter().enumerate() {
        let (top, width) = (TOP + LINE * at as f64, (WIDTH - NAMES - VALUES) * (value / most).clamp(0.0, 1.0));
        let (base, height) = (top + 13.0, LINE - 4.0);
        put(&mut svg, format_args!("<text class=\"end\" x=\"{}\" y=\"{base}\">{}</text>", NAMES - 6.0, escape(name)));
        put(
            &mut svg,
            format_args!("<rect x=\"{NAMES}\" y=\"{}\" width=\"{width:.1}\" height=\"{height}\" rx=\"2\"/>", top + 2.0),
        );
        put(&mut svg, format_args!("<text x=\"{:.1}\" y=\"{base}\">{}</text>", NAMES + width + 5.0, escape(text)));
    }
    svg + "</svg>"
}

fn open(title: &str, height: f64) -> String {
    let title = escape(title);
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{title}\">\
         <text class=\"title\" x=\"2\" y=\"15\">{title}</text>"
    )
}

fn put(svg: &mut String, what: std::fmt::Arguments) {
    svg.write_fmt(what).expect("a string takes everything");
}
