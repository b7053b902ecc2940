//! One job at a time archives into a directory: the parts of its large files are in one hidden
//! directory there.

use crate::transport::Broken;
use fs::{FileLock, FileSystem};
use plan::Ino;
use std::cell::Cell;
use std::sync::Arc;
use volume::Control;

/// The lock of a directory of a cluster. Elsewhere this process has the whole volume.
pub struct DirectoryLock {
    volume: Arc<FileSystem>,
    directory: Ino,
}

/// The process is the owner: a client is locked out by others only.
fn whole() -> FileLock {
    let process = std::process::id();
    FileLock { owner: process.into(), first: 0, last: u64::MAX, exclusive: true, process }
}

impl DirectoryLock {
    /// Locks the directory of an archive, with the path `shown`, and waits for another job. The
    /// lock of one that was killed ends with the lease of its client.
    ///
    /// # Errors
    /// If the job is cancelled, or when the metadata server does not answer.
    pub fn take(
        volume: &Arc<FileSystem>,
        directory: Ino,
        shown: &[u8],
        control: &Control,
    ) -> Result<Option<Self>, Broken> {
        let is_told = Cell::new(false);
        let goes_on = || {
            if !is_told.replace(true) {
                tracing::warn!("another job archives into {}, or was killed: waiting for it", volume::shown(shown));
            }
            control.go_on().is_ok()
        };
        match volume.lock(directory, &whole(), Some(&goes_on)) {
            Ok(true) => Ok(Some(Self { volume: volume.clone(), directory })),
            Err(fs::Error::Unsupported(_)) => Ok(None),
            Ok(false) => Err(Broken(format!("another job archives into {}", volume::shown(shown)))),
            Err(why) => Err(why.into()),
        }
    }

    /// Fails when the lock was lost with the session of this client: another job may have it.
    ///
    /// # Errors
    /// With that reason.
    pub fn check(&self) -> Result<(), Broken> {
        match self.volume.holds_lock(self.directory, whole().owner) {
            true => Ok(()),
            false => Err(Broken("the metadata server did not hear of this job for too long: start it again".into())),
        }
    }
}

impl Drop for DirectoryLock {
    fn drop(&mut self) {
        // Otherwise it ends with the session.
        let _ = self.volume.unlock(self.directory, whole().owner, 0, u64::MAX);
    }
}
