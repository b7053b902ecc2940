//! A file that does not exist for others until it is whole: it has a temporary name until it is committed, and is
//! removed when it is dropped before.

use super::names::temporary_file_name;
use crate::{Error, Result};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// A file that is being written.
#[derive(Debug)]
pub struct Temporary {
    file: File,
    path: PathBuf,
    destination: PathBuf,
    keep: AtomicBool,
}

impl Temporary {
    /// Creates it in `directory`, to be committed there under `file_name`. Until then it is called by
    /// `temporary_name`, which leaves room for an ending. It has the permission bits `mode`, less the process's umask.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn create(directory: &Path, temporary_name: &OsStr, file_name: &OsStr, mode: u32) -> Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let destination = directory.join(file_name);
        loop {
            let path = directory.join(temporary_file_name(temporary_name, NUMBER.fetch_add(1, Ordering::Relaxed)));
            match OpenOptions::new().read(true).write(true).create_new(true).mode(mode).open(&path) {
                Ok(file) => return Ok(Self { file, path, destination, keep: AtomicBool::new(false) }),
                // Left by a process that had this id before and was killed.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Error::io("create a file in", directory)(error)),
            }
        }
    }

    /// The file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Where it is now.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where `commit` puts it.
    pub fn destination(&self) -> &Path {
        &self.destination
    }

    /// Makes its content durable. After an error nothing is known of the content, so it must not be committed.
    ///
    /// # Errors
    /// When the system cannot.
    pub fn sync(&self) -> Result<()> {
        self.file.sync_all().map_err(Error::io("sync", &self.path))
    }

    /// Gives it its name, in one step; `replace` says whether a file that has it may go.
    ///
    /// # Errors
    /// `Conflict` when the name is taken and may not be replaced.
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

    /// Leaves the file where it is when this is dropped.
    pub fn keep(&self) {
        self.keep.store(true, Ordering::Relaxed);
    }
}

/// Renames a file to a name that nothing has.
///
/// # Errors
/// `Conflict` when something has it.
pub(crate) fn rename_new(from: &Path, to: &Path) -> Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(()),
        // Not every file system has this operation; there, another process may slip in between.
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
            // Nobody is left to tell; the next encoder of this name removes what stays behind.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
