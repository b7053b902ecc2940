//! The storage server and its targets.

mod append;
mod claim;
#[cfg(test)]
mod claim_tests;
mod counts;
mod gather;
mod master;
mod primes;
mod protocol;
mod remote;
mod report;
mod reports;
mod service;
#[cfg(test)]
mod simulated;
#[cfg(test)]
mod simulated_claims;
mod slots;
mod told;
mod unsynced;
mod watch;

pub use remote::{RemoteTarget, Stores, set_channels};
pub use reports::{Reports, Seen};
pub use service::Store;
pub use watch::watch;
