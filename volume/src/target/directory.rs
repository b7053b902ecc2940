//! A directory that holds fragments of single files.

use super::{Disk, FileName, Target, TargetFile};
use crate::{Error, Result};
use plan::{Position, SetId};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// An existing directory that holds fragments of single files. Names are its business; their bytes
/// go through a [`Target`].
#[derive(Clone, Debug)]
pub struct Directory {
    disk: Arc<Disk>,
    target: Arc<dyn Target>,
    /// How many of its files have a number on the target.
    numbered: Arc<AtomicU64>,
}

impl Directory {
    /// Opens the directory at `path`.
    ///
    /// # Errors
    /// When it does not exist or is not a directory.
    pub fn open(path: &Path) -> Result<Self> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let disk = Disk::open(path).map_err(|error| match error {
            Error::Io { source, .. } if source.kind() == std::io::ErrorKind::NotADirectory => {
                Error::Invalid(format!("{} is not a directory", crate::Shown(path)))
            }
            error => error,
        })?;
        let disk = Arc::new(disk);
        Ok(Self { target: disk.clone(), disk, numbered: Arc::default() })
    }

    /// Opens several directories.
    ///
    /// # Errors
    /// As `open`.
    pub fn open_all(paths: &[PathBuf]) -> Result<Vec<Self>> {
        paths.iter().map(|path| Self::open(path)).collect()
    }

    /// The same directory behind a decorator of its target.
    #[must_use]
    pub fn decorated(self, decorate: impl FnOnce(Arc<dyn Target>) -> Arc<dyn Target>) -> Self {
        Self { target: decorate(self.target), ..self }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        self.disk.path()
    }

    /// Device and inode: they identify the directory, whatever path opened it.
    pub fn identity(&self) -> (u64, u64) {
        self.disk.identity()
    }

    /// The target that the bytes of its files go through.
    pub fn target(&self) -> &dyn Target {
        &*self.target
    }

    pub(super) fn handle(&self) -> &File {
        self.disk.directory()
    }

    pub(super) fn disk(&self) -> &Disk {
        &self.disk
    }

    /// A number of a chunk set that no other file of the directory has on the target.
    pub(super) fn number(&self) -> SetId {
        SetId(self.numbered.fetch_add(1, Ordering::Relaxed))
    }

    /// Puts an open file on the target, to be read there; `path` is its path.
    ///
    /// # Errors
    /// If the system does not tell which file it is.
    pub fn adopt(&self, path: &Path, position: Position, opened: Arc<File>) -> Result<TargetFile> {
        let file = TargetFile::Chunk { set: self.number(), position };
        let name = path.file_name().unwrap_or_default();
        self.disk.adopt(file, name, opened).map_err(Error::io("look at", path))?;
        Ok(file)
    }

    /// The chunk files in it, committed or not, in no particular order.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn chunk_files(&self) -> Result<Vec<(OsString, FileName)>> {
        let entries = std::fs::read_dir(self.path()).map_err(Error::io("list", self.path()))?;
        let mut found = Vec::new();
        for entry in entries {
            let name = entry.map_err(Error::io("list", self.path()))?.file_name();
            found.extend(FileName::parse(&name).map(|parsed| (name, parsed)));
        }
        Ok(found)
    }

    /// Whether an entry of that name exists.
    ///
    /// # Errors
    /// `Invalid` if a file cannot replace it.
    pub fn contains(&self, file_name: &OsStr) -> Result<bool> {
        let path = self.path().join(file_name);
        match path.symlink_metadata() {
            Ok(found) if found.is_file() || found.is_symlink() => Ok(true),
            Ok(_) => Err(Error::Invalid(format!("{} is not a regular file; move it away first", crate::Shown(&path)))),
            Err(_) => Ok(false),
        }
    }
}
