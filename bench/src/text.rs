//! The report for a terminal: aligned tables of at most 120 columns.

use crate::report::{Lane, Report};
use crate::results::{Outcome, Role, Table, Value};

/// No line is longer.
const WIDTH: usize = 120;

/// The whole report.
pub fn report(report: &Report) -> String {
    let machine = &report.machine;
    let mut out = format!("weft {}, {}: {}\n", report.weft, report.date, report.command);
    if report.quick {
        out.push_str("Tiny sizes: the figures show that everything works, and nothing else.\n");
    }
    out.push_str(&wrapped(&machine.describe()));
    out.push_str("\nMemory, MiB/s read (copies write as many):\n");
    for bandwidth in &machine.bandwidth {
        let cores = if bandwidth.cores == 1 { "one core".to_owned() } else { format!("{} cores", bandwidth.cores) };
        let what = format!("{}, {cores}", bandwidth.what);
        out.push_str(&format!("  {what:<28} {:>8.0}\n", bandwidth.figure.median));
    }
    let rounds = format!(
        "Figures are {}, medians of {} interleaved rounds, of {} turns each where work is done in cache; a ratio is \
         the median of the ratios within a turn.",
        report.unit, report.rounds, report.turns
    );
    out.push('\n');
    out.push_str(&wrapped(&rounds));
    report.lanes.iter().for_each(|one| lane(one, &mut out));
    out
}

fn lane(lane: &Lane, out: &mut String) {
    let kernels = match lane.name {
        "auto" => "each with its best instructions",
        "plain" => "nobody with SIMD",
        _ => "everybody held to AVX2",
    };
    out.push_str(&format!("\n=== {}: {kernels} ===\n", lane.name));
    let subjects: Vec<String> =
        lane.subjects.iter().map(|s| format!("{} {} ({})", s.name, s.version, s.kernel)).collect();
    out.push_str(&wrapped(&subjects.join(", ")));
    lane.absent.iter().for_each(|absent| out.push_str(&format!("{absent}\n")));
    for one in &lane.tables {
        out.push_str(&format!("\n{}\n", one.title));
        table(one, out);
        out.push_str(&wrapped(&one.how));
        refusals(one).iter().for_each(|line| out.push_str(&wrapped(line)));
    }
}

/// Why some cells are empty, each reason once.
pub fn refusals(table: &Table) -> Vec<String> {
    let mut lines: Vec<(String, Vec<&str>)> = vec![];
    for row in &table.rows {
        for cell in &row.cells {
            let Outcome::Refused { refused } = &cell.outcome else { continue };
            let reason = format!("{}: {refused}", cell.column);
            match lines.iter_mut().find(|line| line.0 == reason) {
                Some(line) => line.1.push(&row.label),
                None => lines.push((reason, vec![&row.label])),
            }
        }
    }
    lines.into_iter().map(|(reason, labels)| format!("No figure: {reason} ({})", labels.join(", "))).collect()
}

struct Column {
    heading: [String; 2],
    entries: Vec<String>,
}

impl Column {
    fn new(name: &str, entries: Vec<String>) -> Self {
        let (first, second) =
            name.split_once(' ').or_else(|| name.split_once('-').filter(|_| name.len() > 6)).unwrap_or(("", name));
        Self { heading: [first.to_owned(), second.to_owned()], entries }
    }

    fn width(&self) -> usize {
        self.heading.iter().chain(&self.entries).map(|text| text.chars().count()).max().unwrap_or(0)
    }
}

fn table(table: &Table, out: &mut String) {
    let mut hidden: Vec<&str> = vec![];
    let columns = loop {
        let columns = columns(table, &hidden);
        if columns.iter().map(|column| column.width() + 1).sum::<usize>() <= WIDTH + 1 {
            break columns;
        }
        // If the columns do not fit, the slowest of the peers that are nowhere the best are left
        // out.
        match slowest_peer(table, &hidden) {
            Some(name) => hidden.push(name),
            None => break columns,
        }
    };
    let height = table.rows.len();
    for line in 0..height + 2 {
        let mut text = String::new();
        for (at, column) in columns.iter().enumerate() {
            let entry = if line < 2 { &column.heading[line] } else { &column.entries[line - 2] };
            let (width, gap) = (column.width(), if at == 0 { "" } else { " " });
            text += &if at == 0 { format!("{entry:<width$}") } else { format!("{gap}{entry:>width$}") };
        }
        out.push_str(text.trim_end());
        out.push('\n');
    }
    if !hidden.is_empty() {
        out.push_str(&wrapped(&format!("Also measured, in the JSON and the page: {}.", hidden.join(", "))));
    }
}

fn columns(table: &Table, hidden: &[&str]) -> Vec<Column> {
    let labels = table.rows.iter().map(|row| row.label.clone()).collect();
    let mut columns = vec![Column { heading: [String::new(), table.first.clone()], entries: labels }];
    for name in table.columns().into_iter().filter(|name| !hidden.contains(name)) {
        let entry = |figure: Option<&crate::Figure>| figure.map_or_else(|| "-".into(), |figure| rate(figure.median));
        columns.push(Column::new(name, table.rows.iter().map(|row| entry(row.figure(name))).collect()));
    }
    for name in table.beside() {
        let of =
            |row: &crate::Row| row.beside.iter().find(|b| b.name == name).map_or_else(String::new, |b| brief(&b.value));
        columns.push(Column::new(name, table.rows.iter().map(of).collect()));
    }
    columns
}

fn slowest_peer<'a>(table: &'a Table, hidden: &[&str]) -> Option<&'a str> {
    let is_peer =
        |name: &str| table.rows.iter().flat_map(|r| &r.cells).any(|c| c.column == name && c.role == Role::Peer);
    let best: Vec<&str> = table.rows.iter().filter_map(|row| Some(row.best_peer()?.0.column.as_str())).collect();
    let speed = |name: &str| table.rows.iter().filter_map(|row| row.figure(name)).map(|f| f.median).sum::<f64>();
    let can_go = table.columns().into_iter().filter(|name| is_peer(name) && !hidden.contains(name));
    can_go.filter(|name| !best.contains(name)).min_by(|a, b| speed(a).total_cmp(&speed(b)))
}

/// A number, such as MiB/s, with as many digits as mean something.
pub fn rate(value: f64) -> String {
    if value < 10.0 { format!("{value:.2}") } else { format!("{value:.0}") }
}

/// A value beside the figures.
pub fn value(value: &Value) -> String {
    match value {
        Value::Rate(v) => rate(*v),
        Value::Ratio(v) => format!("{v:.2}x"),
        Value::Share(v) => format!("{:.0}%", v * 100.0),
        Value::Text(text) => text.clone(),
    }
}

/// The same in little space: of words the first.
fn brief(of: &Value) -> String {
    let text = value(of);
    text.split(' ').next().unwrap_or_default().to_owned()
}

/// Lines of at most the width.
pub(crate) fn wrapped(text: &str) -> String {
    let mut out = String::new();
    let mut column = 0;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > WIDTH {
            out.push('\n');
            column = 0;
        }
        if column > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
    }
    out + "\n"
}
