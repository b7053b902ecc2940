//! What the programs on the clients work on.

use crate::history::History;
use fs::{FileKind, FileSystem, New, ROOT};
use plan::Ino;

/// Directories whose names are checked.
pub const DIRECTORIES: usize = 2;
/// Names in each.
pub const NAMES: u8 = 4;
/// Clients, and workers on each.
pub const CLIENTS: usize = 3;
pub const WORKERS: usize = 2;
/// Files with one writer each: one for each worker.
pub const FILES: usize = CLIENTS * WORKERS;
/// Counters under locks.
pub const COUNTERS: usize = 2;
/// The numbers of the logs among the files: one that only grows, and one that is truncated.
pub const LOG: usize = FILES;
pub const CUT_LOG: usize = FILES + 1;
/// The number of the first counter among the files.
pub const FIRST_COUNTER: usize = CUT_LOG + 1;
/// The length of a record of a log in bytes.
pub const RECORD: usize = 2048;

/// The numbers that the volume gave to directories and files.
#[derive(Clone, Debug)]
pub struct Places {
    pub directories: Vec<Ino>,
    /// Files with one writer, the logs, and the counters.
    pub files: Vec<Ino>,
}

/// The length of a file with one writer, or of a counter, in bytes: in the metadata, in one short
/// stripe, or in several.
pub fn length(file: usize) -> usize {
    [400, 6_000, 50_000, 300_000][file % 4]
}

/// The content of a file in a version.
pub fn content(version: u64, length: usize) -> Vec<u8> {
    version.to_le_bytes().into_iter().cycle().take(length).collect()
}

/// The version of a content; None if it has no valid version. An empty file has version 0.
pub fn version(bytes: &[u8]) -> Option<u64> {
    let Some(first) = bytes.first_chunk::<8>() else { return bytes.is_empty().then_some(0) };
    bytes.chunks(8).all(|word| word == &first[..word.len()]).then(|| u64::from_le_bytes(*first))
}

/// A new file or directory.
pub fn new(kind: FileKind) -> New {
    let mode = if kind == FileKind::File { 0o644 } else { 0o755 };
    New { kind, mode, uid: 1, gid: 2, device: 0, link: Vec::new() }
}

/// The bytes of a name.
pub fn name(number: u8) -> [u8; 1] {
    [b'a' + number]
}

/// Makes what the programs work on.
pub fn prepare(history: &History, fs: &FileSystem) -> fs::Result<Places> {
    let directory = |number| Ok(fs.make(ROOT, format!("d{number}").as_bytes(), &new(FileKind::Directory))?.ino);
    let file = |number| Ok(fs.make(ROOT, format!("f{number}").as_bytes(), &new(FileKind::File))?.ino);
    let directories = (0..DIRECTORIES).map(directory).collect::<fs::Result<_>>()?;
    let files = (0..FIRST_COUNTER + COUNTERS).map(file).collect::<fs::Result<_>>()?;
    fs.sync_all()?;
    let span = history.begin();
    world::note(format_args!("all is prepared at {}", span.begin));
    Ok(Places { directories, files })
}
