//! A file that other processes do not see until it is complete. It has a temporary name until it is
//! committed; if it is dropped before, it is removed.

use super::names::temporary_file_name;
use super::{Directory, Durable, FileName, TargetFile};
use crate::{Error, Result};
use plan::Position;
use rustix::fs::{FlockOperation, flock};
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::IoSlice;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// A file that is not committed yet.
#[derive(Debug)]
pub struct Temporary {
    directory: Directory,
    /// What the target calls it, and will call it.
    new: TargetFile,
    committed: TargetFile,
    file: Arc<File>,
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
    pub fn create(directory: &Directory, temporary_name: &OsStr, file_name: &OsStr, mode: u32) -> Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let place = directory.path();
        let set = directory.number();
        let position = FileName::parse(file_name).map_or(Position(0), |parsed| parsed.position);
        let new = TargetFile::NewChunk { set, position };
        loop {
            let name = temporary_file_name(temporary_name, NUMBER.fetch_add(1, Ordering::Relaxed));
            let path = place.join(&name);
            match OpenOptions::new().read(true).write(true).create_new(true).mode(mode).open(&path) {
                Ok(file) => {
                    let (file, destination) = (Arc::new(file), place.join(file_name));
                    directory.disk().adopt(new, &name, file.clone()).map_err(Error::io("look at", &path))?;
                    let (committed, keep) = (TargetFile::Chunk { set, position }, AtomicBool::new(false));
                    return Ok(Self { directory: directory.clone(), new, committed, file, path, destination, keep });
                }
                // A process with the same id left this file when it was killed.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Error::io("create a file in", place)(error)),
            }
        }
    }

    /// The file, for its attributes. Its content is written by `write`.
    pub fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// What the target calls it until `commit`.
    pub fn target_file(&self) -> TargetFile {
        self.new
    }

    /// Its current path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its path after `commit`.
    pub fn destination(&self) -> &Path {
        &self.destination
    }

    /// Writes bytes, one part after the other, from `offset` on.
    ///
    /// # Errors
    /// If the target fails to write them all.
    pub fn write(&self, offset: u64, parts: &[&[u8]]) -> Result<()> {
        let parts: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let written = self.directory.target().write(self.new, offset, &parts, Durable::Later);
        written.map(drop).map_err(Error::io("write", &self.destination))
    }

    /// Makes its content durable. After an error, the content is unknown and must not be committed.
    ///
    /// # Errors
    /// If the target fails to sync the file.
    pub fn sync(&self) -> Result<()> {
        self.directory.target().sync(self.new).map(drop).map_err(Error::io("sync", &self.path))
    }

    /// Gives the file its final name in one step, which is durable on return. With `replace`, it
    /// replaces an existing file.
    ///
    /// # Errors
    /// `Conflict` if the name exists and must not be replaced.
    pub fn commit(&self, replace: bool) -> Result<()> {
        let name = self.destination.file_name().unwrap_or_default();
        self.directory.disk().name_file(self.committed, name, replace);
        let renamed = self.directory.target().rename(self.new, self.committed);
        renamed.map_err(Error::io("rename a file to", &self.destination))?;
        self.keep();
        Ok(())
    }

    /// Removes the file after `commit`.
    pub fn withdraw(&self) {
        // There is an error already that is reported.
        let _ = self.directory.target().remove(self.committed);
    }

    /// Keeps the file when this value is dropped.
    pub fn keep(&self) {
        self.keep.store(true, Ordering::Relaxed);
    }
}

impl Directory {
    /// Creates a chunk file under a temporary name, to be committed under `file_name`. Other users
    /// may read and write it if the permission bits `mode` of the original allow it.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn create(&self, file_name: &OsStr, mode: u32) -> Result<Temporary> {
        loop {
            let temporary = Temporary::create(self, file_name, file_name, (mode & 0o666) | 0o600)?;
            // The lock shows other processes that work on this name that the file is in use. Where
            // locks do not work, no process removes files of others. A process that found the file
            // before the lock may be about to remove it, and holds the lock until then.
            let _ = flock(temporary.file(), FlockOperation::LockExclusive);
            let there = std::fs::symlink_metadata(temporary.path());
            if !there.is_err_and(|why| why.kind() == std::io::ErrorKind::NotFound) {
                return Ok(temporary);
            }
        }
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.keep.load(Ordering::Relaxed) {
            // There is no caller to report to. The next encoder of this name removes the file.
            let _ = self.directory.target().remove(self.new);
        }
    }
}
