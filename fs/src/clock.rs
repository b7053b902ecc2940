//! The time of changes, by the clock with which the kernel stamps files. Where the kernel stamps
//! some files and Weft stamps others, a later stamp is never earlier in time.

use meta::Time;
use rustix::fs::{MemfdFlags, Timespec, Timestamps, UTIME_NOW, fstat, futimens, memfd_create};
use rustix::time::{ClockId, clock_gettime};
use std::os::fd::OwnedFd;
use std::sync::{LazyLock, Mutex, OnceLock};

/// A file that is stamped to read the kernel's clock, and the last time that it showed.
static STAMPED: LazyLock<Option<OwnedFd>> = LazyLock::new(|| memfd_create("weft-clock", MemfdFlags::CLOEXEC).ok());
static LAST_TIME: Mutex<Time> = Mutex::new(Time { seconds: 0, nanoseconds: 0 });

/// What a simulation has instead of the kernel's clock.
static SIMULATED: OnceLock<fn() -> Time> = OnceLock::new();

/// From now on, changes are stamped by this clock: for simulations, whose time is not that of the
/// kernel. Only the first call in a process has an effect.
pub fn simulate_clock(now: fn() -> Time) {
    _ = SIMULATED.set(now);
}

/// The coarse clock, which advances every few milliseconds. The kernel never stamps a file with an
/// earlier time, and since Linux 6.13 never with a time before a finer stamp that it gave.
pub(crate) fn now() -> Time {
    if let Some(simulated) = SIMULATED.get() {
        return simulated();
    }
    let now = clock_gettime(ClockId::RealtimeCoarse);
    Time { seconds: now.tv_sec, nanoseconds: u32::try_from(now.tv_nsec).unwrap_or(0) }
}

/// The time with which the kernel would stamp a file now. It takes two system calls.
pub(crate) fn stamp() -> Time {
    let mut last = crate::mutex::lock(&LAST_TIME);
    *last = ask_kernel().unwrap_or_default().max(now());
    *last
}

/// As [`now`], and no earlier than the last [`stamp`].
pub(crate) fn now_after_stamps() -> Time {
    now().max(*crate::mutex::lock(&LAST_TIME))
}

fn ask_kernel() -> Option<Time> {
    if let Some(simulated) = SIMULATED.get() {
        return Some(simulated());
    }
    let file = STAMPED.as_ref()?;
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    futimens(file, &Timestamps { last_access: now, last_modification: now }).ok()?;
    let found = fstat(file).ok()?;
    Some(Time { seconds: found.st_mtime, nanoseconds: u32::try_from(found.st_mtime_nsec).ok()? })
}
