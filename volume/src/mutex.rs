//! Locks without poisoning: a thread that panicked does not block others. The users of a lock check
//! what it left.

use std::sync::{LockResult, Mutex, MutexGuard, PoisonError};

/// Locks a mutex, even if its last holder panicked.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    unpoisoned(mutex.lock())
}

/// What a lock of another kind, or a wait, returned, even if the last holder panicked.
pub fn unpoisoned<T>(found: LockResult<T>) -> T {
    found.unwrap_or_else(PoisonError::into_inner)
}
