//! Moves the journal to other targets while commits continue.

use super::super::claim::claims::take_all;
use super::super::files::same;
use super::super::options::{MirrorTarget, fenced};
use super::super::shared::Shared;
use super::super::snapshots::purge::purge;
use crate::kv::KvError;
use std::time::Instant;

/// How many deadlines may pass without any change of the mirrors: a snapshot takes its time.
const MAX_DEADLINES: u32 = 10;

/// Sets the targets, and returns when as many of them as wanted, or as exist, have everything.
///
/// # Errors
/// Returns an error when that is not possible, or the engine has failed or is closed. The previous
/// targets are then in effect.
pub(in crate::journal) fn set_targets(shared: &Shared, targets: Vec<MirrorTarget>) -> Result<(), KvError> {
    let _moving = shared.moving.lock();
    if targets.is_empty() {
        return Err(KvError::Invalid("a journal needs a target"));
    }
    if (1..targets.len()).any(|n| targets[..n].iter().any(|(id, _)| *id == targets[n].0)) {
        return Err(KvError::Invalid("two targets have the same id"));
    }
    let before = shared.files().places.clone();
    match go(shared, targets.clone()) {
        Ok(()) => {
            shared.grow(targets.len());
            // From here on the caller may change the label.
            shared.lease.count_only(targets.iter().map(|(id, _)| *id).collect());
            leave(shared, &before, &targets);
        }
        Err(error) => {
            // Nothing is removed from a target that may be needed, as when the engine has failed.
            if go(shared, before.clone()).is_ok() {
                leave(shared, &targets, &before);
            }
            return Err(error);
        }
    }
    Ok(())
}

/// Removes the journal and the snapshots from targets that do not vote. What cannot be removed
/// remains.
pub(in crate::journal) fn clear(shared: &Shared, targets: &[MirrorTarget]) {
    let _moving = shared.moving.lock();
    let unused: Vec<MirrorTarget> = {
        let files = shared.files();
        let used = |id| files.places.iter().chain(&files.mirrors).any(|(other, _)| *other == id);
        targets.iter().filter(|(id, _)| !used(*id)).cloned().collect()
    };
    if !unused.is_empty() {
        purge(shared, &unused, |_| true);
    }
}

fn go(shared: &Shared, targets: Vec<MirrorTarget>) -> Result<(), KvError> {
    let blank = claim_all(shared, &targets)?;
    let (count, expected) = {
        let mut files = shared.files();
        files.failed.retain(|failed| targets.iter().any(|place| same(place, &failed.place)));
        // A mirror that leaves takes its copy with it: enough others have one first. When none
        // leaves, the journal goes on with those that answer.
        let leaves = files.mirrors.iter().any(|mirror| targets.iter().all(|(id, _)| *id != mirror.0));
        let sound = targets.iter().filter(|place| !files.has_failed(place)).count();
        files.expected = if leaves { shared.need() } else { shared.need().min(sound).max(1) };
        files.places = targets;
        (files.places.len(), files.expected)
    };
    // Each target can fail once and come back once; the last round finds that none did.
    let (mut rounds, mut quiet) = (2 * count + 4, Instant::now());
    while rounds > 0 {
        // This also drops unwanted mirrors as soon as they are not needed.
        shared.settle()?;
        let generation = {
            let files = shared.files();
            let (staying, whole) = files.staying();
            if whole >= expected && staying == files.mirrors.len() {
                drop(files);
                // By now, m+1 mirrors are whole.
                take_all(shared, &blank);
                return Ok(());
            }
            // A mirror that fails just before it counts is replaced as long as there are others.
            // One that still does something else joins after that.
            if staying < expected && files.spares().next().is_none() {
                break;
            }
            if quiet.elapsed() > MAX_DEADLINES * shared.limits.deadline {
                break;
            }
            files.generation
        };
        if !shared.wait_for_change(generation)? {
            continue;
        }
        (rounds, quiet) = (rounds - 1, Instant::now());
    }
    let files = shared.files();
    let why = files.last_error.as_deref().unwrap_or("they do not answer");
    Err(KvError::Unavailable(format!("not enough of the targets take the journal: {why}")))
}

/// Claims targets for this epoch. One that does not answer is claimed when it becomes a mirror.
/// Returns those that do not count yet.
fn claim_all(shared: &Shared, targets: &[MirrorTarget]) -> Result<Vec<MirrorTarget>, KvError> {
    let known = shared.files().places.clone();
    let new: Vec<MirrorTarget> =
        targets.iter().filter(|new| !known.iter().any(|old| same(old, new))).cloned().collect();
    let mut blank = Vec::new();
    for (place, answer) in new.iter().zip(take_all(shared, &new)) {
        match answer {
            Ok(state) if state.blank != 0 => blank.push(place.clone()),
            Ok(_) => {}
            Err(error) => {
                if let Some(fenced) = fenced(&error) {
                    shared.fail(&fenced);
                    return Err(fenced);
                }
            }
        }
    }
    Ok(blank)
}

/// Removes the journal from targets that left the volume. What cannot be removed remains.
fn leave(shared: &Shared, gone: &[MirrorTarget], stay: &[MirrorTarget]) {
    // A target with the id of one that stays may be that target.
    let left = |place: &&MirrorTarget| stay.iter().all(|(id, _)| *id != place.0);
    let left: Vec<MirrorTarget> = gone.iter().filter(left).cloned().collect();
    // A snapshot that was begun for them would arrive after the removal.
    if left.is_empty() || shared.wait_for_snapshot().is_err() {
        return;
    }
    shared.files().complete.retain(|id, _| left.iter().all(|place| place.0 != *id));
    purge(shared, &left, |_| true);
}
