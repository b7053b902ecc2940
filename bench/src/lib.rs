//! Measurements of the coding engine, side by side with its peers in the same interleaved run.
//!
//! A figure is a median over turns in which every subject took its place; a peer is a process, and
//! one that crashes or hangs is reported, never waited for. Nothing here changes what the engine
//! computes.
#![forbid(unsafe_code)]

mod arena;
mod args;
mod baseline;
mod bound;
mod chart;
mod codes;
mod contest;
mod csv;
pub mod fs;
mod limit;
mod machine;
mod measure;
mod own;
mod page;
pub mod paper;
mod peer;
pub mod placement;
mod report;
mod results;
mod subject;
mod text;
mod threads;
pub mod write_cost;

pub use args::{Args, Lanes, Section};
pub use report::{Lane, Report};
pub use results::{Beside, Cell, Figure, Outcome, Role, Row, Table, Value};

use std::io::Write;
use std::path::Path;

/// Measures what was asked for and writes the table, the JSON and the page.
///
/// # Errors
/// When a kernel cannot be had, or an output cannot be written. A peer's failure is part of the
/// result instead.
pub fn run(args: &Args) -> Result<(), String> {
    let report = measure(args)?;
    let stdout = Path::new("-");
    let json_file = args.json_file.as_deref().filter(|path| *path != stdout);
    let json_to_stdout = args.json || args.json_file.as_deref() == Some(stdout);
    for path in json_file.into_iter().chain(json_to_stdout.then_some(stdout)) {
        let json = serde_json::to_string_pretty(&report).map_err(|e| e.to_string())?;
        write(path, &format!("{json}\n"))?;
    }
    if let Some(path) = &args.html {
        write(path, &page::html(&report))?;
    }
    if let Some(path) = &args.csv {
        write(path, &csv::lines(&report))?;
    }
    // A program that reads the JSON or the page from standard output gets nothing else there.
    if json_to_stdout || args.html.as_deref() == Some(stdout) {
        return Ok(());
    }
    write(stdout, &text::report(&report))
}

/// Measures what was asked for, and writes nothing but progress.
///
/// # Errors
/// When a kernel cannot be had.
pub fn measure(args: &Args) -> Result<Report, String> {
    report::measure(args)
}

/// The report as a page that needs no other file.
pub fn html(report: &Report) -> String {
    page::html(report)
}

/// The report as text of at most 120 columns.
pub fn text(report: &Report) -> String {
    text::report(report)
}

fn write(path: &Path, content: &str) -> Result<(), String> {
    if path == Path::new("-") {
        return std::io::stdout().write_all(content.as_bytes()).map_err(|e| format!("standard output: {e}"));
    }
    std::fs::write(path, content).map_err(|e| format!("{}: {e}", path.display()))
}
