//! The end of a client: all its waits for a metadata server that is gone end together, and not one after the other.

use crate::mutex::lock;
use std::sync::{Mutex, OnceLock};
use std::time::Instant;

/// Whether a client ends, and since when its server was not heard of. Shared by the file system, which says so, and the way to the server, which waits.
#[derive(Debug, Default)]
pub struct Ending {
    begun: OnceLock<Instant>,
    heard: Mutex<Option<Instant>>,
}

impl Ending {
    /// The client ends from now on.
    pub fn begin(&self) {
        self.begun.get_or_init(Instant::now);
    }

    /// The server answered.
    pub fn hear(&self) {
        // Until it ends, nobody asks when that was.
        if self.begun.get().is_some() {
            *lock(&self.heard) = Some(Instant::now());
        }
    }

    /// Since when the client ends and has not heard of its server; None while it does not end.
    pub fn silent_since(&self) -> Option<Instant> {
        let begun = *self.begun.get()?;
        Some(lock(&self.heard).map_or(begun, |heard| heard.max(begun)))
    }
}
