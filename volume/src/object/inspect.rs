//! What one file says about itself, even if it is damaged, and without the others of its object.

use super::fragment::{Fragment, FragmentCandidate};
use super::problems::{Problem, ProblemKind};
use super::rows::zeroed;
use crate::format::{FormatError, Header};
use crate::target::{Directory, FileName};
use crate::{Control, Result};
use plan::Position;
use std::path::Path;

/// What was found in a file.
#[derive(Debug)]
pub struct Inspection {
    /// Its header.
    pub header: std::result::Result<Header, FormatError>,
    /// Its length.
    pub file_bytes: u64,
    /// How many of its blocks match their checksums.
    pub sound_blocks: u64,
    /// The first problem of its records, and of its length.
    pub problems: Vec<Problem>,
}

/// Reads a fragment file: its header, and every block if the header is sound.
///
/// # Errors
/// When the file cannot be read, or it was cancelled.
pub fn inspect(path: &Path, control: &Control) -> Result<Inspection> {
    let none = FileName { stem: Vec::new(), position: Position(0), written_by: None };
    let FragmentCandidate { path, file, file_bytes, header, .. } =
        FragmentCandidate::open(path.to_path_buf(), 0, none)?;
    let mut found = Inspection { header, file_bytes, sound_blocks: 0, problems: Vec::new() };
    let Ok(header) = &found.header else { return Ok(found) };
    let layout = &header.layout;
    control.begin(layout.file_bytes());
    if file_bytes != layout.file_bytes() {
        let kind = if file_bytes < layout.file_bytes() { ProblemKind::Truncated } else { ProblemKind::Length };
        let what = format!("it has {file_bytes} bytes and should have {}", layout.file_bytes());
        found.problems.push(Problem::new(kind, path.clone(), header.position, what));
    }
    let directory = Directory::open(path.parent().unwrap_or(Path::new("")))?;
    let position = header.position;
    let stored = directory.adopt(&path, position, file.clone())?;
    let fragment = Fragment { path, file, stored, position, directory: 0, headed: true, sound: true, committed: true };
    let mut record = zeroed(layout.record_bytes(0))?;
    let mut first: Option<Problem> = None;
    for stripe in 0..layout.stripes() {
        control.check()?;
        let record = &mut record[..layout.record_bytes(stripe)];
        match fragment.read_block(directory.target(), header.object, layout, stripe, record) {
            Ok(()) => found.sound_blocks += 1,
            Err(problem) => match &mut first {
                Some(known) => known.stripes += 1,
                None => first = Some(problem),
            },
        }
        control.advance(record.len());
        // A header that claims far more than the file has would keep this busy for long.
        if layout.record_offset(stripe) > file_bytes {
            break;
        }
    }
    found.problems.extend(first);
    Ok(found)
}
