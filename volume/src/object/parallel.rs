//! Several threads over the stripes of an object: each takes the next stripe when it is done with
//! one.

use crate::lock;
use crate::{Error, Result, unpoisoned};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

/// The most memory for the stripes of all threads.
const MAX_MEMORY_BYTES: usize = 256 << 20;

/// Says that a worker failed and the others need not go on.
#[derive(Debug, Default)]
pub(super) struct Stop(AtomicBool);

impl Stop {
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// How many threads work on stripes whose blocks take `stripe_bytes` of memory together: what was
/// `asked` for or as many as there are cores, and fewer when memory would not be bounded, or when
/// there are fewer `stripes`.
pub(super) fn thread_count(asked: Option<usize>, stripe_bytes: usize, stripes: u64) -> usize {
    let threads = asked.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let stripes = usize::try_from(stripes).unwrap_or(usize::MAX);
    threads.min(MAX_MEMORY_BYTES / stripe_bytes.max(1)).min(stripes).max(1)
}

/// Runs `worker` in `threads` threads; the first error stops them all and is returned.
pub(super) fn run(threads: usize, worker: impl Fn(&Stop) -> Result<()> + Sync) -> Result<()> {
    /// A worker that panics stops the others, too, so that none waits for it for ever.
    struct StopOnDrop<'a>(&'a Stop, bool);
    impl Drop for StopOnDrop<'_> {
        fn drop(&mut self) {
            self.0.0.fetch_or(self.1, Ordering::Relaxed);
        }
    }
    let stop = Stop::default();
    let first: Mutex<Option<Error>> = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut guard = StopOnDrop(&stop, true);
                match worker(&stop) {
                    Ok(()) => guard.1 = false,
                    Err(error) => {
                        lock(&first).get_or_insert(error);
                    }
                }
            });
        }
    });
    unpoisoned(first.into_inner()).map_or(Ok(()), Err)
}

/// Does `work` on each item, several at a time; for calls that wait for a device.
pub(super) fn for_each<T: Sync>(items: &[T], work: impl Fn(&T) -> Result<()> + Sync) -> Result<()> {
    let next = AtomicUsize::new(0);
    run(items.len().min(16), |stop| {
        while !stop.is_set()
            && let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed))
        {
            work(item)?;
        }
        Ok(())
    })
}

/// Lets the threads write in the order of their stripes.
#[derive(Debug, Default)]
pub(super) struct Turn {
    next: Mutex<u64>,
    passed: Condvar,
}

impl Turn {
    /// Waits until all stripes before this one are done, then does `work`. Stripes are taken in
    /// order, so the thread that has the turn never waits for a later one.
    pub fn take(&self, stripe: u64, stop: &Stop, work: impl FnOnce() -> Result<()>) -> Result<()> {
        let mut next = lock(&self.next);
        while *next != stripe {
            if stop.is_set() {
                return Ok(());
            }
            let waited = self.passed.wait_timeout(next, Duration::from_millis(50));
            next = unpoisoned(waited).0;
        }
        work()?;
        *next += 1;
        self.passed.notify_all();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn the_first_error_stops_all() {
        let taken = AtomicU64::new(0);
        let result = run(4, |stop| {
            while !stop.is_set() {
                if taken.fetch_add(1, Ordering::Relaxed) == 100 {
                    return Err(Error::Interrupted);
                }
            }
            Ok(())
        });
        assert!(matches!(result, Err(Error::Interrupted)));
    }

    #[test]
    fn turns_come_in_order() {
        let (next, turn, order) = (AtomicU64::new(0), Turn::default(), Mutex::new(Vec::new()));
        run(3, |stop| {
            loop {
                let stripe = next.fetch_add(1, Ordering::Relaxed);
                if stripe >= 100 {
                    return Ok(());
                }
                turn.take(stripe, stop, || {
                    order.lock().unwrap().push(stripe);
                    Ok(())
                })?;
            }
        })
        .unwrap();
        assert_eq!(order.into_inner().unwrap(), (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn memory_bounds_the_threads() {
        assert_eq!(thread_count(Some(8), 1 << 20, 100), 8);
        assert_eq!(thread_count(Some(8), 1 << 20, 3), 3);
        assert_eq!(thread_count(Some(8), 1 << 27, 100), 2);
        assert_eq!(thread_count(Some(8), 1 << 40, 0), 1);
    }
}
