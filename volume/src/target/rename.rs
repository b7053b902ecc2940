//! Renaming without replacing.

use rustix::fd::AsFd;
use rustix::fs::{AtFlags, RenameFlags, renameat, renameat_with, statat};
use rustix::io::Errno;
use std::path::Path;

/// Renames a file to a name that must not exist; both are in `directory` or absolute.
///
/// # Errors
/// `EXIST` if the name exists.
pub fn rename_new(directory: impl AsFd, from: &Path, to: &Path) -> rustix::io::Result<()> {
    match renameat_with(&directory, from, &directory, to, RenameFlags::NOREPLACE) {
        // Not every file system has this operation; without it, another process may take the name
        // in between.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => match statat(&directory, to, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Err(Errno::EXIST),
            Err(_) => renameat(&directory, from, &directory, to),
        },
        done => done,
    }
}
