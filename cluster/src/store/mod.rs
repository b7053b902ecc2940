//! The storage server and its targets.

mod append;
mod claim;
#[cfg(test)]
mod claim_tests;
mod master;
mod protocol;
mod remote;
mod report;
mod reports;
mod service;
#[cfg(test)]
mod simulated;
#[cfg(test)]
mod simulated_claims;

pub use remote::{RemoteTarget, Stores};
pub use reports::{Reports, Seen, watch};
pub use service::Store;
