//! Claims on the targets of a volume say which opening may change it. See
//! `docs/design/008-one-history.md`.
//!
//! An opening takes a claim with a new epoch on its targets, and then reads what they have. The
//! transactions that were ever answered as durable are on m+1 mirrors; an opening that writes has
//! N-m targets and also m+1, so it has at least one of those mirrors, and more than half of all
//! targets, so no other opening has the same number.

use super::frame::EpochId;
use super::inventory::{FoundFile, Owner};
use super::inventory::{ask, take_all};
use super::options::{Access, MirrorTarget, Options};
use crate::kv::KvError;
use plan::TargetId;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::time::Duration;
use volume::format::VolumeId;
use volume::target::{Claim, ClaimRequest, ClaimState, Epoch, Refusal};

/// How many times an opening tries again with a higher number.
const MAX_TRIES: u32 = 10;

/// The claims that an opening has.
pub(super) struct Granted {
    pub epoch: EpochId,
    /// The claim that is renewed, and that further targets are asked for.
    pub claim: Claim,
    /// For each place, if it granted the claim: the epoch that it had before, if any.
    pub before: Vec<Option<Option<EpochId>>>,
    /// Places without any claim, among others that have one. They are new or have lost what they
    /// had. They are not claimed before they have the whole state, or a later opening would count
    /// them.
    pub blank: Vec<usize>,
    /// Why the others did not, and which voters are not among the places.
    pub missing: Vec<(TargetId, String)>,
}

impl Granted {
    /// The highest epoch that any target had before.
    pub fn highest(&self) -> Option<EpochId> {
        self.before.iter().copied().flatten().flatten().max()
    }

    /// Whether a place granted the claim.
    pub fn counts(&self, place: usize) -> bool {
        self.before[place].is_some()
    }
}

/// How many targets an opening needs.
pub(super) fn quorum(options: &Options) -> usize {
    let (all, losses) = (options.voters.len(), options.losses);
    match options.access {
        _ if options.accept_loss => 1,
        Access::PossiblyOld => 1,
        Access::Read | Access::ReadFiles => all.saturating_sub(losses).max(1),
        Access::Write => all.saturating_sub(losses).max(losses + 1),
    }
}

/// Claims the targets of a volume with a number above that of every claim on them, and above
/// `least`.
///
/// # Errors
/// `Held` when others hold too many of them; `TooFew` when too few answer.
pub(super) fn claim(options: &Options, least: u64) -> Result<Granted, KvError> {
    let deadline = options.limits.deadline;
    let enough = quorum(options);
    let places = &options.targets;
    let mut number = least;
    for _ in 0..MAX_TRIES {
        let read = ask(places, enough, usize::MAX, deadline, |target| target.claim(&ClaimRequest::Read));
        let held = |state: &io::Result<ClaimState>| state.as_ref().ok()?.claim.as_ref().map(name);
        let before: Vec<Option<EpochId>> = read.iter().map(held).collect();
        if before.iter().all(Option::is_none) {
            // A volume of format 1 has epochs without claims.
            let found = take_all(places, &options.volume, deadline);
            number = number.max(found.iter().flatten().flatten().filter_map(epoch_of).max().unwrap_or(0));
        }
        let highest = before.iter().flatten().map(|epoch| epoch.number).max().unwrap_or(0);
        number = number.max(highest).saturating_add(1);
        let claim = Claim {
            volume: VolumeId(options.volume),
            generation: options.generation,
            epoch: Epoch { number, id: random() },
            mirrors: Vec::new(),
            holder: options.holder.clone(),
        };
        let first = before.iter().all(Option::is_none);
        let is_blank = |place: usize| read[place].is_ok() && before[place].is_none() && !first;
        let blank: Vec<usize> = (0..places.len()).filter(|&place| is_blank(place)).collect();
        // Only a target whose claim is known is claimed: a claim cannot be read afterwards.
        let known = (0..places.len()).filter(|place| read[*place].is_ok() && !blank.contains(place));
        let known: Vec<MirrorTarget> = known.map(|place| places[place].clone()).collect();
        let request = take_request(&claim, options.lease);
        let taken = ask(&known, enough, usize::MAX, deadline, move |target| target.claim(&request));
        let mut taken = taken.into_iter();
        let mut granted = Granted { epoch: name(&claim), claim, before: Vec::new(), blank, missing: Vec::new() };
        let (mut fenced, mut holder) = (false, None);
        for (place, (((id, _), read), before)) in places.iter().zip(read).zip(before).enumerate() {
            if granted.blank.contains(&place) {
                granted.before.push(None);
                granted.missing.push((*id, "it is new or lost what it had".into()));
                continue;
            }
            let answer = read.and_then(|_| taken.next().unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into())));
            granted.before.push(answer.is_ok().then_some(before));
            let Err(error) = answer else { continue };
            fenced |= Refusal::fenced(&error).is_some();
            if Refusal::is_held(&error) {
                holder.get_or_insert_with(|| error.to_string());
            }
            granted.missing.push((*id, error.to_string()));
        }
        for id in &options.voters {
            if places.iter().all(|(place, _)| place != id) {
                granted.missing.push((*id, "it is not there".into()));
            }
        }
        if (0..places.len()).filter(|&place| granted.counts(place)).count() >= enough {
            return Ok(granted);
        }
        give_back(options, &granted);
        match holder {
            Some(whose) => return Err(KvError::Held(whose)),
            None if !fenced => return Err(too_few(options, &granted)),
            // Another opening claims at this moment: the one that waits longer leaves it to the
            // other.
            None => std::thread::sleep(Duration::from_millis(random() as u64 % 50)),
        }
    }
    Err(KvError::Held("another opening of the volume claims its targets at this moment".into()))
}

/// The error for too few targets: it names those that are missing.
pub(super) fn too_few(options: &Options, granted: &Granted) -> KvError {
    let counts = |(place, (id, _)): (usize, &MirrorTarget)| granted.counts(place).then_some(*id);
    let there: Vec<TargetId> = options.targets.iter().enumerate().filter_map(counts).collect();
    let why = |id: &TargetId| {
        let known = granted.missing.iter().find(|(missing, _)| missing == id).map(|(_, why)| why.as_str());
        format!("target {}: {}", id.0, known.unwrap_or("it lost a part of what it had"))
    };
    let lacking: Vec<String> = options.voters.iter().filter(|id| !there.contains(id)).map(why).collect();
    KvError::TooFew(format!(
        "{} of {} targets can be used and {} are needed, or something newer may be missing; {}",
        there.len(),
        options.voters.len(),
        quorum(options),
        lacking.join("; ")
    ))
}

/// Gives claims back, so that no other opening waits for their leases.
pub(super) fn give_back(options: &Options, granted: &Granted) {
    let ours = |(place, before): (&MirrorTarget, &Option<_>)| before.is_some().then(|| place.clone());
    let places: Vec<MirrorTarget> = options.targets.iter().zip(&granted.before).filter_map(ours).collect();
    let epoch = granted.claim.epoch;
    // One that does not answer forgets the claim when its lease has run out.
    ask(&places, places.len(), usize::MAX, options.limits.deadline, move |target| {
        target.claim(&ClaimRequest::Release(epoch))
    });
}

/// The request that takes or renews a claim.
pub(super) fn take_request(claim: &Claim, lease: Option<Duration>) -> ClaimRequest {
    ClaimRequest::Take { claim: claim.clone(), lease: lease.unwrap_or_default() }
}

/// The epoch of a claim.
fn name(claim: &Claim) -> EpochId {
    EpochId { number: claim.epoch.number, id: claim.epoch.id }
}

fn epoch_of(found: &FoundFile) -> Option<u64> {
    if let Owner::Ours(head) = &found.owner { Some(head.epoch.number) } else { None }
}

/// Random bits, not all zeroes. The standard library gets them from the system.
fn random() -> u128 {
    let bits = || u128::from(RandomState::new().hash_one(0));
    (bits() << 64 | bits()).max(1)
}

/// What a failed operation says about the claim, if it is about the claim.
pub(super) fn fenced(error: &io::Error) -> Option<KvError> {
    Refusal::fenced(error).map(|_| KvError::Fenced(error.to_string()))
}
