//! The report for a terminal.

use super::report::{Cell, Report, Row};
use crate::text::rate;
use plan::words;

/// The whole report.
pub fn report(report: &Report) -> String {
    let mut out = format!("weft {}, {}: {}\n", report.weft, report.date, report.command);
    if report.quick {
        out.push_str("Tiny sizes: the figures show that everything works, and nothing else.\n");
    }
    let memory = words::bytes(report.memory_bytes);
    let (cores, processor) = (report.cores, &report.processor);
    out.push_str(&format!("{processor}, {cores} cores, memory {memory}, Linux {}.\n", report.kernel));
    out.push_str(&format!("Cold: after {}.\n", report.cold));
    for place in &report.places {
        let peak = place.server_peak_bytes.map(|bytes| format!(", its server's peak memory {}", words::bytes(bytes)));
        out.push_str(&format!("{}: {}{}\n", place.label, place.file_system, peak.unwrap_or_default()));
    }
    let rounds = report.rounds;
    out.push_str(&format!("Medians of {rounds} interleaved rounds; a ratio is the median of the rounds' ratios.\n\n"));
    out.push_str(&aligned(&rates(report)));
    out.push_str("\nProcessor time of the whole system, others' work included; and of the servers:\n");
    out.push_str(&aligned(&processor_times(report)));
    for failure in &report.failures {
        let (workload, label, round) = (&failure.workload, &failure.label, failure.round);
        out.push_str(&format!("FAILED: {workload} in {label}, round {round}: {}\n", failure.fault));
    }
    out
}

type Grid = Vec<Vec<String>>;

fn rates(report: &Report) -> Grid {
    let labels = || report.places.iter().map(|place| place.label.clone());
    let first = &report.places[0].label;
    let ratios = labels().skip(1).map(|label| format!("{label}/{first}"));
    let mut grid = vec![[String::new(), String::new()].into_iter().chain(labels()).chain(ratios).collect()];
    for row in &report.rows {
        let figure = |cell: &Option<Cell>| shown(cell.as_ref().map(|cell| rate(cell.figure.median)));
        let ratio = |cell: &Option<Cell>| shown(cell.as_ref().and_then(|c| c.ratio_to_first).map(times));
        let names = [label(row), row.unit.to_owned()].into_iter();
        grid.push(names.chain(row.cells.iter().map(figure)).chain(row.cells.iter().skip(1).map(ratio)).collect());
    }
    grid
}

fn processor_times(report: &Report) -> Grid {
    let served: Vec<usize> =
        (0..report.places.len()).filter(|&at| report.places[at].server_peak_bytes.is_some()).collect();
    let labels = report.places.iter().map(|place| place.label.clone());
    let servers = served.iter().map(|&at| format!("{} server", report.places[at].label));
    let mut grid = vec![[String::new(), String::new()].into_iter().chain(labels).chain(servers).collect()];
    for row in report.rows.iter().filter(|row| row.unit != "ratio") {
        let median = |figure: Option<&crate::Figure>| shown(figure.map(|figure| rate(figure.median)));
        let system = row.cells.iter().map(|cell| median(cell.as_ref().and_then(|cell| cell.system.as_ref())));
        let server = served.iter().map(|&at| median(row.cells[at].as_ref().and_then(|cell| cell.server.as_ref())));
        grid.push([label(row), row.processor_unit.to_owned()].into_iter().chain(system).chain(server).collect());
    }
    grid
}

fn label(row: &Row) -> String {
    format!("{}: {}", row.workload, row.name)
}

fn shown(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".into())
}

fn times(ratio: f64) -> String {
    format!("{ratio:.2}x")
}

/// Words to the left, numbers to the right.
fn aligned(grid: &Grid) -> String {
    let width = |column: usize| grid.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..grid[0].len()).map(width).collect();
    let mut out = String::new();
    for row in grid {
        let cells = row.iter().zip(&widths).enumerate().map(|(at, (text, &width))| match at {
            0 | 1 => format!("{text:<width$}"),
            _ => format!("{text:>width$}"),
        });
        out.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        out.push('\n');
    }
    out
}
