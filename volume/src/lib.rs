//! Stripes on targets: the chunk format, directory targets, and the encoder, decoder, verifier and repairer of
//! single objects.
//!
//! The library of everything that stores bytes. It prints nothing, hands up nothing that was not verified, and keeps
//! no more in memory than a stripe per thread.
#![forbid(unsafe_code)]

mod control;
mod error;
pub mod format;
pub mod object;
pub mod set;
pub mod target;
mod targets;

pub use control::Control;
pub use error::{Error, Shown};
pub use set::{
    Appended, BlockState, BufferPool, Distributed, Master, NoMaster, Order, ReadReport, RebuildReport, Scanned,
    SetLayout, SetWriter, StripeBuffer, StripeReport, Times, read, read_manifest, rebuild, record_range, scan,
    verify_stripe,
};
pub use targets::{Health, TargetHealth, Targets};

/// Results of this crate.
pub type Result<T> = std::result::Result<T, Error>;
