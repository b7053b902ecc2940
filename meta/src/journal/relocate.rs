//! Other targets: the journal moves to those that were given, while commits go on.

use super::files::same;
use super::options::Place;
use super::purge::purge;
use super::shared::Shared;
use crate::kv::KvError;
use std::sync::PoisonError;

/// Makes these the targets, and ends when as many of them as wanted, or as there are, have everything.
///
/// # Errors
/// When that cannot be had, or the engine has failed or is closed. The targets are then those from before.
pub(super) fn set_targets(shared: &Shared, targets: Vec<Place>) -> Result<(), KvError> {
    let _moving = shared.moving.lock().unwrap_or_else(PoisonError::into_inner);
    if targets.is_empty() {
        return Err(KvError::Invalid("a journal needs a target"));
    }
    if (1..targets.len()).any(|n| targets[..n].iter().any(|(id, _)| *id == targets[n].0)) {
        return Err(KvError::Invalid("two targets have the same id"));
    }
    let before = shared.files().places.clone();
    match go(shared, targets.clone()) {
        Ok(()) => leave(shared, &before, &targets),
        Err(error) => {
            // Nothing is removed from a target that may be needed, as in an engine that has failed.
            if go(shared, before.clone()).is_ok() {
                leave(shared, &targets, &before);
            }
            return Err(error);
        }
    }
    Ok(())
}

fn go(shared: &Shared, targets: Vec<Place>) -> Result<(), KvError> {
    let (count, expected) = {
        let mut files = shared.files();
        files.failed.retain(|failed| targets.iter().any(|place| same(place, &failed.place)));
        let sound = targets.iter().filter(|place| !files.has_failed(place)).count();
        files.expected = shared.wanted.min(sound).max(1);
        files.places = targets;
        (files.places.len(), files.expected)
    };
    // Each target can fail once, and the last round sees that none did.
    for _ in 0..count + 2 {
        // This also drops the mirrors that are not wanted any more, when they are not needed any more.
        shared.settle()?;
        {
            let files = shared.files();
            let (staying, whole) = files.staying();
            if whole >= expected && staying == files.mirrors.len() {
                return Ok(());
            }
            if staying < expected {
                break;
            }
        }
        shared.checkpoint()?;
    }
    let files = shared.files();
    let why = files.last_error.as_deref().unwrap_or("they do not answer");
    Err(KvError::Unavailable(format!("not enough of the targets take the journal: {why}")))
}

/// Removes the journal from targets that are not the volume's any more. What cannot be removed stays.
fn leave(shared: &Shared, gone: &[Place], stay: &[Place]) {
    // One that has the id of a target that stays may be that target.
    let left = |place: &&Place| stay.iter().all(|(id, _)| *id != place.0);
    let left: Vec<Place> = gone.iter().filter(left).cloned().collect();
    // A snapshot that was begun for them would come after the removal.
    if left.is_empty() || shared.wait_for_snapshot().is_err() {
        return;
    }
    shared.files().complete.retain(|id, _| left.iter().all(|place| place.0 != *id));
    purge(shared, &left, |_| true);
}
