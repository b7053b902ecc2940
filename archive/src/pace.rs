//! How fast the last job into a directory of a volume was.

use crate::report::Facts;
use serde::{Deserialize, Serialize};

/// The attribute that stores the pace of the last job into a directory of a volume.
pub(crate) const PACE_ATTRIBUTE: &[u8] = b"user.weft.pace";

/// The pace of a job.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Pace {
    pub bytes_per_second: f64,
    pub files_per_second: f64,
}

impl Pace {
    /// The estimated time for this amount of work: the slower of the rates for files and for bytes
    /// decides.
    pub fn seconds(&self, facts: &Facts) -> f64 {
        let by = |amount: u64, rate: f64| if rate > 0.0 { amount as f64 / rate } else { 0.0 };
        by(facts.bytes, self.bytes_per_second).max(by(facts.files, self.files_per_second))
    }
}
