//! The end of a client: all its waits for an absent metadata server end together, not one after the
//! other.

use std::sync::{Mutex, OnceLock};
use std::time::Instant;
use volume::lock;

/// Whether a client is ending, and since when its server has been silent. The file system sets it,
/// and the connection to the server, which waits, reads it.
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
        // The time does not matter until the client ends.
        if self.begun.get().is_some() {
            *lock(&self.heard) = Some(Instant::now());
        }
    }

    /// Since when the client has been ending without an answer of the server; None while it is not
    /// ending.
    pub fn silent_since(&self) -> Option<Instant> {
        let begun = *self.begun.get()?;
        Some(lock(&self.heard).map_or(begun, |heard| heard.max(begun)))
    }
}
