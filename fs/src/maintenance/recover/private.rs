//! A directory for what is not a recovered file.

use super::PRIVATE;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// A directory in the one that files are recovered to, for files that are not whole yet and for
/// links. It is removed, with all that is in it, when this is dropped.
#[derive(Debug)]
pub struct Private(PathBuf);

impl Private {
    /// Makes it in `to`.
    ///
    /// # Errors
    /// When it cannot be made, or is there.
    pub fn make(to: &Path) -> std::io::Result<Self> {
        let path = to.join(PRIVATE);
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        // There is nobody to report to.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
