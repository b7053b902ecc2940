//! Targets behind a storage server.

mod master;
mod protocol;
mod remote;
mod service;

pub use remote::{RemoteTarget, Stores};
pub use service::Store;
