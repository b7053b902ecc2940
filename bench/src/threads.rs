//! Several cores at once: all workers are ready before the first one starts, and the last to finish
//! counts.

use std::sync::Barrier;
use std::time::Instant;

/// Called by a worker between its preparations and its work; tells when the work starts.
pub type Ready<'a> = &'a (dyn Fn() -> Instant + Sync);

/// Runs `work` on `threads` threads and returns the seconds from the first start to the last end.
/// Each worker prepares, calls the function it is given, works, and returns the instant that
/// function gave and the instant of its end.
pub fn seconds(threads: usize, work: impl Fn(Ready) -> (Instant, Instant) + Sync) -> f64 {
    let barrier = Barrier::new(threads);
    let ready = || {
        barrier.wait();
        Instant::now()
    };
    let spans: Vec<(Instant, Instant)> = std::thread::scope(|scope| {
        // The last worker is this thread, so that one thread means no thread of its own.
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(|| work(&ready))).collect();
        let own = work(&ready);
        others.into_iter().map(|w| w.join().expect("a worker panicked")).chain([own]).collect()
    });
    let first = spans.iter().map(|s| s.0).min().expect("one worker at least");
    let last = spans.iter().map(|s| s.1).max().expect("one worker at least");
    (last - first).as_secs_f64()
}

/// The cores of this machine that this process may use.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
