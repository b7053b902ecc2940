//! What a write costs, step by step, after the write-cost analysis of ExSTorus-FS (E7, E8).
//!
//! - [`formulas`]: equations (1) to (6) as the paper has them.
//! - [`setting`]: the code, the record, the servers and the network that a prediction is for.
//! - [`serial`]: one record after the other: the steps add up. What (6) gives for a setting.
//! - [`pipelined`]: many records at once: the steps overlap, and the resource that is busy first
//!   limits. That is how programs without `fsync` write here.
//! - [`measured`]: what `weft bench write-cost` measured.
//! - [`streams`]: what it measured of threads that do not wait, and how the steps overlap.
//! - [`fit`], [`calibration`]: constants from that, and how well they predict.
//!
//! Times are seconds, sizes are bytes, speeds are bytes a second. Constants come from a
//! measurement; this module has none of its own.

pub mod calibration;
pub mod fit;
pub mod formulas;
pub mod measured;
pub mod pipelined;
pub mod serial;
pub mod setting;
pub mod streams;

pub use calibration::Calibration;
pub use formulas::StepTimes;
pub use measured::Measurement;
pub use pipelined::{Load, Pipelined, Resource};
pub use setting::{Constants, Line, Link, Setting, Way};
