//! Opens files that must be regular: nothing else may keep the opener waiting or be read for a fragment.

use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens a regular file for reading, and never waits for whoever has the other end of a pipe.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    let regular = |found: std::fs::Metadata| {
        let other = || io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file");
        if found.is_file() { Ok(()) } else { Err(other()) }
    };
    // Looked at first, because opening a device may already do something, and again, because it may be another now.
    std::fs::metadata(path).and_then(regular)?;
    let file = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)?;
    file.metadata().and_then(regular)?;
    Ok(file)
}
