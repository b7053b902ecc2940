//! Processes of the world.

use crate::turn::{with, within};
use std::thread::JoinHandle;

/// A group of threads. What a thread of it starts belongs to it, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Process(usize);

impl Process {
    /// A process without threads.
    ///
    /// # Panics
    /// Outside of a world, as all functions here.
    pub fn new(name: &str) -> Self {
        with(|state| {
            state.groups.push(crate::state::Group::new(name));
            Self(state.groups.len() - 1)
        })
    }

    /// The process in which the world began. It does not die: what is done there happens.
    pub fn first() -> Self {
        Self(0)
    }

    /// The process of this thread.
    pub fn current() -> Self {
        with(|state| Self(state.threads[state.running].process))
    }

    /// Starts a thread. In a dead process it never runs.
    pub fn spawn<T: Send + 'static>(self, work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        within(self.0, || std::thread::spawn(work))
    }

    /// Kills it: none of its threads runs again, and what they hold is never dropped. A thread that
    /// waits for one of them by `join` gets nothing.
    ///
    /// # Panics
    /// When a process kills itself.
    pub fn kill(self) {
        assert_ne!(Self::current(), self, "a process does not kill itself");
        with(|state| state.kill(self.0));
    }

    /// Whether it was killed.
    pub fn is_dead(self) -> bool {
        with(|state| state.groups[self.0].dead)
    }

    /// Stops all its threads, as SIGSTOP does, or lets them go on. Meanwhile time passes.
    pub fn stop(self, stopped: bool) {
        with(|state| state.groups[self.0].stopped = stopped);
    }

    /// Suspends its machine, or lets it go on: as [`Process::stop`], but its monotonic clock stands
    /// still meanwhile, and only [`crate::boot_time`] goes on.
    pub fn suspend(self, suspended: bool) {
        with(|state| state.suspend(self.0, suspended));
    }

    /// Sets its wall clock wrong by `offset_ns` nanoseconds.
    pub fn set_wall_clock(self, offset_ns: i64) {
        with(|state| state.groups[self.0].wall_offset = offset_ns);
    }

    /// Has its clocks run too fast by `drift_ppm` millionths. Only before its first thread: clocks
    /// do not jump back.
    pub fn set_drift(self, drift_ppm: i64) {
        with(|state| state.groups[self.0].drift_ppm = drift_ppm);
    }
}
