//! Removes segments and snapshots that are no longer needed.

use super::super::mirrors::worker::{Job, Worker, all};
use super::super::opening::inventory::{Owner, take};
use super::super::options::{MirrorTarget, fenced};
use super::super::shared::Shared;
use volume::target::{Claim, Refusal, TargetFile};

/// Removes this volume's superfluous segments and snapshots from all targets that answer. What
/// remains is removed another time.
pub(in crate::journal) fn purge(
    shared: &Shared,
    places: &[MirrorTarget],
    superfluous: impl Fn(TargetFile) -> bool + Copy + Send + 'static,
) {
    let workers: Vec<Worker> = places.iter().filter_map(|(_, target)| Worker::start(target.clone()).ok()).collect();
    if workers.len() < places.len() {
        return;
    }
    let volume = shared.volume;
    let job = |number: usize| -> Job {
        let place: MirrorTarget = places[number].clone();
        Box::new(move |target| {
            for found in take(&place.1, &volume)? {
                if found.owner != Owner::Foreign && superfluous(found.file) {
                    target.remove(found.file)?;
                }
            }
            Ok(())
        })
    };
    for (place, result) in places.iter().zip(all(workers.iter(), job, shared.limits.deadline)) {
        if let Err(error) = result {
            // A target that has missed this opening refuses what its handle does without a claim,
            // and names an earlier one.
            let is_later = |held: &Claim| held.epoch.number >= shared.claim.epoch.number;
            if let Some(fenced) = fenced(&error).filter(|_| Refusal::fenced(&error).is_some_and(is_later)) {
                return shared.fail(&fenced);
            }
            shared.files().last_error = Some(format!("target {}: removing old metadata: {error}", place.0.0));
        }
    }
}
