//! What a simulation found: as a document, as text, and as a page.

mod chart;
mod page;
mod terminal;

pub use chart::{bars, escape, lines};
pub use page::{STYLE, html};
pub use terminal::{duration, text};

use crate::config::Config;
use crate::fill::Filled;
use crate::growth::Grown;
use crate::hops::Hops;
use crate::writes::Writes;
use crate::years::Years;
use serde::Serialize;

/// A simulation and what it found. Bytes and seconds, if nothing else is said.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The form of this document.
    pub version: u32,
    /// What was simulated, with what the file left out.
    pub config: Config,
    /// Stores at the beginning.
    pub stores: u64,
    /// Bytes of all disks at the beginning.
    pub capacity: u64,
    /// After all sets were placed.
    pub filled: Filled,
    /// Where there is a torus: hops.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub torus: Option<Hops>,
    /// The steps of growth, one after the other.
    pub growth: Vec<Grown>,
    /// After all of them.
    pub grown: Option<Filled>,
    /// How many stores have how much: of ten equal parts between empty and the fullest.
    pub used_parts: Vec<u64>,
    /// Clients at work.
    pub writes: Option<Writes>,
    /// Years of failures.
    pub years: Option<Years>,
}

impl Report {
    /// As JSON: the same bytes for the same simulation.
    pub fn json(&self) -> serde_json::Value {
        // Numbers that are none do not occur, and all keys are text.
        serde_json::to_value(self).unwrap_or_default()
    }
}
