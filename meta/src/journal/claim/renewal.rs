//! Renews the claim at all targets, so that the lease goes on.

use super::super::files::same;
use super::super::mirrors::worker::{Job, Worker, most};
use super::super::options::{MirrorTarget, fenced};
use super::super::shared::Shared;
use super::claims::whole;
use plan::TargetId;
use std::sync::Weak;
use std::sync::atomic::Ordering;
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
struct Claimed {
    place: MirrorTarget,
    worker: Worker,
    /// It is no bystander: its promise counts.
    votes: bool,
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
    let mut targets: Vec<Claimed> = Vec::new();
    let interval = interval(shared.lease.length());
    let release = 'renewals: loop {
        if shared.lease.length().is_some() && !shared.is_stopping() {
            renew(shared, &mut targets, &sender);
        }
        let renewed = Instant::now();
        loop {
            // Readers of a new opening wait for the first answers: they are taken soon, and late
            // ones at the latest before the next renewal.
            let rest = interval.saturating_sub(renewed.elapsed());
            let busy = targets.iter().any(|target| target.busy);
            let pause = if busy { rest.min(FIRST_ANSWER_PAUSE + renewed.elapsed() / 4) } else { rest };
            match stop.recv_timeout(pause) {
                Ok(release) => break 'renewals release,
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return,
            }
            while let Ok((id, asked, answer)) = answers.try_recv() {
                targets.iter_mut().filter(|target| target.place.0 == id).for_each(|target| target.busy = false);
                let voters = || targets.iter().filter(|target| target.place.0 == id && target.votes);
                match answer {
                    // The promise of a blank one is of no use: another opening may go on without
                    // it.
                    Ok(state) if state.blank == 0 => voters().for_each(|_| shared.lease.grant(id, asked)),
                    Ok(_) => voters().for_each(|voter| heal(shared, voter)),
                    Err(error) if Refusal::is_unclaimed(&error) => voters().for_each(|voter| heal(shared, voter)),
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
        meet(shared, &mut targets);
        // Each worker does this after what it was asked before, so that no late renewal follows.
        let epoch = shared.claim.epoch;
        let job = |_| -> Job { Box::new(move |target| target.claim(&ClaimRequest::Release(epoch)).map(drop)) };
        let (voters, bystanders): (Vec<&Claimed>, Vec<&Claimed>) = targets.iter().partition(|target| target.votes);
        bystanders.iter().for_each(|bystander| bystander.worker.post(job(0)));
        // With so many an opening is possible, which must not wait for one that hangs.
        let all = shared.voters.load(Ordering::Relaxed);
        let least = all.saturating_sub(shared.losses).min(voters.len());
        most(voters.iter().map(|target| &target.worker), job, least, shared.limits.deadline);
        // What they were asked before is done then, too.
        let nothing = |_| -> Job { Box::new(|_| Ok(())) };
        most(bystanders.iter().map(|target| &target.worker), nothing, 0, shared.limits.deadline);
    }
}

/// A target has lost what it had. Another opening does not count it. A mirror gets everything once
/// more. Any other one is claimed, and needs nothing if m+1 mirrors are whole: see
/// `claims::take_all`.
fn heal(shared: &Shared, voter: &Claimed) {
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
fn meet(shared: &Shared, targets: &mut Vec<Claimed>) {
    let (voters, bystanders) = {
        let files = shared.files();
        (files.places.clone(), files.bystanders.clone())
    };
    let is_voter = |place: &MirrorTarget| voters.iter().any(|voter| same(voter, place));
    targets.retain(|target| voters.iter().chain(&bystanders).any(|place| same(place, &target.place)));
    for place in voters.iter().chain(&bystanders) {
        match targets.iter_mut().find(|target| same(place, &target.place)) {
            Some(target) => target.votes = is_voter(place),
            None => {
                if let Ok(worker) = Worker::start(place.1.clone()) {
                    let votes = is_voter(place);
                    targets.push(Claimed { place: place.clone(), worker, votes, busy: false, whole: false });
                }
            }
        }
    }
}

fn renew(shared: &Shared, targets: &mut Vec<Claimed>, answers: &Sender<Answer>) {
    meet(shared, targets);
    for target in targets.iter_mut().filter(|target| !target.busy) {
        target.busy = true;
        target.whole = shared.files().whole.iter().any(|place| same(place, &target.place));
        // A bystander is claimed whatever it has lost, unless it is a mirror by now.
        let reserved = if target.votes { None } else { shared.files().reserve(&target.place) };
        let request = if reserved.is_some() { shared.claim_request() } else { shared.renewal() };
        let (answers, id, asked) = (answers.clone(), target.place.0, shared.lease.now());
        target.worker.post(Box::new(move |target| {
            let _reserved = reserved;
            let answer = target.claim(&request);
            let _ = answers.send((id, asked, answer));
            Ok(())
        }));
    }
}
