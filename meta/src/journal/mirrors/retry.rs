//! Retries failed targets while there are fewer mirrors than wanted. Each time that a target soon
//! fails again, its back-off doubles.

use super::super::files::same;
use super::super::opening::inventory::{Owner, take};
use super::super::options::{MirrorTarget, fenced};
use super::super::shared::Shared;
use super::super::snapshots::space::Gauge;
use super::worker::{Job, Worker, all};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The longest interval between checks for targets to retry.
const MAX_CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Retries targets until the engine stops or fails, and watches the free space on the mirrors.
pub(in crate::journal) fn run(shared: &Shared) {
    let mut gauge = Gauge::default();
    gauge.look(shared);
    while shared.wait_for_retry(MAX_CHECK_INTERVAL.min(shared.limits.retry)) {
        gauge.look(shared);
        let (due, reserved, need_bytes) = {
            let mut files = shared.files();
            let lacking = files.staying().0 < shared.wanted(files.places.len());
            let due = files.failed.iter().map(|failed| &failed.place);
            let due = due.filter(|place| lacking && files.has_place(place) && files.retries.is_due(place.0));
            let due: Vec<MirrorTarget> = due.cloned().collect();
            let reserved: Vec<Option<Arc<()>>> = due.iter().map(|place| files.reserve(place)).collect();
            (due, reserved, files.need(&shared.limits))
        };
        let workers: Vec<Worker> = due.iter().map_while(|(_, target)| Worker::start(target.clone()).ok()).collect();
        let mut reserved = reserved.into_iter();
        let mut again = |number: usize| try_again(shared, due[number].clone(), need_bytes, reserved.next().flatten());
        let tried = all(workers.iter(), &mut again, shared.limits.deadline);
        drop(reserved);
        let mut answered = false;
        for ((place, worker), result) in due.iter().zip(&workers).zip(tried) {
            let mut files = shared.files();
            match result {
                Ok(()) => {
                    files.failed.retain(|failed| !same(&failed.place, place));
                    answered = true;
                }
                Err(error) => {
                    files.retries.failed(place.0, shared.limits.retry, worker.running());
                    drop(files);
                    if let Some(fenced) = fenced(&error) {
                        return shared.fail(&fenced);
                    }
                }
            }
        }
        let idle = {
            // A target that was busy when a mirror was needed.
            let files = shared.files();
            files.staying().0 < shared.wanted(files.places.len()) && files.spares().next().is_some()
        };
        if answered || idle {
            shared.ask();
        }
    }
}

/// Whether a target answers and has space for a snapshot. What it has of the journal is replaced
/// when it becomes a mirror.
fn try_again(shared: &Shared, place: MirrorTarget, need_bytes: u64, reserved: Option<Arc<()>>) -> Job {
    let volume = shared.volume;
    let claim = if reserved.is_some() { shared.claim_request() } else { shared.renewal() };
    Box::new(move |target| {
        // Until this ends, it becomes no mirror.
        let _reserved = reserved;
        // It may have missed the opening.
        target.claim(&claim)?;
        if target.space()?.free <= need_bytes {
            return Err(io::ErrorKind::StorageFull.into());
        }
        match take(&place.1, &volume)?.iter().any(|found| found.owner == Owner::Foreign) {
            true => Err(io::Error::other("it holds the journal of another volume")),
            false => Ok(()),
        }
    })
}
