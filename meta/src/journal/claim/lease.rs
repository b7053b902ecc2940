//! The lease of the claim: as long as m+1 targets have promised to grant the claim to no other
//! opening, no other one can have changed the volume.

use crate::kv::KvError;
use crate::ranks::LeaseGrants;
use plan::TargetId;
use std::collections::BTreeMap;
use std::sync::Condvar;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use volume::ranked::{Guard, Ranked};

/// How long a reader waits for a late renewal.
const LATE_RENEWAL_TIMEOUT: Duration = Duration::from_secs(10);

/// What is known of the lease.
pub(in crate::journal) struct Lease {
    length: Option<Duration>,
    need: usize,
    begun: Instant,
    /// Until when no other opening can have the volume, in nanoseconds after `begun`.
    until: AtomicU64,
    /// When the last granted renewal of each target was requested.
    asked: Ranked<BTreeMap<TargetId, Instant>, LeaseGrants>,
    renewed: Condvar,
}

impl Lease {
    /// A lease that `need` targets must renew. Without a length, there is no lease.
    pub fn new(length: Option<Duration>, need: usize) -> Self {
        let (begun, until) = (Instant::now(), AtomicU64::new(0));
        Self { length, need, begun, until, asked: Ranked::default(), renewed: Condvar::new() }
    }

    /// Its length, if there is one.
    pub fn length(&self) -> Option<Duration> {
        self.length
    }

    /// Notes that a target granted the request of `asked`: the lease runs at least since then.
    pub fn grant(&self, id: TargetId, asked: Instant) {
        let Some(length) = self.length else { return };
        let mut all = self.lock();
        let last = all.entry(id).or_insert(asked);
        *last = asked.max(*last);
        let mut times: Vec<Instant> = all.values().copied().collect();
        times.sort_unstable_by(|one, other| other.cmp(one));
        if let Some(least) = times.get(self.need - 1) {
            let until = (*least + length).saturating_duration_since(self.begun);
            self.until.fetch_max(until.as_nanos() as u64, Ordering::Release);
        }
        self.renewed.notify_all();
    }

    pub fn is_fresh(&self) -> bool {
        self.length.is_none() || (self.begun.elapsed().as_nanos() as u64) < self.until.load(Ordering::Acquire)
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

    fn lock(&self) -> Guard<'_, BTreeMap<TargetId, Instant>, LeaseGrants> {
        self.asked.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_runs_as_long_as_enough_targets_have_renewed_it() {
        let (length, now) = (Duration::from_secs(1000), Instant::now());
        let lease = Lease::new(Some(length), 2);
        assert!(!lease.is_fresh() && lease.check(|| true).is_err());
        lease.grant(TargetId(0), now);
        assert!(!lease.is_fresh());
        lease.grant(TargetId(0), now);
        assert!(!lease.is_fresh(), "one target counts once");
        lease.grant(TargetId(1), now);
        assert!(lease.is_fresh() && lease.check(|| true).is_ok());
        assert!(Lease::new(None, 2).check(|| true).is_ok());
    }
}
