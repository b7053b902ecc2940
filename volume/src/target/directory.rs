//! A directory that holds chunk files.

use super::{FileName, Temporary};
use crate::{Error, Result};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::{Path, PathBuf};

/// An existing directory.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    handle: File,
}

impl Directory {
    /// Opens the directory at `path`.
    ///
    /// # Errors
    /// When it does not exist or is not a directory.
    pub fn open(path: &Path) -> Result<Self> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let handle = File::open(path).map_err(Error::io("open the directory", path))?;
        let found = handle.metadata().map_err(Error::io("look at", path))?;
        if !found.is_dir() {
            return Err(Error::Invalid(format!("{} is not a directory", crate::Shown(path))));
        }
        Ok(Self { path: path.to_path_buf(), handle })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The chunk files in it, committed or not, in no order.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn chunk_files(&self) -> Result<Vec<(OsString, FileName)>> {
        let entries = std::fs::read_dir(&self.path).map_err(Error::io("list", &self.path))?;
        let mut found = Vec::new();
        for entry in entries {
            let name = entry.map_err(Error::io("list", &self.path))?.file_name();
            found.extend(FileName::parse(&name).map(|parsed| (name, parsed)));
        }
        Ok(found)
    }

    /// Whether there is anything of that name.
    pub fn contains(&self, file_name: &OsStr) -> bool {
        self.path.join(file_name).symlink_metadata().is_ok()
    }

    /// Creates a chunk file under a temporary name, to be committed under `file_name`. Others may read and write it
    /// if they may the original, whose permission bits are `mode`.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn create(&self, file_name: &OsStr, mode: u32) -> Result<Temporary> {
        Temporary::create(&self.path, file_name, file_name, (mode & 0o666) | 0o600)
    }

    /// Makes committed names durable.
    ///
    /// # Errors
    /// When the system cannot.
    pub fn sync(&self) -> Result<()> {
        self.handle.sync_all().map_err(Error::io("sync the directory", &self.path))
    }
}
