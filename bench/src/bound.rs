//! What no encoder that writes to a disk can do without: the bytes of the source, written to it
//! once, and as many bytes as the parity has.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// Bytes written at a time.
const WRITE_PIECE_BYTES: usize = 1 << 20;

/// Copies a file or a tree into the folder with `cp -r`, then writes a file of as many bytes as its
/// parity has, and has both on disk: seconds. Both are removed again.
pub fn copy_and_parity(source: &Path, folder: &Path, parity_bytes: usize) -> Result<f64, String> {
    let (copy, parity) = (folder.join("copy"), folder.join("parity"));
    let piece = vec![0x5A; WRITE_PIECE_BYTES];
    let start = Instant::now();
    // A copy that shares the file's blocks would copy nothing.
    run(Command::new("cp").args(["-r", "--reflink=never"]).arg(source).arg(&copy))?;
    write_durably(&parity, &piece, parity_bytes).map_err(failed(&parity))?;
    settle(folder)?;
    let seconds = start.elapsed().as_secs_f64();
    let removed = if copy.is_dir() { fs::remove_dir_all(&copy) } else { fs::remove_file(&copy) };
    removed.and_then(|()| fs::remove_file(&parity)).map_err(failed(&copy))?;
    Ok(seconds)
}

/// Syncs the folder's file system, so that no subject pays for another's bytes.
pub fn settle(folder: &Path) -> Result<(), String> {
    run(Command::new("sync").arg("-f").arg(folder))
}

/// The piece, again and again.
pub fn write_durably(path: &Path, piece: &[u8], bytes: usize) -> std::io::Result<()> {
    let mut file = File::create_new(path)?;
    let mut left = bytes;
    while left > 0 {
        let now = left.min(piece.len());
        file.write_all(&piece[..now])?;
        left -= now;
    }
    file.sync_all()
}

/// An error with the path that it concerns.
pub fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> String {
    move |error| format!("{}: {error}", path.display())
}

fn run(command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|error| format!("{command:?}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?}: {status}")) }
}
