//! Exclusive locks on whole directories, for processes that give files their final names or remove
//! them.

use super::Directory;
use crate::{Control, Result};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::File;
use std::time::Duration;

/// How often to retry a lock that another process holds.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// Exclusive locks on directories. Dropping this value releases them.
#[derive(Debug)]
pub struct Lock<'a>(Vec<&'a File>);

impl<'a> Lock<'a> {
    /// Waits for exclusive locks on all directories. Each directory is locked once, whatever its
    /// path. All processes lock in the same order, so there is no deadlock. Where the file system
    /// has no locks, the work continues without.
    ///
    /// # Errors
    /// If the work was cancelled.
    pub fn take(directories: impl IntoIterator<Item = &'a Directory>, control: &Control) -> Result<Self> {
        let unique: BTreeMap<_, _> = directories.into_iter().map(|d| (d.identity(), d.handle())).collect();
        let mut locked = Self(Vec::new());
        for handle in unique.into_values() {
            loop {
                match flock(handle, FlockOperation::NonBlockingLockExclusive) {
                    Err(Errno::WOULDBLOCK | Errno::INTR) => {
                        control.check()?;
                        std::thread::sleep(RETRY_INTERVAL);
                    }
                    Ok(()) => break locked.0.push(handle),
                    Err(_) => break,
                }
            }
        }
        Ok(locked)
    }
}

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(|handle| _ = flock(handle, FlockOperation::Unlock));
    }
}
