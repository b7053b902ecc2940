//! The threads on which everything happens: a caller may have any runtime, and none of its threads
//! waits for disks and servers.

use objects::{Code, Error, Result};
use std::sync::OnceLock;
use tokio::runtime::{Builder, Runtime};

/// How many operations may wait for disks and servers at a time; the others wait for those.
const BLOCKING: usize = 256;

/// The runtime of all stores of this process.
///
/// # Panics
/// When the system cannot start threads.
pub fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        let mut builder = Builder::new_multi_thread();
        builder.thread_name("objects").max_blocking_threads(BLOCKING).build().expect("the system has threads")
    })
}

/// Carries something out on the runtime, to its end also when nobody waits any more.
///
/// # Errors
/// Those of the work.
pub async fn run<T: Send + 'static>(work: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
    runtime().spawn(work).await.unwrap_or_else(|_| Err(defect()))
}

/// Does work that waits for disks and servers.
///
/// # Errors
/// Those of the work.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    runtime().spawn_blocking(work).await.unwrap_or_else(|_| Err(defect()))
}

fn defect() -> Error {
    Error::with_message(Code::InternalError, "a defect ended the operation")
}
