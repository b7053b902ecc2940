//! What a job's energy was spent on, what it costs, and what it would cost elsewhere, after the
//! energy study (S3, S4).
//!
//! Arithmetic only: joules, watts, seconds and bytes in, joules and money out. It never says
//! whether a figure was measured without being told, and never mixes what was measured with what
//! was modelled.

mod account;
mod cost;
mod phases;
mod profile;

pub use account::{Account, Basis, PhaseEnergy, Scope, Split};
pub use cost::{Cost, Overlap, Storing, project, published_coded, published_copies, site_bytes};
pub use phases::{Constants, Times, attribute, total};
pub use profile::{Coding, Profile};

/// Joules in a kilowatt-hour.
pub const JOULES_PER_KWH: f64 = 3_600_000.0;

/// Bytes in a gibibyte.
pub const GIB: f64 = (1u64 << 30) as f64;
