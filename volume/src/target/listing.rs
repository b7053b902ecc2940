//! The files of one directory of a target.

use super::TargetFile;
use super::volume_names::file_of;
use rustix::fd::AsFd;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::io;

/// Adds Weft's files in one directory of a target with their lengths. A directory that does not
/// exist has none.
pub(super) fn list_directory(target: impl AsFd, directory: &str, found: &mut Vec<(TargetFile, u64)>) -> io::Result<()> {
    let handle = match rustix::fs::openat(target, directory, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        handle => handle?,
    };
    for entry in rustix::fs::Dir::read_from(&handle)? {
        let entry = entry?;
        let Some(file) = entry.file_name().to_str().ok().and_then(|name| file_of(directory, name)) else {
            continue;
        };
        match rustix::fs::statat(handle.as_fd(), entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => found.push((file, stat.st_size as u64)),
            Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
