//! A file that other processes do not see until it is complete. It has a temporary name until it is
//! committed; if it is dropped before, it is removed.

use super::names::temporary_file_name;
use crate::{Error, Result};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// A file that is not committed yet.
#[derive(Debug)]
pub struct Temporary {
    file: File,
    path: PathBuf,
    destination: PathBuf,
    keep: AtomicBool,
}

impl Temporary {
    /// Creates it in `directory`, to be committed there under `file_name`. Until then its name
    /// starts with `temporary_name`, which must leave space for a suffix. It has the permission
    /// bits `mode`, less the process's umask.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn create(directory: &Path, temporary_name: &OsStr, file_name: &OsStr, mode: u32) -> Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let destination = directory.join(file_name);
        loop {
            let path = directory.join(temporary_file_name(temporary_name, NUMBER.fetch_add(1, Ordering::Relaxed)));
            match OpenOptions::new().read(true).write(true).create_new(true).mode(mode).open(&path) {
                Ok(file) => return Ok(Self { file, path, destination, keep: AtomicBool::new(false) }),
                // A process with the same id left this file when it was killed.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Error::io("create a file in", directory)(error)),
            }
        }
    }

    /// The file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Its current path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its path after `commit`.
    pub fn destination(&self) -> &Path {
        &self.destination
    }

    /// Makes its content durable. After an error, the content is unknown and must not be committed.
    ///
    /// # Errors
    /// If the system fails to sync the file.
    pub fn sync(&self) -> Result<()> {
        self.file.sync_all().map_err(Error::io("sync", &self.path))
    }

    /// Gives the file its final name in one step. With `replace`, it replaces an existing file.
    ///
    /// # Errors
    /// `Conflict` if the name exists and must not be replaced.
    pub fn commit(&self, replace: bool) -> Result<()> {
        let (from, to) = (&self.path, &self.destination);
        if replace {
            std::fs::rename(from, to).map_err(Error::io("rename a file to", to))?;
        } else {
            rename_new(from, to)?;
        }
        self.keep();
        Ok(())
    }

    /// Keeps the file when this value is dropped.
    pub fn keep(&self) {
        self.keep.store(true, Ordering::Relaxed);
    }
}

/// Renames a file to a name that must not exist.
///
/// # Errors
/// `Conflict` if the name exists.
pub(crate) fn rename_new(from: &Path, to: &Path) -> Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(()),
        // Not every file system has this operation; without it, another process may take the name
        // in between.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
            if to.symlink_metadata().is_ok() {
                return Err(Error::exists(to));
            }
            std::fs::rename(from, to).map_err(Error::io("rename a file to", to))
        }
        Err(error) => Err(Error::io("rename a file to", to)(error)),
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.keep.load(Ordering::Relaxed) {
            // There is no caller to report to. The next encoder of this name removes the file.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
