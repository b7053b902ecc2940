//! Panics in the engine's threads. The panic hook logs the message; here a panic becomes an error,
//! so that no caller waits for ever for a thread that has ended.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Does work of a thread. A panic becomes an error that names the thread.
pub(super) fn caught<T>(thread: &str, work: impl FnOnce() -> T) -> Result<T, String> {
    // The callers use nothing that the work had changed, except behind locks that stay usable.
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let said = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
        format!("a defect in the thread {thread}, please report it: {said}")
    })
}
