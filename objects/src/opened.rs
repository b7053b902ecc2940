//! Files that are open for reading: who replaces or removes one leaves its bytes to the reader.

use fs::{FileSystem, Ino};
use std::sync::Arc;

/// A file that is open for reading until this is dropped.
pub struct Opened {
    /// Its file system.
    pub fs: Arc<FileSystem>,
    /// Its number.
    pub ino: Ino,
    is_closed: bool,
}

impl Opened {
    /// Opens a file.
    ///
    /// # Errors
    /// `Stale` when it is gone.
    pub fn new(fs: &Arc<FileSystem>, ino: Ino) -> fs::Result<Self> {
        fs.open(ino, false)?;
        Ok(Self { fs: fs.clone(), ino, is_closed: false })
    }

    /// Closes it now if that asks no server. Nobody waits for an answer of one.
    pub fn close(mut self) {
        if !self.fs.is_shared() {
            self.is_closed = true;
            self.fs.close(self.ino);
        }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if self.is_closed {
            return;
        }
        let (fs, ino) = (self.fs.clone(), self.ino);
        let close = move || fs.close(ino);
        // Closing may ask a server.
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(close)),
            Err(_) => close(),
        }
    }
}
