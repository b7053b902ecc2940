//! Locking without fear of threads that panicked: what they left is checked where it is used.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The content of a mutex, even if somebody panicked who had it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
