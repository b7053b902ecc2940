//! Renews the claims of an opening until its engine does. An opening may read for longer than a
//! lease lasts: others would take its claims, and then have the same trouble.

use super::super::mirrors::worker::Worker;
use super::super::options::{Granted, MirrorTarget, Options};
use super::claims::take_request;
use super::renewal::interval;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};
use volume::target::{ClaimRequest, RENEWAL};

/// Pause between two looks at whether the last renewals have ended.
const END_POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Claims that are renewed. Dropped, it begins no further renewal.
#[derive(Default)]
pub(in crate::journal) struct Hold(Option<(Sender<()>, JoinHandle<Vec<Worker>>)>);

impl Hold {
    /// Renews the claims that were granted, and no others: what is on another target was not known
    /// before.
    pub fn begin(options: &Options, granted: &Granted) -> Self {
        let Some(lease) = options.lease else { return Self::default() };
        let request = take_request(&granted.claim, Some(lease), RENEWAL);
        let places = (0..options.targets.len()).filter(|&place| granted.counts(place));
        let places: Vec<MirrorTarget> = places.map(|place| options.targets[place].clone()).collect();
        let (stop, stopped) = channel();
        Self(Some((stop, spawn(move || run(&places, &request, interval(Some(lease)), &stopped)))))
    }

    /// Ends it, and waits for the last renewals, so that none follows the release of the claims.
    /// One of a target that hangs may follow: the target then forgets it after the lease.
    pub fn end(mut self, deadline: Duration) {
        let Some((stop, thread)) = self.0.take() else { return };
        drop(stop);
        let running: Vec<_> = thread.join().unwrap_or_default().into_iter().map(|worker| worker.running()).collect();
        let begun = Instant::now();
        while running.iter().any(|thread| thread.upgrade().is_some()) && begun.elapsed() < deadline {
            sleep(END_POLL_INTERVAL);
        }
    }
}

/// Renews until `stopped`. A target that does not answer is not asked again meanwhile.
fn run(places: &[MirrorTarget], request: &ClaimRequest, interval: Duration, stopped: &Receiver<()>) -> Vec<Worker> {
    let mut voters: Vec<(Worker, Arc<AtomicBool>)> = Vec::new();
    while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
        if voters.is_empty() {
            let start = |(_, target): &MirrorTarget| Some((Worker::start(target.clone()).ok()?, Arc::default()));
            voters = places.iter().filter_map(start).collect();
        }
        for (worker, busy) in &voters {
            if !busy.swap(true, Ordering::Relaxed) {
                let (request, busy) = (request.clone(), busy.clone());
                // The engine notices it when another opening has taken the claim.
                worker.post(Box::new(move |target| {
                    let renewed = target.claim(&request);
                    busy.store(false, Ordering::Relaxed);
                    renewed.map(drop)
                }));
            }
        }
    }
    voters.into_iter().map(|(worker, _)| worker).collect()
}
