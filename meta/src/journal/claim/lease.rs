//! The lease of the claim: as long as m+1 targets have promised to grant the claim to no other
//! opening, no other one can have changed the volume. The time for which this machine is suspended
//! counts, because the targets do not wait for it.

use crate::kv::KvError;
use crate::ranks::LeaseGrants;
use plan::TargetId;
use std::collections::{BTreeMap, BTreeSet};
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
    grants: Ranked<Grants, LeaseGrants>,
    renewed: Condvar,
}

/// Which targets have renewed a lease.
#[derive(Default)]
struct Grants {
    /// When the last granted renewal of each target was requested.
    asked: BTreeMap<TargetId, Duration>,
    /// Those that count; None for all.
    voters: Option<BTreeSet<TargetId>>,
}

impl Lease {
    /// A lease that `need` targets must renew. Without a length, there is no lease.
    pub fn new(length: Option<Duration>, need: usize, clock: Clock) -> Self {
        let (until, grants) = (AtomicU64::new(0), Ranked::default());
        Self { length, need, clock, until, grants, renewed: Condvar::new() }
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
        let mut grants = self.lock();
        if grants.voters.as_ref().is_some_and(|voters| !voters.contains(&id)) {
            return;
        }
        let last = grants.asked.entry(id).or_insert(asked);
        *last = asked.max(*last);
        if let Some(until) = self.ends(&grants) {
            self.until.fetch_max(until, Ordering::Release);
        }
        self.renewed.notify_all();
    }

    /// From now on these targets count alone. A promise of one that leaves the volume keeps no
    /// opening away that needs it no more, so that the lease may be over at once.
    pub fn count_only(&self, voters: BTreeSet<TargetId>) {
        let mut grants = self.lock();
        grants.asked.retain(|id, _| voters.contains(id));
        grants.voters = Some(voters);
        self.until.store(self.ends(&grants).unwrap_or(0), Ordering::Release);
    }

    /// When it ends, if enough targets have granted it: in nanoseconds of the clock.
    fn ends(&self, grants: &Grants) -> Option<u64> {
        let mut times: Vec<Duration> = grants.asked.values().copied().collect();
        times.sort_unstable_by(|one, other| other.cmp(one));
        let least = *times.get(self.need - 1)?;
        Some((least + self.length?).as_nanos() as u64)
    }

    pub fn is_fresh(&self) -> bool {
        self.lasts(Duration::ZERO)
    }

    /// Whether it runs for longer than this, if nothing renews it.
    pub fn lasts(&self, time: Duration) -> bool {
        self.length.is_none() || ((self.now() + time).as_nanos() as u64) < self.until.load(Ordering::Acquire)
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
        let mut grants = self.lock();
        while !self.is_fresh() {
            if begun.elapsed() >= LATE_RENEWAL_TIMEOUT || over() {
                let why = "the lease of this holder has run out, and too few targets renew it";
                return Err(KvError::Unavailable(why.into()));
            }
            grants = grants.wait_timeout(&self.renewed, LATE_RENEWAL_TIMEOUT / 20);
        }
        drop(grants);
        Ok(())
    }

    fn lock(&self) -> Guard<'_, Grants, LeaseGrants> {
        self.grants.lock()
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
        assert!(lease.is_fresh() && !lease.lasts(Duration::from_secs(1)));
        assert!(lease.lasts(Duration::from_millis(999)));
        // Only one has renewed it since.
        lease.grant(TargetId(0), lease.now());
        seconds.fetch_add(1, Ordering::Relaxed);
        assert!(!lease.is_fresh() && lease.check(|| true).is_err());
        assert!(Lease::new(None, 2, Clock::default()).check(|| true).is_ok());
    }

    /// The new label needs no promise of the one that leaves, so an opening may go on that has
    /// claimed all others.
    #[test]
    fn the_promise_of_a_target_that_leaves_does_not_count() {
        let (lease, _) = lease(Some(Duration::from_secs(10)));
        let ids = |ids: &[u16]| ids.iter().map(|&id| TargetId(id)).collect();
        lease.grant(TargetId(0), lease.now());
        lease.grant(TargetId(2), lease.now());
        assert!(lease.is_fresh());
        lease.count_only(ids(&[0, 1, 3]));
        assert!(!lease.is_fresh());
        // Nor does an answer that comes late.
        lease.grant(TargetId(2), lease.now());
        assert!(!lease.is_fresh());
        lease.grant(TargetId(1), lease.now());
        assert!(lease.is_fresh());
        lease.count_only(ids(&[0, 1, 3, 4]));
        assert!(lease.is_fresh(), "who joins takes no promise away");
    }
}
