//! The energy study's workloads, 160+80, 160+40 and 160+32, from one directory to others. Reading
//! and writing is the same for all libraries and measured once a shape; coding is measured on one
//! core for each; the job is their sum, as in the study's equation.

use super::jobs::Ground;
use crate::results::Role;
use archive::energy::Model;
use serde::Serialize;
use std::fs::File;
use std::io::{Read, Write};
use std::time::Instant;

/// One library at one shape.
#[derive(Clone, Debug, Serialize)]
pub struct Wide {
    /// The shape.
    pub shape: String,
    /// The library and its code.
    pub who: String,
    /// Whether it is this engine.
    pub own: bool,
    /// User data.
    pub bytes: u64,
    /// Coding it on one core from memory, measured: MiB of user data a second.
    pub coding_rate: f64,
    /// T_ec, from that.
    pub coding_seconds: f64,
    /// T_io, measured.
    pub io_seconds: f64,
    /// The energy of both, by the model.
    pub modelled_joules: f64,
}

impl Wide {
    /// T_total.
    pub fn seconds(&self) -> f64 {
        self.coding_seconds + self.io_seconds
    }
}

/// All libraries of a measurement of wide stripes, with their jobs.
pub fn compare(ground: &Ground, coding: &crate::Report, quick: bool) -> Result<(Vec<Wide>, Vec<String>), String> {
    let bytes: u64 = if quick { 160 * 4096 } else { 160 * (4 << 20) };
    let source = ground.file("wide", bytes)?;
    let model = Model::default();
    let lane = &coding.lanes[0];
    let mut rows = vec![];
    // Rows marked mem are from memory, as data that was just read.
    for row in lane.tables.iter().flat_map(|table| &table.rows).filter(|row| row.label.ends_with(" mem")) {
        let io_seconds = copy(ground, &source, row.k, row.m)?;
        for cell in row.cells.iter().filter(|cell| cell.role != Role::Limit) {
            let Some(figure) = cell.outcome.figure() else { continue };
            let coding_seconds = bytes as f64 / f64::from(1 << 20) / figure.median;
            rows.push(Wide {
                shape: format!("{}+{}", row.k, row.m),
                who: cell.column.clone(),
                own: cell.role == Role::Own,
                bytes,
                coding_rate: figure.median,
                coding_seconds,
                io_seconds,
                modelled_joules: model.joules(coding_seconds + io_seconds, coding_seconds),
            });
        }
    }
    Ok((rows, lane.absent.clone()))
}

/// Reads the file in k pieces and writes k+m of their length into another directory, synced:
/// seconds.
fn copy(ground: &Ground, source: &std::path::Path, k: usize, m: usize) -> Result<f64, String> {
    let to = ground.folder.join("chunks");
    let failed = |error: std::io::Error| format!("{}: {error}; choose another --dir", to.display());
    std::fs::create_dir_all(&to).map_err(failed)?;
    let mut source = File::open(source).map_err(failed)?;
    let mut piece = vec![0; usize::try_from(source.metadata().map_err(failed)?.len()).map_err(|e| e.to_string())? / k];
    let began = Instant::now();
    let mut files = vec![];
    for chunk in 0..k + m {
        if chunk < k {
            source.read_exact(&mut piece).map_err(failed)?;
        }
        let mut file = File::create(to.join(chunk.to_string())).map_err(failed)?;
        file.write_all(&piece).map_err(failed)?;
        files.push(file);
    }
    files.iter().try_for_each(File::sync_data).map_err(failed)?;
    let seconds = began.elapsed().as_secs_f64();
    let _ = std::fs::remove_dir_all(&to);
    Ok(seconds)
}
