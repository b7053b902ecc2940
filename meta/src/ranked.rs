//! Locks that are held only briefly: never while waiting for a server, and nested only from a lower
//! rank to a higher one. Builds with debug assertions check both rules.
//!
//! A thread that waits for a server under such a lock would block work that needs no server, for as
//! long as the server is unreachable. Work that only one thread may do at a time, however long it
//! takes, uses a mutex without a rank; then only threads that want the same work wait.

use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, Mutex, MutexGuard};
use volume::{lock, unpoisoned};

/// A mutex with a rank.
#[derive(Debug)]
pub struct Ranked<T, const RANK: u32>(Mutex<T>);

impl<T: Default, const RANK: u32> Default for Ranked<T, RANK> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

/// Access to the content of a locked mutex.
#[derive(Debug)]
pub struct Guard<'a, T, const RANK: u32> {
    /// Always `Some`, except during a wait.
    guard: Option<MutexGuard<'a, T>>,
    _held: Held<RANK>,
}

impl<T, const RANK: u32> Ranked<T, RANK> {
    /// Wraps content in a lock.
    pub fn new(content: T) -> Self {
        Self(Mutex::new(content))
    }

    /// Locks the mutex. A panic of an earlier holder is ignored.
    pub fn lock(&self) -> Guard<'_, T, RANK> {
        let held = Held::new();
        Guard { guard: Some(lock(&self.0)), _held: held }
    }
}

impl<T, const RANK: u32> Guard<'_, T, RANK> {
    /// Releases the lock and waits for `signal`, as long as `waits` returns true.
    #[must_use]
    pub fn wait_while(mut self, signal: &Condvar, mut waits: impl FnMut(&T) -> bool) -> Self {
        let guard = self.guard.take().expect("it is locked");
        let guard = signal.wait_while(guard, |content| waits(content));
        self.guard = Some(unpoisoned(guard));
        self
    }
}

impl<T, const RANK: u32> Deref for Guard<'_, T, RANK> {
    type Target = T;

    fn deref(&self) -> &T {
        self.guard.as_ref().expect("it is locked")
    }
}

impl<T, const RANK: u32> DerefMut for Guard<'_, T, RANK> {
    fn deref_mut(&mut self) -> &mut T {
        self.guard.as_mut().expect("it is locked")
    }
}

/// Records that this thread holds a lock of a rank.
#[derive(Debug)]
struct Held<const RANK: u32>;

#[cfg(debug_assertions)]
thread_local! {
    /// The ranks of the locks that this thread holds, as bits.
    static RANKS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

impl<const RANK: u32> Held<RANK> {
    fn new() -> Self {
        #[cfg(debug_assertions)]
        RANKS.with(|ranks| {
            assert!(ranks.get() >> RANK == 0, "a lock of rank {RANK} is taken under {:#b}", ranks.get());
            ranks.set(ranks.get() | 1 << RANK);
        });
        Self
    }
}

impl<const RANK: u32> Drop for Held<RANK> {
    fn drop(&mut self) {
        #[cfg(debug_assertions)]
        RANKS.with(|ranks| ranks.set(ranks.get() & !(1 << RANK)));
    }
}

/// Called before a request to a server. With debug assertions it panics if this thread holds a
/// ranked lock.
pub fn assert_none_is_held() {
    #[cfg(debug_assertions)]
    RANKS.with(|ranks| assert!(ranks.get() == 0, "a server is asked under locks of ranks {:#b}", ranks.get()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_are_taken_by_rank_and_none_is_held_when_a_server_is_asked() {
        let (low, high) = (Ranked::<_, 1>::new(1), Ranked::<_, 2>::new(2));
        {
            let (low, high) = (low.lock(), high.lock());
            assert_eq!(*low + *high, 3);
        }
        assert_none_is_held();
        let fails = |work: &dyn Fn()| std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_err();
        let checks = cfg!(debug_assertions);
        assert_eq!(fails(&|| drop((high.lock(), low.lock()))), checks, "the other way round");
        assert_eq!(fails(&|| (high.lock(), assert_none_is_held()).1), checks);
        // The panicked thread has released its lock.
        assert_none_is_held();
        assert_eq!(*low.lock(), 1);
    }

    #[test]
    fn who_waits_lets_others_in() {
        let (ranked, signal) = (Ranked::<_, 1>::new(0), Condvar::new());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                *ranked.lock() = 7;
                signal.notify_all();
            });
            assert_eq!(*ranked.lock().wait_while(&signal, |number| *number == 0), 7);
        });
        assert_none_is_held();
    }
}
