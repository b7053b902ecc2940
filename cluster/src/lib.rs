//! Servers of a cluster and the connections to them. A storage server holds targets;
//! [`RemoteTarget`] is such a target as other processes see it. A metadata server holds the names
//! of a volume; [`connect`] opens that volume from another process.
//!
//! ```text
//! client:  FileSystem -- Target ----> RemoteTarget ===> store:  Store -> Disk
//!                     `- session::port -> Link     ===> meta:   MetaServer -> Sessions
//!                                                               -> FileSystem
//!                                                               -> RemoteTarget ===> stores
//! ```
#![forbid(unsafe_code)]

mod address;
pub mod admission;
pub mod capability;
#[cfg(test)]
mod golden;
mod identity;
mod machine;
pub mod meta_server;
pub mod metrics;
mod opening;
mod places;
mod ranks;
mod shares;
#[cfg(test)]
mod simulation;
pub mod store;
pub mod whole;

pub use address::{StoreAddress, VolumeAddress};
pub use capability::ClusterKey;
pub use identity::{Identity, Members, make_identities, use_identity};
pub use machine::start_of_machine;
pub use meta_server::{MetaServer, Peer, Standby, Whereabouts, command, connect, keep, set_server_timeout};
pub use opening::{client_name, open};
pub use places::ClusterPlaces;
pub use store::{RemoteTarget, Store, set_channels};

use std::sync::OnceLock;
use tokio::runtime::{Builder, Handle, Runtime, RuntimeFlavor};
use tokio::task::JoinError;

/// Threads that process messages. Coding and disks have their own threads.
const THREADS: usize = 2;
/// Largest number of operations that may block at a time. The disks of a large store all together
/// reach this number before the store refuses more operations.
const MAX_BLOCKING_OPERATIONS: usize = 4096;

/// The runtime that processes all messages of this process.
///
/// # Panics
/// When the system cannot start threads.
pub fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        Builder::new_multi_thread()
            .worker_threads(THREADS)
            .max_blocking_threads(MAX_BLOCKING_OPERATIONS)
            .thread_name("messages")
            .enable_all()
            .build()
            .expect("the system has threads")
    })
}

/// Whether the calling task runs on a single-threaded runtime, as in simulations. Blocking there
/// delays nothing else.
fn is_alone() -> bool {
    Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread
}

/// Runs work on another thread. The work runs to its end even when the caller stops waiting for it.
async fn beside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, JoinError> {
    if is_alone() { Ok(work()) } else { tokio::task::spawn_blocking(work).await }
}

/// Runs work that may block on a disk or on other processes, while other threads process messages.
/// The work stays on the calling thread: passing it and its result between threads would take
/// longer than most of such work.
fn waiting<T>(work: impl FnOnce() -> T) -> T {
    if is_alone() { work() } else { tokio::task::block_in_place(work) }
}
