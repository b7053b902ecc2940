//! Targets behind a storage server.

mod protocol;
mod remote;
mod service;

pub use remote::{RemoteTarget, Stores};
pub use service::Store;
