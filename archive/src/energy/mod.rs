//! How much energy this machine uses, read from the most trustworthy source that it has, and a job's account of it (S3-S5).
//!
//! A figure is measured and says by what, or modelled and says from which constants. What reads zero, stands still, is stale
//! or cannot be believed is refused with the reason; nothing is made up in its place.

mod calibrate;
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

pub use calibrate::{Calibration, Plan as CalibrationPlan, Step, busy_seconds};
pub use job::account;
pub use look::{Seen, look};
pub use model::Model;
pub use sampler::{Finished, Sampler};
pub use source::{Choice, Found, Reading, Source};
