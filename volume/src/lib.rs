//! Stripes on targets: the chunk format, directory targets, and the encoder, decoder, verifier and
//! repairer of single objects.
//!
//! This library is the basis of everything that stores bytes. It prints nothing, returns only
//! verified data, and holds at most one stripe per thread in memory.
#![forbid(unsafe_code)]

mod control;
pub mod counts;
mod error;
pub mod format;
mod limit;
pub mod machine;
mod meter;
mod mutex;
pub mod object;
mod open_files;
#[macro_use]
pub mod ranked;
pub mod set;
pub mod steps;
pub mod target;
mod targets;

pub use control::{Control, Progress};
pub use error::{Error, Shown, shown};
pub use limit::Limit;
pub use meter::{Meter, Metered, Metering};
pub use mutex::{lock, unpoisoned};
pub use open_files::allow_many_open_files;
pub use set::{
    Appended, BlockState, BufferPool, Distributed, FoundChunk, Identity, Master, NoMaster, Order, ReadReport,
    RebuildOrder, RebuildReport, Scanned, Sealing, SetLayout, SetWriter, StripeBuffer, StripeReport, Synced, identify,
    read, read_at_hand, read_manifest, rebuild, record_range, scan, verify_stripe,
};
pub use steps::{Carried, Cost, StepTotals, Steps, WriteStep};
pub use targets::{Answer, Health, ReportedSpace, TargetHealth, Targets, Wait, ask_all};

/// The result type of this crate.
pub type Result<T> = std::result::Result<T, Error>;
