//! Files that are open for reading: who replaces or removes one leaves its bytes to the reader.

use fs::{FileSystem, Ino};
use std::sync::Arc;

/// A file that is open for reading until this is dropped.
pub struct Opened {
    /// Its file system.
    pub fs: Arc<FileSystem>,
    /// Its number.
    pub ino: Ino,
}

impl Opened {
    /// Opens a file.
    ///
    /// # Errors
    /// `Stale` when it is gone.
    pub fn new(fs: &Arc<FileSystem>, ino: Ino) -> fs::Result<Self> {
        fs.open(ino, false)?;
        Ok(Self { fs: fs.clone(), ino })
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        let (fs, ino) = (self.fs.clone(), self.ino);
        let close = move || fs.close(ino);
        // Closing may ask a server.
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(close)),
            Err(_) => close(),
        }
    }
}
