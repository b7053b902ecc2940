//! Opens files that must be regular: any other kind could block the opener or be read as a
//! fragment.

use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens a regular file for reading. Never waits for the other end of a pipe.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    let regular = |found: std::fs::Metadata| {
        let other = || io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file");
        if found.is_file() { Ok(()) } else { Err(other()) }
    };
    // Check before, because opening a device may have side effects, and after, because the file may
    // have been replaced.
    std::fs::metadata(path).and_then(regular)?;
    let file = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)?;
    file.metadata().and_then(regular)?;
    Ok(file)
}

/// Reads from the beginning of a file until `into` is full or the file ends. Returns the number of
/// bytes read.
pub(crate) fn read_at_most(file: &File, into: &mut [u8]) -> io::Result<usize> {
    super::read_at(file, 0, &mut [into])
}
