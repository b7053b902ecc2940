//! Points in time, as headers have them.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A point in time: seconds since 1970, and nanoseconds within that second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    /// Seconds since 1970-01-01 UTC; negative before.
    pub seconds: i64,
    /// Below 1,000,000,000.
    pub nanoseconds: u32,
}

impl Timestamp {
    /// When the file was last modified.
    pub fn modified(of: &Metadata) -> Self {
        Self { seconds: of.mtime(), nanoseconds: of.mtime_nsec() as u32 }
    }

    /// When the file was last read.
    pub fn accessed(of: &Metadata) -> Self {
        Self { seconds: of.atime(), nanoseconds: of.atime_nsec() as u32 }
    }

    /// The current time.
    pub fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { seconds: since.as_secs() as i64, nanoseconds: since.subsec_nanos() }
    }

    /// One nanosecond later.
    #[must_use]
    pub fn next(self) -> Self {
        match self.nanoseconds {
            999_999_999 => Self { seconds: self.seconds.saturating_add(1), nanoseconds: 0 },
            nanoseconds => Self { nanoseconds: nanoseconds + 1, ..self },
        }
    }

    /// The time as the standard library's type, if that can represent it.
    pub fn system_time(self) -> Option<SystemTime> {
        let whole = Duration::from_secs(self.seconds.unsigned_abs());
        let second = if self.seconds < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
        second?.checked_add(Duration::from_nanos(self.nanoseconds.into()))
    }
}
