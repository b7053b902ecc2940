//! The time since a job began, shared by all its roles, and the processor time of a thread.

use crate::message::{Phase, Span};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The beginning of a job. With several machines, their system clocks relate to it.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: SystemTime,
}

impl Clock {
    /// A clock of a job that begins now.
    pub fn now() -> Self {
        Self { start: SystemTime::now() }
    }

    /// A clock of a job that began at this time since 1970.
    pub fn began(since: Duration) -> Self {
        Self { start: UNIX_EPOCH + since }
    }

    /// The time since 1970 at which the job began.
    pub fn beginning(&self) -> Duration {
        self.start.duration_since(UNIX_EPOCH).unwrap_or_default()
    }

    /// Seconds since the beginning.
    pub fn seconds(&self) -> f64 {
        self.start.elapsed().unwrap_or_default().as_secs_f64()
    }

    /// Starts to measure work of this thread.
    pub fn start(&self, phase: Phase) -> Watch {
        Watch { clock: *self, phase, start: self.seconds(), cpu: thread_seconds() }
    }
}

/// Measures one piece of work of a thread.
pub struct Watch {
    clock: Clock,
    phase: Phase,
    start: f64,
    cpu: f64,
}

impl Watch {
    /// Ends the measurement. `bytes` is the amount of data that was processed.
    pub fn stop(self, bytes: u64) -> Span {
        let cpu = thread_seconds() - self.cpu;
        Span { phase: self.phase, start: self.start, end: self.clock.seconds(), cpu, bytes }
    }
}

fn seconds(time: rustix::time::Timespec) -> f64 {
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Processor time of this thread, in seconds.
fn thread_seconds() -> f64 {
    seconds(rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime))
}

/// Processor time of this process, in seconds.
pub fn process_seconds() -> f64 {
    seconds(rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime))
}
