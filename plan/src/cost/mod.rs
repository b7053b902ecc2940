//! What a write costs, step by step, after the write-cost analysis of ExSTorus-FS (E7, E8).
//!
//! - [`formulas`]: equations (1) to (6) as the paper has them.
//! - [`setting`]: the code, the record, the servers and the network that a prediction is for.
//! - [`serial`]: one record after the other: the steps add up. What (6) gives for a setting.
//! - [`pipelined`]: many records at once: the steps overlap, and the resource that is busy first
//!   limits. That is how programs without `fsync` write here.
//!
//! Times are seconds, sizes are bytes, speeds are bytes a second. Constants come from a
//! measurement; this module has none of its own.

pub mod formulas;
pub mod pipelined;
pub mod serial;
pub mod setting;

pub use formulas::StepTimes;
pub use pipelined::{Load, Pipelined, Resource};
pub use setting::{Constants, Line, Link, Setting, Way};
