//! The lease of the claim: as long as m+1 targets have promised to grant the claim to no other
//! opening, no other one can have changed the volume. The time for which this machine is suspended
//! counts, because the targets do not wait for it.

use crate::kv::KvError;
use crate::ranks::LeaseGrants;
use plan::TargetId;
use std::collections::BTreeMap;
use std::sync::Condvar;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use volume::ranked::{Guard, Ranked};
use volume::target::Clock;

/// How long a reader waits for a late renewal.
const LATE_RENEWAL_TIMEOUT: Duration = Duration::from_secs(10);

/// What is known of the lease.
pub(in crate::journal) struct Lease {
    length: Option<Duration>,
    need: usize,
    clock: Clock,
    /// Until when no other opening can have the volume, in nanoseconds of the clock.
    until: AtomicU64,
    /// When the last granted renewal of each target was requested.
    asked: Ranked<BTreeMap<TargetId, Duration>, LeaseGrants>,
    renewed: Condvar,
}

impl Lease {
    /// A lease that `need` targets must renew. Without a length, there is no lease.
    pub fn new(length: Option<Duration>, need: usize, clock: Clock) -> Self {
        let (until, asked) = (AtomicU64::new(0), Ranked::default());
        Self { length, need, clock, until, asked, renewed: Condvar::new() }
    }

    /// The time, by the clock of the lease.
    pub fn now(&self) -> Duration {
        self.clock.now()
    }

    /// Its length, if there is one.
    pub fn length(&self) -> Option<Duration> {
        self.length
    }

    /// Notes that a target granted the request of `asked`: the lease runs at least since then.
    pub fn grant(&self, id: TargetId, asked: Duration) {
        let Some(length) = self.length else { return };
        let mut all = self.lock();
        let last = all.entry(id).or_insert(asked);
        *last = asked.max(*last);
        let mut times: Vec<Duration> = all.values().copied().collect();
        times.sort_unstable_by(|one, other| other.cmp(one));
        if let Some(least) = times.get(self.need - 1) {
            let until = *least + length;
            self.until.fetch_max(until.as_nanos() as u64, Ordering::Release);
        }
        self.renewed.notify_all();
    }

    pub fn is_fresh(&self) -> bool {
        self.length.is_none() || (self.now().as_nanos() as u64) < self.until.load(Ordering::Acquire)
    }

    /// Whether the lease runs. Waits a little for a late renewal, unless `over`.
    ///
    /// # Errors
    /// `Unavailable` when it has run out.
    pub fn check(&self, over: impl Fn() -> bool) -> Result<(), KvError> {
        if self.is_fresh() {
            return Ok(());
        }
        let begun = Instant::now();
        let mut all = self.lock();
        while !self.is_fresh() {
            if begun.elapsed() >= LATE_RENEWAL_TIMEOUT || over() {
                let why = "the lease of this holder has run out, and too few targets renew it";
                return Err(KvError::Unavailable(why.into()));
            }
            all = all.wait_timeout(&self.renewed, LATE_RENEWAL_TIMEOUT / 20);
        }
        drop(all);
        Ok(())
    }

    fn lock(&self) -> Guard<'_, BTreeMap<TargetId, Duration>, LeaseGrants> {
        self.asked.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    /// A lease of two targets, and what its clock shows, in seconds.
    fn lease(length: Option<Duration>) -> (Lease, Arc<AtomicU64>) {
        let seconds = Arc::new(AtomicU64::new(1000));
        let shown = seconds.clone();
        (Lease::new(length, 2, Clock::new(move || Duration::from_secs(shown.load(Ordering::Relaxed)))), seconds)
    }

    #[test]
    fn it_runs_as_long_as_enough_targets_have_renewed_it() {
        let (lease, seconds) = lease(Some(Duration::from_secs(10)));
        assert!(!lease.is_fresh() && lease.check(|| true).is_err());
        lease.grant(TargetId(0), lease.now());
        assert!(!lease.is_fresh());
        lease.grant(TargetId(0), lease.now());
        assert!(!lease.is_fresh(), "one target counts once");
        lease.grant(TargetId(1), lease.now());
        assert!(lease.is_fresh() && lease.check(|| true).is_ok());
        seconds.fetch_add(9, Ordering::Relaxed);
        assert!(lease.is_fresh());
        // Only one has renewed it since.
        lease.grant(TargetId(0), lease.now());
        seconds.fetch_add(1, Ordering::Relaxed);
        assert!(!lease.is_fresh() && lease.check(|| true).is_err());
        assert!(Lease::new(None, 2, Clock::default()).check(|| true).is_ok());
    }
}
