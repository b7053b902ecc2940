//! The lease of the claim: as long as m+1 targets have promised to grant the claim to no other
//! opening, no other one can have changed the volume.

use super::super::mirrors::worker::{Job, Worker};
use super::super::options::MirrorTarget;
use super::super::shared::Shared;
use super::claims::{fenced, whole};
use crate::kv::KvError;
use crate::ranks::LeaseGrants;
use plan::TargetId;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Condvar, Weak};
use std::time::{Duration, Instant};
use volume::ranked::{Guard, Ranked};
use volume::target::{ClaimRequest, ClaimState, Refusal};

/// How often the claim is renewed, unless the lease is short.
const RENEWAL_INTERVAL: Duration = Duration::from_millis(500);
/// When the answers to a renewal are first looked for.
const FIRST_ANSWER_PAUSE: Duration = Duration::from_millis(2);
/// How many times it is renewed in one lease, at least.
const MIN_RENEWALS_PER_LEASE: u32 = 4;
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

/// A target with a thread of its own, so that one that hangs delays no renewal of the others.
struct Voter {
    place: MirrorTarget,
    worker: Worker,
    /// It has not answered the last renewal.
    busy: bool,
    /// It was a whole mirror when that was asked.
    whole: bool,
}

type Answer = (TargetId, Instant, std::io::Result<ClaimState>);

/// Renews the claim at all targets until `stop` says whether to give it back, or is gone.
pub(in crate::journal) fn run(shared: &Shared, stop: &Receiver<bool>) {
    let (sender, answers) = channel::<Answer>();
    let mut voters: Vec<Voter> = Vec::new();
    let interval =
        shared.lease.length().map_or(RENEWAL_INTERVAL, |length| RENEWAL_INTERVAL.min(length / MIN_RENEWALS_PER_LEASE));
    let release = 'renewals: loop {
        if shared.lease.length().is_some() && !shared.is_stopping() {
            renew(shared, &mut voters, &sender);
        }
        let renewed = Instant::now();
        loop {
            // Readers of a new opening wait for the first answers: they are taken soon, and late
            // ones at the latest before the next renewal.
            let rest = interval.saturating_sub(renewed.elapsed());
            let busy = voters.iter().any(|voter| voter.busy);
            let pause = if busy { rest.min(FIRST_ANSWER_PAUSE + renewed.elapsed() / 4) } else { rest };
            match stop.recv_timeout(pause) {
                Ok(release) => break 'renewals release,
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return,
            }
            while let Ok((id, asked, answer)) = answers.try_recv() {
                voters.iter_mut().filter(|voter| voter.place.0 == id).for_each(|voter| voter.busy = false);
                match answer {
                    // The promise of a blank one is of no use: another opening may go on without
                    // it.
                    Ok(state) if state.blank == 0 => shared.lease.grant(id, asked),
                    Ok(_) => voters.iter().filter(|voter| voter.place.0 == id).for_each(|voter| heal(shared, voter)),
                    Err(error) if Refusal::is_unclaimed(&error) => {
                        voters.iter().filter(|voter| voter.place.0 == id).for_each(|voter| heal(shared, voter));
                    }
                    Err(error) => {
                        if let Some(fenced) = fenced(&error) {
                            shared.fail(&fenced);
                            return;
                        }
                    }
                }
            }
            if renewed.elapsed() >= interval {
                break;
            }
        }
    };
    if release {
        meet(shared, &mut voters);
        // Each worker does this after what it was asked before, so that no late renewal follows.
        let epoch = shared.claim.epoch;
        let job = |_| -> Job { Box::new(move |target| target.claim(&ClaimRequest::Release(epoch)).map(drop)) };
        super::super::mirrors::worker::all(voters.iter().map(|voter| &voter.worker), job, shared.limits.deadline);
    }
}

/// A target has lost what it had. Another opening does not count it. A mirror gets everything once
/// more. Any other one is claimed, and needs nothing if m+1 mirrors are whole: see
/// `claims::take_all`.
fn heal(shared: &Shared, voter: &Voter) {
    let place = &voter.place;
    let is_mirror = shared.files().mirrors.iter().any(|mirror| super::super::files::same(mirror, place));
    if is_mirror {
        // A new one is blank until it is whole.
        if voter.whole {
            let why = std::io::Error::other("it has lost what it had");
            shared.files().suspects.push((place.clone(), why, Weak::new()));
            shared.ask();
        }
        return;
    }
    if !shared.has_others(Some(place.0)) {
        return;
    }
    let reserved = {
        let mut files = shared.files();
        if files.is_reserved(place.0) { None } else { files.reserve(place) }
    };
    let Some(reserved) = reserved else { return };
    let (request, witnesses) = (shared.claim_request(), shared.witnesses());
    voter.worker.post(Box::new(move |target| {
        let _reserved = reserved;
        let state = target.claim(&request)?;
        witnesses.see()?;
        whole(target, &state).map(drop)
    }));
}

/// Has a thread for each target.
fn meet(shared: &Shared, voters: &mut Vec<Voter>) {
    let places = shared.files().places.clone();
    voters.retain(|voter| places.iter().any(|place| super::super::files::same(place, &voter.place)));
    for place in &places {
        if voters.iter().all(|voter| !super::super::files::same(place, &voter.place))
            && let Ok(worker) = Worker::start(place.1.clone())
        {
            voters.push(Voter { place: place.clone(), worker, busy: false, whole: false });
        }
    }
}

fn renew(shared: &Shared, voters: &mut Vec<Voter>, answers: &Sender<Answer>) {
    meet(shared, voters);
    for voter in voters.iter_mut().filter(|voter| !voter.busy) {
        voter.busy = true;
        voter.whole = shared.files().whole.iter().any(|place| super::super::files::same(place, &voter.place));
        let (request, answers, id) = (shared.renewal(), answers.clone(), voter.place.0);
        let asked = Instant::now();
        voter.worker.post(Box::new(move |target| {
            let answer = target.claim(&request);
            let _ = answers.send((id, asked, answer));
            Ok(())
        }));
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
