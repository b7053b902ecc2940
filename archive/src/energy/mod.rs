//! How much energy this machine uses, from the most trusted source that it has, and a job's account
//! of it (S3-S5).
//!
//! A measured figure names its instrument, a modelled figure names its constants. A source that
//! reads zero, does not change, is stale or is implausible is refused with the reason; no figure is
//! invented in its place.

mod calibrate;
mod choice;
mod curve;
mod gpu;
mod job;
mod look;
mod meter;
mod model;
mod perf;
mod rapl;
mod sampler;
mod service;
mod source;
mod tail;

pub use calibrate::{Calibration, CalibrationStep, Plan as CalibrationPlan, busy_seconds};
pub use choice::{Choice, FoundSource};
pub use job::account;
pub use look::{Seen, look};
pub use model::Model;
pub use sampler::{Finished, Sampler};
pub use source::{Reading, Source};
