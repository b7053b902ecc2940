//! What benches of processes on this machine can be asked for, and what they do with it.

use crate::failure::Outcome;
use crate::{output, show};
use clap::Args;
use serde_json::Value;
use std::path::PathBuf;

/// Options that all of them have.
#[derive(Args)]
pub struct Common {
    /// Where to create the temporary directory with everything [default: that of the system]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// One round of little data: whether it works, not how fast
    #[arg(long)]
    pub quick: bool,
    /// Also write the result to a file
    #[arg(long, value_name = "FILE")]
    json_file: Option<PathBuf>,
    /// Also write the figures to a file, a line for each measurement
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Also write a self-contained page with charts
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

impl Common {
    /// Checks that the files may be written. With `force`, they are replaced.
    pub fn check(&self, force: bool) -> Outcome {
        [&self.json_file, &self.csv, &self.html].into_iter().flatten().try_for_each(|file| output::check(file, force))
    }

    /// Where temporary directories go.
    pub fn parent(&self) -> PathBuf {
        self.dir.clone().unwrap_or_else(std::env::temp_dir)
    }

    /// Writes the files: the document, the table's head and a line for each of its `rows`, and the
    /// page.
    pub fn write<T>(
        &self,
        document: &Value,
        head: &str,
        rows: &[T],
        line: impl Fn(&T) -> String,
        page: impl FnOnce() -> String,
        force: bool,
    ) -> Outcome {
        if let Some(file) = &self.json_file {
            output::write(file, &format!("{document:#}\n"), force)?;
        }
        if let Some(file) = &self.csv {
            let table = rows.iter().fold(format!("{head}\n"), |table, row| table + &line(row) + "\n");
            output::write(file, &table, force)?;
        }
        if let Some(file) = &self.html {
            output::write(file, &page(), force)?;
        }
        Ok(())
    }

    /// Says what the figures of a trial are worth.
    pub fn end(&self) -> Outcome {
        if self.quick { show::text("--quick: whether it works; the figures mean nothing.") } else { Ok(()) }
    }
}
