//! The servers of a cluster, and the ways to them: a storage server has targets, and [`RemoteTarget`] is one of them seen from elsewhere; a metadata server
//! has the names of a volume, and [`connect`] opens it from elsewhere.
//!
//! ```text
//! client:  FileSystem -- Target ----> RemoteTarget ===> store:  Store -> Disk
//!                     `- meta::Port -> Link        ===> meta:   MetaServer -> Sessions -> FileSystem -> RemoteTarget ===> stores
//! ```
#![forbid(unsafe_code)]

mod address;
pub mod capability;
mod identity;
mod machine;
pub mod meta_server;
pub mod metrics;
mod places;
mod shares;
#[cfg(test)]
mod simulation;
pub mod store;

pub use address::{StoreAddress, VolumeAddress};
pub use capability::ClusterKey;
pub use identity::{Identity, Members, make_identities, use_identity};
pub use machine::start_of_machine;
pub use meta_server::{MetaServer, command, connect, keep, set_patience};
pub use places::ClusterPlaces;
pub use store::{RemoteTarget, Store};

use std::sync::OnceLock;
use tokio::runtime::{Builder, Handle, Runtime, RuntimeFlavor};
use tokio::task::JoinError;

/// Threads that move messages. Coding and disks have their own.
const THREADS: usize = 2;
/// Those that may wait at a time: as many operations as all disks of a large store take before more of them are refused.
const WAITING: usize = 4096;

/// What moves this process's messages.
///
/// # Panics
/// When the system gives no threads.
pub fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        Builder::new_multi_thread()
            .worker_threads(THREADS)
            .max_blocking_threads(WAITING)
            .thread_name("messages")
            .enable_all()
            .build()
            .expect("the system has threads")
    })
}

/// Whether the task that asks is moved by a runtime of one thread, as in simulations: nothing goes on beside it that waiting would hold up.
fn is_alone() -> bool {
    Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread
}

/// Has work done by another thread; it goes on when nobody waits for it any more.
async fn beside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, JoinError> {
    if is_alone() { Ok(work()) } else { tokio::task::spawn_blocking(work).await }
}

/// Does work that may wait for a disk or for others, while other threads go on with the messages. Handing it to one of them, and what comes of it back, would
/// take longer than most of it.
fn waiting<T>(work: impl FnOnce() -> T) -> T {
    if is_alone() { work() } else { tokio::task::block_in_place(work) }
}
