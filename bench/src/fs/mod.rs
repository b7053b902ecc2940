//! Measurements of file systems: the same POSIX workloads in several directories, in one
//! interleaved run.
//!
//! A directory is a subject like a library in `weft bench codes`: each takes its turn in every
//! round, figures are medians over rounds, and a workload that fails somewhere is reported there
//! while everything else goes on. Data is pseudo-random, and what is read is compared with what was
//! written.

mod account;
mod args;
mod cache;
mod content;
mod contest;
mod metadata;
mod meter;
mod random;
mod report;
mod sequential;
mod text;

pub use args::{Args, Target, Workload};
pub use report::{Cell, Report, Row};

use std::path::Path;

/// Measures what was asked for, writes the table and the JSON, and says whether every workload
/// succeeded.
///
/// # Errors
/// When a directory cannot be used at all, or an output cannot be written.
pub fn run(args: &Args) -> Result<bool, String> {
    let report = contest::measure(args)?;
    let stdout = Path::new("-");
    let json_file = args.json_file.as_deref().filter(|path| *path != stdout);
    let json_to_stdout = args.json || args.json_file.as_deref() == Some(stdout);
    for path in json_file.into_iter().chain(json_to_stdout.then_some(stdout)) {
        let json = serde_json::to_string_pretty(&report).map_err(|e| e.to_string())?;
        crate::write(path, &format!("{json}\n"))?;
    }
    if !json_to_stdout {
        crate::write(stdout, &text::report(&report))?;
    }
    Ok(report.failures.is_empty())
}
