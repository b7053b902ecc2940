//! Renews the claim at all targets, so that the lease goes on.

use super::super::files::same;
use super::super::mirrors::worker::{Job, Worker, most};
use super::super::options::{MirrorTarget, fenced};
use super::super::shared::Shared;
use super::claims::whole;
use plan::TargetId;
use std::sync::Weak;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use volume::target::{ClaimRequest, ClaimState, Refusal};

/// How often the claim is renewed, unless the lease is short.
const RENEWAL_INTERVAL: Duration = Duration::from_millis(500);
/// When the answers to a renewal are first looked for.
const FIRST_ANSWER_PAUSE: Duration = Duration::from_millis(2);
/// How many times it is renewed in one lease, at least.
const MIN_RENEWALS_PER_LEASE: u32 = 4;
/// A target with a thread of its own, so that one that hangs delays no renewal of the others.
struct Voter {
    place: MirrorTarget,
    worker: Worker,
    /// It has not answered the last renewal.
    busy: bool,
    /// It was a whole mirror when that was asked.
    whole: bool,
}

type Answer = (TargetId, Duration, std::io::Result<ClaimState>);

/// How often a claim with such a lease is renewed.
pub(in crate::journal) fn interval(lease: Option<Duration>) -> Duration {
    lease.map_or(RENEWAL_INTERVAL, |length| RENEWAL_INTERVAL.min(length / MIN_RENEWALS_PER_LEASE))
}

/// Renews the claim at all targets until `stop` says whether to give it back, or is gone.
pub(in crate::journal) fn run(shared: &Shared, stop: &Receiver<bool>) {
    let (sender, answers) = channel::<Answer>();
    let mut voters: Vec<Voter> = Vec::new();
    let interval = interval(shared.lease.length());
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
        // With so many an opening is possible, which must not wait for one that hangs.
        let least = shared.voters.saturating_sub(shared.losses).min(voters.len());
        most(voters.iter().map(|voter| &voter.worker), job, least, shared.limits.deadline);
    }
}

/// A target has lost what it had. Another opening does not count it. A mirror gets everything once
/// more. Any other one is claimed, and needs nothing if m+1 mirrors are whole: see
/// `claims::take_all`.
fn heal(shared: &Shared, voter: &Voter) {
    let place = &voter.place;
    let is_mirror = shared.files().mirrors.iter().any(|mirror| same(mirror, place));
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
    voters.retain(|voter| places.iter().any(|place| same(place, &voter.place)));
    for place in &places {
        if voters.iter().all(|voter| !same(place, &voter.place))
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
        voter.whole = shared.files().whole.iter().any(|place| same(place, &voter.place));
        let (request, answers, id) = (shared.renewal(), answers.clone(), voter.place.0);
        let asked = shared.lease.now();
        voter.worker.post(Box::new(move |target| {
            let answer = target.claim(&request);
            let _ = answers.send((id, asked, answer));
            Ok(())
        }));
    }
}
