//! Claims on the targets of a volume say which opening may change it. See
//! `docs/design/008-one-history.md`.
//!
//! An opening takes a claim with a new epoch on its targets, and then reads what they have. The
//! transactions that were ever answered as durable are on m+1 mirrors; an opening that writes has
//! N-m voters and also m+1, so it has at least one of those mirrors, and more than half of all
//! voters, so no other opening has the same number.

use super::super::frame::EpochId;
use super::super::opening::inventory::{FoundFile, Owner};
use super::super::opening::inventory::{ask, take_all as list_all};
use super::super::options::{Access, Granted, MirrorTarget, Options, fenced};
use super::super::shared::Shared;
use super::witnesses::{Witnesses, is_ours};
use crate::kv::KvError;
use plan::TargetId;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use volume::format::VolumeId;
use volume::target::{Claim, ClaimRequest, ClaimState, Epoch, RENEWAL, Refusal, Target};

/// How many times an opening tries again with a higher number.
const MAX_TRIES: u32 = 10;

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
pub(in crate::journal) fn quorum(options: &Options) -> usize {
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
pub(in crate::journal) fn claim(options: &Options, least: u64) -> Result<Granted, KvError> {
    let deadline = options.limits.deadline;
    let enough = quorum(options);
    let places = &options.targets;
    let mut number = least;
    for _ in 0..MAX_TRIES {
        let read = ask(places, enough, usize::MAX, deadline, |target| target.claim(&ClaimRequest::Read));
        let held = |state: &io::Result<ClaimState>| state.as_ref().ok()?.claim.as_ref().map(name);
        let marked = |place: usize| read[place].as_ref().is_ok_and(|state| state.blank != 0);
        let before: Vec<Option<EpochId>> = read.iter().map(held).collect();
        if before.iter().all(Option::is_none) {
            // A volume of format 1 has epochs without claims.
            let found = list_all(places, &options.volume, deadline);
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
        // Enough of them say so: with those that do not answer, they may be those that lost it.
        let first = before.iter().all(Option::is_none) && read.iter().filter(|state| state.is_ok()).count() >= enough;
        // What is left counts when nothing else does, for those who accept that.
        let nothing = (0..places.len()).all(|place| before[place].is_none() || marked(place));
        let rest = nothing && (options.accept_loss || options.access == Access::PossiblyOld);
        let is_blank =
            |place: usize| read[place].is_ok() && !first && (before[place].is_none() || marked(place) && !rest);
        let blank: Vec<usize> = (0..places.len()).filter(|&place| is_blank(place)).collect();
        // Only a target whose claim is known is claimed: a claim cannot be read afterwards. One
        // that becomes blank in between stays so.
        let known = (0..places.len()).filter(|place| read[*place].is_ok() && !blank.contains(place));
        let known: Vec<MirrorTarget> = known.map(|place| places[place].clone()).collect();
        let request = take_request(&claim, options.lease, if first { 0 } else { mark() });
        let taken = ask(&known, enough, usize::MAX, deadline, move |target| {
            let state = target.claim(&request)?;
            if rest { whole(&**target, &state) } else { Ok(state) }
        });
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
            if answer.as_ref().is_ok_and(|state| state.blank != 0) {
                granted.blank.push(place);
                granted.before.push(None);
                granted.missing.push((*id, "it has just lost what it had".into()));
                continue;
            }
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
            None if !fenced => {
                let counts = |(place, (id, _)): (usize, &MirrorTarget)| granted.counts(place).then_some(*id);
                let there: Vec<TargetId> = options.targets.iter().enumerate().filter_map(counts).collect();
                return Err(too_few(options, &there, &granted.missing));
            }
            // Another opening claims at this moment: the one that waits longer leaves it to the
            // other.
            None => std::thread::sleep(Duration::from_millis(random() as u64 % 50)),
        }
    }
    Err(KvError::Held("another opening of the volume claims its targets at this moment".into()))
}

/// The error for too few targets: it names those that are missing, and says why.
pub(in crate::journal) fn too_few(options: &Options, there: &[TargetId], missing: &[(TargetId, String)]) -> KvError {
    let why = |id: &TargetId| {
        let known = missing.iter().find(|(missing, _)| missing == id).map(|(_, why)| why.as_str());
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
pub(in crate::journal) fn give_back(options: &Options, granted: &Granted) {
    let ours = |place: &usize| granted.counts(*place) || granted.blank.contains(place);
    let places: Vec<MirrorTarget> =
        (0..options.targets.len()).filter(ours).map(|place| options.targets[place].clone()).collect();
    let epoch = granted.claim.epoch;
    // One that does not answer forgets the claim when its lease has run out.
    ask(&places, places.len(), usize::MAX, options.limits.deadline, move |target| {
        target.claim(&ClaimRequest::Release(epoch))
    });
}

/// The request that takes or renews a claim. `blank` is the mark of a target that has none.
pub(in crate::journal) fn take_request(claim: &Claim, lease: Option<Duration>, blank: u32) -> ClaimRequest {
    ClaimRequest::Take { claim: claim.clone(), lease: lease.unwrap_or_default(), blank }
}

/// A new mark.
fn mark() -> u32 {
    (random() as u32).clamp(1, RENEWAL - 1)
}

/// Has a target count that has answered a claim, unless it lost everything since.
pub(in crate::journal) fn whole(target: &dyn Target, state: &ClaimState) -> io::Result<ClaimState> {
    match (&state.claim, state.blank) {
        (Some(claim), blank @ 1..) => target.claim(&ClaimRequest::Whole { epoch: claim.epoch, blank }),
        _ => Ok(state.clone()),
    }
}

impl Shared {
    /// The request that takes or renews the claim of this epoch. It claims a target that has lost
    /// what it had: nobody may ask for that who counts it as a mirror, or while somebody does.
    /// [`Files::reserve`](super::super::files::Files::reserve) sees to that.
    pub fn claim_request(&self) -> ClaimRequest {
        take_request(&self.claim_now(), self.lease.length(), mark())
    }

    /// The request that renews the claim, and takes it where an older one is. A target without any
    /// claim refuses it.
    pub fn renewal(&self) -> ClaimRequest {
        take_request(&self.claim_now(), self.lease.length(), RENEWAL)
    }

    /// The claim, with the generation of the newest label.
    fn claim_now(&self) -> Claim {
        Claim { generation: self.generation.load(Ordering::Relaxed), ..self.claim.clone() }
    }

    /// Whether m+1 mirrors without this target have all that is durable, and it is no mirror now.
    pub fn has_others(&self, id: Option<TargetId>) -> bool {
        let durable = {
            let log = self.log();
            if log.established { log.durable } else { return false }
        };
        if self.files().mirrors.iter().any(|mirror| Some(mirror.0) == id) {
            return false;
        }
        let have = self.have.lock();
        have.iter().filter(|(other, last)| Some(*other) != id && *last >= durable).count() >= self.need()
    }

    /// Those that can show that no other opening has a claim that was lost: see [`Witnesses`].
    pub fn witnesses(&self) -> Witnesses {
        let files = self.files();
        let mut places = files.places.clone();
        // Those that leave the volume stay mirrors until enough others are whole.
        places.extend(files.mirrors.iter().filter(|mirror| !files.has_place(mirror)).cloned());
        let need = self.witnesses_needed(files.places.len());
        Witnesses { places, need, epoch: self.claim.epoch, deadline: self.limits.deadline }
    }
}

/// Claims targets for the epoch of this engine. One that is a mirror by now is not claimed again.
/// When `enough` have answered, late ones are not waited for.
pub(in crate::journal) fn claim_reserved(
    shared: &Shared,
    places: &[MirrorTarget],
    enough: usize,
) -> Vec<io::Result<ClaimState>> {
    let (request, renewal) = (shared.claim_request(), shared.renewal());
    let reserved: Vec<_> = {
        let mut files = shared.files();
        places.iter().filter_map(|place| Some((place.1.clone(), files.reserve(place)?))).collect()
    };
    let reserved = Mutex::new(reserved);
    ask(places, enough, places.len(), shared.limits.deadline, move |target| {
        let own = {
            let mut reserved = reserved.lock().unwrap_or_else(PoisonError::into_inner);
            let own = reserved.iter().position(|(other, _)| Arc::ptr_eq(other, target));
            own.map(|own| reserved.remove(own))
        };
        target.claim(if own.is_some() { &request } else { &renewal })
    })
}

/// Claims voters for the epoch of this engine. One that is blank counts at once if m+1 other
/// mirrors are whole, and otherwise when it has got the whole state. One that is a mirror by now is
/// not claimed again.
///
/// That is sound: all that was ever answered as durable is then on m+1 targets without this one. An
/// opening lacks m targets at most, those included that have lost what they had and do not count
/// yet, so it has one of these m+1, whether it counts this one or not.
pub(in crate::journal) fn take_all(shared: &Shared, places: &[MirrorTarget]) -> Vec<io::Result<ClaimState>> {
    let (count, deadline) = (places.len(), shared.limits.deadline);
    let mut answers = claim_reserved(shared, places, count);
    let blank = |answer: &io::Result<ClaimState>| answer.as_ref().is_ok_and(|state| state.blank != 0);
    match answers.iter().any(blank).then(|| shared.witnesses().see()) {
        Some(Ok(())) => {
            let counts = |&number: &usize| blank(&answers[number]) && shared.has_others(Some(places[number].0));
            let numbers: Vec<usize> = (0..count).filter(counts).collect();
            let states: Vec<_> = numbers.iter().filter_map(|&number| answers[number].as_ref().ok().cloned()).collect();
            let needless: Vec<MirrorTarget> = numbers.iter().map(|&number| places[number].clone()).collect();
            let told: Vec<_> = needless.iter().map(|(_, target)| target.clone()).zip(states).collect();
            let done = ask(&needless, needless.len(), needless.len(), deadline, move |target| {
                let state = told.iter().find(|(other, _)| Arc::ptr_eq(other, target)).map(|(_, state)| state);
                state.map_or_else(|| Err(io::ErrorKind::NotFound.into()), |state| whole(&**target, state))
            });
            numbers.into_iter().zip(done).for_each(|(number, done)| answers[number] = done);
        }
        Some(Err(error)) => fenced(&error).iter().for_each(|fenced| shared.fail(fenced)),
        None => {}
    }
    // The journal thread has made none of them a mirror meanwhile.
    shared.ask();
    answers
}

/// Whether a target still has what it got under the claim of this epoch.
///
/// # Errors
/// When another opening has it, or when it has lost what it had.
pub(in crate::journal) fn check_kept(target: &dyn Target, epoch: Epoch) -> io::Result<()> {
    is_ours(&target.claim(&ClaimRequest::Read)?, epoch)
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
