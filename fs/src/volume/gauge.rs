//! What the server of a target said last of how busy it is. Who has the reports sets it, and who
//! places chunks reads it: with thousands of targets, nobody looks for them by name every second.

use plan::placement::Observed;
use std::sync::{Arc, Mutex};
use volume::lock;

/// A place for the last report of a target, shared by all clones.
#[derive(Clone, Debug, Default)]
pub struct Gauge(Arc<Mutex<Option<Observed>>>);

impl Gauge {
    /// The server said this; None, if nothing is known of an interval.
    pub fn set(&self, observed: Option<Observed>) {
        *lock(&self.0) = observed;
    }

    /// What it said last.
    pub fn get(&self) -> Option<Observed> {
        *lock(&self.0)
    }
}
