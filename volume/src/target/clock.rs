//! The clock by which leases run.

use rustix::time::{ClockId, clock_gettime};
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// What a simulation has instead of the kernel's clock.
static SIMULATED: OnceLock<fn() -> Duration> = OnceLock::new();

/// From now on, [`boot_time`] asks this: for simulations, whose time is not that of the kernel.
/// Only the first call in a process has an effect.
pub fn simulate_boot_time(now: fn() -> Duration) {
    _ = SIMULATED.set(now);
}

/// The time since this machine was started. Unlike [`std::time::Instant`], it counts the time for
/// which the machine was suspended: other machines go on meanwhile, and what they have promised
/// runs out.
pub fn boot_time() -> Duration {
    if let Some(simulated) = SIMULATED.get() {
        return simulated();
    }
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(now.tv_sec as u64, u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// A clock that never goes back, from any beginning.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Duration + Send + Sync>);

impl Clock {
    /// A clock that calls `now`.
    pub fn new(now: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// The time.
    pub fn now(&self) -> Duration {
        (self.0)()
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new(boot_time)
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}
