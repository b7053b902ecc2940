//! Locks on whole directories: who gives files their final names, or takes files away, does it alone.

use super::Directory;
use crate::{Control, Result};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::File;
use std::time::Duration;

/// How often a lock is tried that another process has.
const INTERVAL: Duration = Duration::from_millis(20);

/// Exclusive locks on some directories, released when this is dropped.
#[derive(Debug)]
pub struct Lock<'a>(Vec<&'a File>);

impl<'a> Lock<'a> {
    /// Waits until no other process has a lock on any of the directories. Each is locked once, whatever it is called,
    /// and all processes lock in the same order, so that none waits for another in a circle. Where the file system
    /// has no locks, the work goes on without.
    ///
    /// # Errors
    /// When it was cancelled.
    pub fn take(directories: impl IntoIterator<Item = &'a Directory>, control: &Control) -> Result<Self> {
        let unique: BTreeMap<_, _> = directories.into_iter().map(|d| (d.identity(), d.handle())).collect();
        let mut locked = Self(Vec::new());
        for handle in unique.into_values() {
            loop {
                match flock(handle, FlockOperation::NonBlockingLockExclusive) {
                    Err(Errno::WOULDBLOCK | Errno::INTR) => {
                        control.check()?;
                        std::thread::sleep(INTERVAL);
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
